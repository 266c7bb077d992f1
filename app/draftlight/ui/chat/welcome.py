"""What an empty conversation shows: a few questions to try, or what to do where there is no model at all."""

from pathlib import Path

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QStackedWidget, QVBoxLayout, QWidget

from draftlight.ui.theme import Legend, Theme

_EXAMPLES = (
    "List the planets of the solar system in order.",
    "Write a short poem about the sea.",
    "Explain what a prime number is.",
)
_WIDTH = 560


class Welcome(QWidget):
    """The first screen."""

    example_chosen = Signal(str)
    file_asked = Signal()
    look_asked = Signal()

    def __init__(self, theme: Theme, folder: Path, parent: QWidget | None = None) -> None:
        """Show the examples; show_no_model() shows the other page, with the folder where models belong."""
        super().__init__(parent)
        self.setObjectName("page")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._pages = QStackedWidget(self)
        self._pages.setMaximumWidth(_WIDTH)
        self._pages.addWidget(self._examples(theme))
        self._pages.addWidget(self._no_model(folder))
        layout = QHBoxLayout(self)
        layout.addStretch(1)
        layout.addWidget(self._pages, 4)
        layout.addStretch(1)

    @property
    def shows_no_model(self) -> bool:
        """Whether it says that there is no model."""
        return self._pages.currentIndex() == 1

    @Slot()
    def show_examples(self) -> None:
        """Show questions to try."""
        self._pages.setCurrentIndex(0)

    def show_no_model(self) -> None:
        """Say that there is no model, and what to do."""
        self._pages.setCurrentIndex(1)

    def _examples(self, theme: Theme) -> QWidget:
        page, layout = _page("See the draft at work")
        layout.addWidget(
            _text(
                "A small draft model proposes a few tokens, the target model checks them all in one call. "
                "What it would have said itself stays; the rest is replaced. Each token shows what became of it:"
            )
        )
        layout.addWidget(Legend(theme, page))
        layout.addSpacing(12)
        for example in _EXAMPLES:
            button = QPushButton(example, page)
            button.setStyleSheet("text-align: left; padding: 9px 14px;")
            button.clicked.connect(self._choose)
            layout.addWidget(button)
        layout.addStretch(1)
        return page

    def _no_model(self, folder: Path) -> QWidget:
        page, layout = _page("No model yet")
        layout.addWidget(
            _text(
                "Draftlight answers with model files on this computer, in the GGUF format, and found none. "
                f"Open one that you have, or copy one into {folder} and look again. "
                "Your old chats can be read without a model."
            )
        )
        row = QHBoxLayout()
        open_file = QPushButton("Open a model file …", page)
        open_file.setObjectName("main")
        open_file.clicked.connect(self.file_asked)
        look = QPushButton("Look again", page)
        look.clicked.connect(self.look_asked)
        row.addWidget(open_file)
        row.addWidget(look)
        row.addStretch(1)
        layout.addSpacing(8)
        layout.addLayout(row)
        layout.addStretch(1)
        return page

    @Slot()
    def _choose(self) -> None:
        button = self.sender()
        if isinstance(button, QPushButton):
            self.example_chosen.emit(button.text())


def chat_page(transcript: QWidget, legend: Legend) -> QWidget:
    """Return the page of a conversation that has begun: the text, and below it what its marks mean."""
    page = QWidget()
    page.setObjectName("page")
    page.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
    layout = QVBoxLayout(page)
    layout.setContentsMargins(0, 0, 0, 6)
    layout.setSpacing(6)
    layout.addWidget(transcript, 1)
    layout.addWidget(legend, 0, Qt.AlignmentFlag.AlignHCenter)
    return page


def _page(heading: str) -> tuple[QWidget, QVBoxLayout]:
    page = QWidget()
    layout = QVBoxLayout(page)
    layout.setSpacing(10)
    layout.addStretch(1)
    label = QLabel(heading, page)
    font = label.font()
    font.setPointSizeF(font.pointSizeF() * 1.7)
    font.setBold(True)
    label.setFont(font)
    layout.addWidget(label)
    return page, layout


def _text(text: str) -> QLabel:
    label = QLabel(text)
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setWordWrap(True)
    return label
