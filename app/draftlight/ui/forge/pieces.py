"""What the screen's pages are made of: a part that scrolls, a row of buttons that never does, headings, text."""

from collections.abc import Callable

from PySide6.QtCore import Qt, SignalInstance
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QScrollArea, QVBoxLayout, QWidget

_LARGE = 1.4
_MARGIN = 20


class Page(QWidget):
    """Add what may scroll to `body` and buttons to `row`."""

    def __init__(self, parent: QWidget | None = None) -> None:
        """Start empty."""
        super().__init__(parent)
        self.first: QWidget = self  # what gets the keyboard when the page comes into sight
        inside = QWidget()
        self.body = QVBoxLayout(inside)
        self.body.setContentsMargins(_MARGIN, _MARGIN, _MARGIN, _MARGIN)
        self.body.setSpacing(12)
        scrolled = QScrollArea(self)
        scrolled.setWidgetResizable(True)
        scrolled.setFrameShape(QFrame.Shape.NoFrame)
        scrolled.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scrolled.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        scrolled.setWidget(inside)
        self.row = QHBoxLayout()
        self.row.setContentsMargins(_MARGIN, 10, _MARGIN, 14)
        self.row.setSpacing(10)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(scrolled, 1)
        column.addLayout(self.row)

    def add_button(self, text: str, slot: Callable[..., object] | SignalInstance, *, main: bool = False) -> QPushButton:
        """Add a button to the row; the main one stands out and gets the keyboard first."""
        button = QPushButton(text, self)
        button.clicked.connect(slot)
        if main:
            button.setObjectName("main")
            self.first = button
        self.row.addWidget(button)
        return button


def heading(parent: QWidget) -> QLabel:
    """Return a large line for a page's heading."""
    label = text(parent)
    font = label.font()
    font.setPointSizeF(font.pointSizeF() * _LARGE)
    font.setBold(True)
    label.setFont(font)
    return label


def text(parent: QWidget, words: str = "", *, dim: bool = False) -> QLabel:
    """Return a paragraph; it can be selected with the mouse and is never taken for HTML."""
    label = QLabel(words, parent)
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setWordWrap(True)
    label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    if dim:
        label.setObjectName("dim")
    return label


def side_by_side(*widgets: QWidget) -> QHBoxLayout:
    """Return a row that shares its width out evenly."""
    row = QHBoxLayout()
    row.setSpacing(16)
    for widget in widgets:
        row.addWidget(widget, 1)
    return row
