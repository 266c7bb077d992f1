"""Where the person types: Enter sends, Shift+Enter breaks the line. What is typed is never lost."""

from PySide6.QtCore import QEvent, QMimeData, QObject, Qt, Signal, Slot
from PySide6.QtGui import QKeyEvent, QTextOption
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPlainTextEdit, QPushButton, QVBoxLayout, QWidget

_MOST_LINES = 9
_WRAPPED_AT_WORDS = 20_000  # characters
_HINT = "Enter sends, Shift+Enter starts a new line"
_ANSWERING = "Esc stops the answer; what you write now can be sent after it"


class _Entry(QPlainTextEdit):
    """A plain text field that grows with its text and reports Enter."""

    entered = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("entry")
        self.setAccessibleName("Message")
        self.setAccessibleDescription(_HINT)
        self.setPlaceholderText("Write a message")
        self.setTabChangesFocus(True)
        self.wrap_for(0)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.document().setDocumentMargin(2)
        self.textChanged.connect(self.fit)
        self.fit()

    def wrap_for(self, length: int) -> None:
        """Wrap at words; a long text anywhere, because Qt looks for words in quadratic time where there are none."""
        wanted = QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere
        if length > _WRAPPED_AT_WORDS:
            wanted = QTextOption.WrapMode.WrapAnywhere
        if self.wordWrapMode() is not wanted:
            self.setWordWrapMode(wanted)

    @Slot()
    def fit(self) -> None:
        """Take the height of the text, up to a few lines."""
        self.wrap_for(self.document().characterCount())
        lines = min(_MOST_LINES, max(2, int(self.document().size().height())))
        self.setFixedHeight(lines * self.fontMetrics().lineSpacing() + 8)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Send on a bare Enter; leave everything else to the field."""
        bare = event.modifiers() in (Qt.KeyboardModifier.NoModifier, Qt.KeyboardModifier.KeypadModifier)
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and bare:
            self.entered.emit()
        else:
            super().keyPressEvent(event)

    def insertFromMimeData(self, source: QMimeData) -> None:
        """Paste text alone, never pictures or styles."""
        if source.hasText():
            self.wrap_for(self.document().characterCount() + len(source.text()))
            self.insertPlainText(source.text())


class Composer(QFrame):
    """The field, its button, and a line that says why sending is not possible just now."""

    sent = Signal(str)
    stop_asked = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        """Start ready to type, not yet ready to send."""
        super().__init__(parent)
        self.setObjectName("composer")
        self._entry = _Entry(self)
        self._entry.installEventFilter(self)
        self._state = QLabel(_HINT, self)
        self._state.setObjectName("dim")
        self._button = QPushButton("Send", self)
        self._button.setObjectName("main")
        self._button.setMinimumWidth(96)
        self._answering = False
        self._obstacle = ""
        self._passing = False
        self._suggested = ""
        self._waiting = False  # what is typed was entered, and goes out once the obstacle has passed
        below = QHBoxLayout()
        below.addWidget(self._state, 1)
        below.addWidget(self._button)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(14, 12, 12, 10)
        layout.setSpacing(6)
        layout.addWidget(self._entry)
        layout.addLayout(below)
        self.setFocusProxy(self._entry)
        self._entry.entered.connect(self._send)
        self._entry.textChanged.connect(self._edit)
        self._button.clicked.connect(self._press)
        self._refresh()

    @property
    def text(self) -> str:
        """What is typed."""
        return self._entry.toPlainText()

    def restore(self, text: str) -> None:
        """Put back a text that could not be sent, before what has been typed since."""
        typed = self.text
        self._entry.wrap_for(len(text) + len(typed))
        self._entry.setPlainText(f"{text}\n{typed}" if typed else text)
        self._entry.moveCursor(self._entry.textCursor().MoveOperation.End)

    @Slot(str)
    def suggest(self, text: str) -> None:
        """Offer a text to send: Enter sends it. It takes the place of an earlier suggestion, never of own words."""
        if self.text == self._suggested:
            self._entry.clear()
        self.restore(text)
        self._suggested = text
        self.setFocus()

    def set_obstacle(self, obstacle: str, *, passing: bool = False) -> None:
        """Say why a message cannot be sent now; empty where it can. What is entered waits for a `passing` obstacle."""
        self._obstacle = obstacle
        self._passing = passing and bool(obstacle)
        if self._waiting and not obstacle:
            self._send()
        self._waiting = self._waiting and self._passing
        self._refresh()

    def hold(self) -> None:
        """Keep an entered text that waits; it goes out when it is entered again."""
        self._waiting = False
        self._refresh()

    def set_answering(self, *, answering: bool) -> None:
        """Turn the button into Stop while an answer is coming."""
        self._answering = answering
        self._refresh()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Draw the frame's focus ring while the field has the focus."""
        if event.type() in (QEvent.Type.FocusIn, QEvent.Type.FocusOut):
            self.setProperty("focused", event.type() is QEvent.Type.FocusIn)
            self.style().unpolish(self)
            self.style().polish(self)
        return super().eventFilter(watched, event)

    @Slot()
    def _press(self) -> None:
        if self._answering:
            self.stop_asked.emit()
        else:
            self._send()

    @Slot()
    def _send(self) -> None:
        text = self.text
        if self._answering or not text.strip():
            return
        if self._obstacle:
            self._waiting = self._passing
            self._refresh()
            return
        self._waiting = False
        self._entry.clear()
        self.sent.emit(text)

    @Slot()
    def _edit(self) -> None:
        self._waiting = False
        self._refresh()

    @Slot()
    def _refresh(self) -> None:
        self._button.setText("Stop" if self._answering else "Send")
        self._button.setToolTip("Esc" if self._answering else "Enter")
        typed = not self._entry.document().isEmpty()  # cheap, also for a pasted megabyte
        possible = not self._obstacle or (self._passing and not self._waiting)
        self._button.setEnabled(self._answering or (typed and possible))
        hint = _ANSWERING if self._answering else _HINT
        self._state.setText(
            f"{self._obstacle}; your message will go out then" if self._waiting else self._obstacle or hint
        )
