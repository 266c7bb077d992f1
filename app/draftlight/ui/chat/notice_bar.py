"""Sentences that the person should see, one bar each, until dismissed."""

from PySide6.QtCore import Qt, Slot
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

_MOST = 4


class NoticeBar(QWidget):
    """The notices in force, the newest at the bottom."""

    def __init__(self, parent: QWidget | None = None) -> None:
        """Start without notices, taking no room."""
        super().__init__(parent)
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(16, 0, 16, 8)
        self._layout.setSpacing(6)
        self._notices: dict[str, QFrame] = {}
        self.hide()

    @property
    def sentences(self) -> list[str]:
        """What is shown."""
        return list(self._notices)

    @Slot(str)
    def tell(self, sentence: str) -> None:
        """Show a sentence, once."""
        if not sentence or sentence in self._notices:
            return
        if len(self._notices) >= _MOST:
            self._remove(next(iter(self._notices)))
        notice = QFrame(self)
        notice.setObjectName("notice")
        text = QLabel(sentence, notice)
        text.setTextFormat(Qt.TextFormat.PlainText)
        text.setWordWrap(True)
        text.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        text.setAccessibleName("Notice")
        dismiss = QPushButton("Dismiss", notice)
        dismiss.setProperty("sentence", sentence)
        dismiss.clicked.connect(self._dismiss)
        row = QHBoxLayout(notice)
        row.setContentsMargins(14, 8, 8, 8)
        row.addWidget(text, 1)
        row.addWidget(dismiss, 0, Qt.AlignmentFlag.AlignTop)
        self._layout.addWidget(notice)
        self._notices[sentence] = notice
        self.show()

    @Slot()
    def clear(self) -> None:
        """Dismiss everything."""
        for sentence in list(self._notices):
            self._remove(sentence)

    @Slot()
    def _dismiss(self) -> None:
        self._remove(str(self.sender().property("sentence")))

    def _remove(self, sentence: str) -> None:
        notice = self._notices.pop(sentence, None)
        if notice is not None:
            self._layout.removeWidget(notice)
            notice.hide()
            notice.deleteLater()
        self.setVisible(bool(self._notices))
