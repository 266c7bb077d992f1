"""The conversation as it is read: scrolls, copies, and tells about the token under the mouse or the keyboard."""

import time
from collections.abc import Callable, Sequence
from typing import Any, cast

from PySide6.QtCore import QEvent, QMimeData, QPoint, QPointF, QRect, QRectF, Qt, QTimer, QUrl, Signal, Slot
from PySide6.QtGui import (
    QColor,
    QFocusEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
    QTextCursor,
    QTextLine,
)
from PySide6.QtWidgets import QFrame, QTextBrowser, QTextEdit, QWidget

from draftlight.settings import Highlight
from draftlight.ui.chat.token_card import TokenCard, card_content
from draftlight.ui.chat.token_runs import Place
from draftlight.ui.chat.transcript_document import ShownMessage, TranscriptDocument
from draftlight.ui.theme import Theme

FLUSH_EVERY_MS = 33
FLUSH_BUDGET_S = 0.008
_COLUMN = 860  # widest column of text, in pixels
_LEAST_MARGIN = 28
_HOVER_MS = 120
_TEXT_SIZE = 1.2  # of the window's own
_AT_BOTTOM = 6  # pixels
_BUBBLE = 10.0


class TranscriptView(QTextBrowser):
    """One conversation, read-only, in one document."""

    drawn = Signal()  # the live answer is on the screen up to its present end

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        """Show nothing yet."""
        super().__init__(parent)
        self._theme = theme
        self.setAccessibleName("Conversation")
        self.setAccessibleDescription("Left and right arrow move from token to token, Enter tells about it")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setUndoRedoEnabled(False)
        self.setOpenLinks(False)
        self.setMouseTracking(True)
        self.viewport().setMouseTracking(True)
        self.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        font = self.font()
        font.setPointSizeF(font.pointSizeF() * _TEXT_SIZE)
        self.setFont(font)
        self._writer = TranscriptDocument(self.document(), theme)
        self._card = TokenCard(theme, self)
        self._pointed: Place[ShownMessage] | None = None
        self._flush = QTimer(self)
        self._flush.setTimerType(Qt.TimerType.PreciseTimer)
        self._flush.setInterval(FLUSH_EVERY_MS)
        self._flush.timeout.connect(self.flush_now)
        self._hover = QTimer(self)
        self._hover.setSingleShot(True)
        self._hover.setInterval(_HOVER_MS)
        self._hover.timeout.connect(self._open_card)
        self._following = True
        self.verticalScrollBar().valueChanged.connect(self.close_card)
        self.verticalScrollBar().valueChanged.connect(self._note_place)
        self.verticalScrollBar().rangeChanged.connect(self._follow)
        theme.changed.connect(self._draw_again)

    @property
    def messages(self) -> Sequence[ShownMessage]:
        """The messages shown, oldest first."""
        return self._writer.messages

    @property
    def highlight(self) -> Highlight:
        """Which tokens are marked."""
        return self._writer.mode

    def set_highlight(self, mode: Highlight) -> None:
        """Mark other tokens."""
        if mode is not self._writer.mode:
            self._writer.mode = mode
            self._draw_again()

    def show_messages(self, messages: Sequence[ShownMessage]) -> None:
        """Show another conversation, from its end."""
        self.close_card()
        self._writer.clear()
        self._fit_column()  # an emptied document has lost its margins
        for message in messages:
            self._writer.append(message)
        self._to_bottom()

    def add_message(self, message: ShownMessage) -> None:
        """Add a finished message and show it."""
        self._writer.append(message)
        self._to_bottom()

    def open_answer(self, message: ShownMessage, waiting: str = "") -> None:
        """Add an answer that is coming; `waiting` stands in its place until the first token."""
        self._writer.open_answer(message)
        self._writer.set_waiting(waiting)
        self._writer.flush()
        self._to_bottom()

    def set_waiting(self, waiting: str) -> None:
        """Change the sentence that stands in place of the coming answer."""
        self._writer.set_waiting(waiting)
        self._start_flushing()

    def spans_changed(self, first: int) -> None:
        """Note that the coming answer's tokens differ from that number on; drawn on the next tick."""
        self._writer.mark(first)
        self._start_flushing()

    def freeze(self) -> None:
        """Show the coming answer as ended at once; what the engine still says is drawn by close_answer()."""
        self._keeping_place(self._writer.freeze)

    def close_answer(self) -> None:
        """Draw the rest of the answer and its notes."""
        self._flush.stop()
        self._keeping_place(self._writer.close_answer)
        self.drawn.emit()

    def drop_messages(self, number: int) -> None:
        """Remove the messages from that number on."""
        self.close_card()
        self._writer.drop_messages(number)

    @Slot()
    def flush_now(self) -> None:
        """Draw what has come, within the budget of one tick."""
        deadline = time.perf_counter() + FLUSH_BUDGET_S
        done = self._keeping_place(lambda: self._writer.flush(deadline))
        if done:
            self._flush.stop()
            self.drawn.emit()

    def place_at(self, point: QPoint) -> Place[ShownMessage] | None:
        """Return the token under a point of the viewport, None where there is none."""
        x = point.x() + self.horizontalScrollBar().value()
        y = point.y() + self.verticalScrollBar().value()
        block = self.cursorForPosition(point).block()
        layout = block.layout()
        inside = QPointF(x, y) - layout.position()
        for number in range(layout.lineCount()):
            line = layout.lineAt(number)
            if line.y() <= inside.y() < line.y() + line.height():
                if not line.naturalTextRect().left() <= inside.x() <= line.naturalTextRect().right():
                    return None
                column = line.xToCursor(inside.x(), QTextLine.CursorPosition.CursorOnCharacter)
                return self._writer.index.at(block.position() + column)
        return None

    def loadResource(self, _type: int, _name: QUrl | str) -> Any:  # noqa: ANN401 - Qt's variant
        """Load nothing: what a model writes must not reach files or the network."""
        return None

    def createMimeDataFromSelection(self) -> QMimeData:
        """Copy what is part of the conversation: no rejected, unjudged or pending text."""
        cursor = self.textCursor()
        start, end = cursor.selectionStart(), cursor.selectionEnd()
        units = cursor.selectedText().encode("utf-16-le", "surrogatepass")
        kept: list[bytes] = []
        place = start
        for first, last in self._writer.index.uncopied(start, end):
            kept.append(units[2 * (place - start) : 2 * (first - start)])
            place = last
        kept.append(units[2 * (place - start) :])
        mime = QMimeData()
        text = b"".join(kept).decode("utf-16-le", "replace")
        mime.setText(text.replace("\u2029", "\n").replace("\u2028", "\n").replace("\u00a0", " "))
        return mime

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Open the card of the token under the mouse after a moment."""
        super().mouseMoveEvent(event)
        if event.buttons() != Qt.MouseButton.NoButton:
            self.close_card()
            return
        place = self.place_at(event.position().toPoint())
        if place == self._pointed:
            return
        self.close_card()
        self._pointed = place
        if place is not None:
            self._hover.start()

    def leaveEvent(self, event: Any) -> None:  # noqa: ANN401 - PySide's stubs disagree on the event's class
        """Close the card when the mouse leaves."""
        super().leaveEvent(event)
        self.close_card()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """Close the card and the keyboard's mark."""
        super().focusOutEvent(event)
        self.close_card()

    def event(self, event: QEvent) -> bool:
        """Keep Escape from the window's Stop while it has a card to close."""
        if event.type() is QEvent.Type.ShortcutOverride and self._card.isVisible():
            pressed = cast("QKeyEvent", event)
            if pressed.key() == Qt.Key.Key_Escape:
                event.accept()
                return True
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Move from token to token with Left and Right, tell about it with Enter, close the card with Escape."""
        bare = event.modifiers() in (Qt.KeyboardModifier.NoModifier, Qt.KeyboardModifier.KeypadModifier)
        key = event.key()
        if bare and key in (Qt.Key.Key_Left, Qt.Key.Key_Right):
            self._step(-1 if key == Qt.Key.Key_Left else 1)
        elif bare and key in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self._pointed is not None:
            self._open_card()
        elif key == Qt.Key.Key_Escape and self._card.isVisible():
            self.close_card()
        else:
            super().keyPressEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Keep the column of text at a readable width, in the middle."""
        super().resizeEvent(event)
        self._fit_column()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the person's messages on a rounded ground, then the text."""
        painter = QPainter(self.viewport())
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(self._theme.colours.raised))
        for message in self._writer.messages:
            if message.from_person:
                ground = self._ground_of(message)
                if ground.intersects(QRectF(event.rect())):
                    painter.drawRoundedRect(ground, _BUBBLE, _BUBBLE)
        painter.end()
        super().paintEvent(event)

    @Slot()
    def close_card(self) -> None:
        """Close the card and forget what was pointed at."""
        self._hover.stop()
        self._card.hide()
        self._pointed = None
        self.setExtraSelections([])

    @Slot()
    def _open_card(self) -> None:
        place = self._pointed
        if place is None or place.number >= len(place.owner.spans):
            return
        self._mark(place)
        self._card.open_at(card_content(place), self._rectangle(place).translated(self.viewport().pos()))

    @Slot()
    def _draw_again(self) -> None:
        """Write everything anew; the reader keeps the place and the selection."""
        self.close_card()
        at_bottom = self._at_bottom()
        top = self.cursorForPosition(QPoint(self.viewport().width() // 2, 0))
        above = self.cursorRect(top).top()
        own = self.textCursor()
        anchors = [self._writer.anchor_at(place) for place in (top.position(), own.anchor(), own.position())]
        self._writer.rebuild()
        self._fit_column()
        places = [0 if anchor is None else self._writer.position_of(anchor) for anchor in anchors]
        self._select(places[1], places[2])
        top.setPosition(places[0])
        if at_bottom:
            self._to_bottom()
        else:
            bar = self.verticalScrollBar()
            bar.setValue(bar.value() + self.cursorRect(top).top() - above)
        self.viewport().update()

    def _step(self, direction: int) -> None:
        """Point at the next token that has text, starting at the last one."""
        index = self._writer.index
        if not len(index):
            return
        entry = len(index) if self._pointed is None else index.entry_near(self._pointed.start)
        if self._pointed is None and direction > 0:
            entry = len(index) - 2
        while 0 <= (entry := entry + direction) < len(index):
            place = index.entry(entry)
            if place.end > place.start and place.number < len(place.owner.spans):
                was_open = self._card.isVisible()
                self._pointed = place
                self._mark(place)
                self._scroll_to(place)
                self._pointed = place
                self._mark(place)
                if was_open:
                    self._open_card()
                return

    def _mark(self, place: Place[ShownMessage]) -> None:
        selection = QTextEdit.ExtraSelection()
        cursor = QTextCursor(self.document())
        cursor.setPosition(place.start)
        cursor.setPosition(place.end, QTextCursor.MoveMode.KeepAnchor)
        selection.cursor = cursor
        drawn = cursor.charFormat()
        drawn.setBackground(QColor(self._theme.colours.selection))
        selection.format = drawn
        self.setExtraSelections([selection])

    def _scroll_to(self, place: Place[ShownMessage]) -> None:
        rectangle = self._rectangle(place)
        bar = self.verticalScrollBar()
        if rectangle.top() < 0:
            bar.setValue(bar.value() + rectangle.top() - _LEAST_MARGIN)
        elif rectangle.bottom() > self.viewport().height():
            bar.setValue(bar.value() + rectangle.bottom() - self.viewport().height() + _LEAST_MARGIN)

    def _rectangle(self, place: Place[ShownMessage]) -> QRect:
        """Return where a token's first line stands in the viewport."""
        cursor = QTextCursor(self.document())
        cursor.setPosition(place.start)
        start = self.cursorRect(cursor)
        cursor.setPosition(place.end)
        end = self.cursorRect(cursor)
        return start.united(end) if start.top() == end.top() else start

    def _ground_of(self, message: ShownMessage) -> QRectF:
        """Return what lies behind a person's message, in the viewport."""
        document = self.document()
        first = document.findBlock(message.start)
        last = document.findBlock(message.end)
        layout = document.documentLayout()
        box = layout.blockBoundingRect(first).united(layout.blockBoundingRect(last))
        box.translate(0, -self.verticalScrollBar().value())
        margin = document.rootFrame().frameFormat().leftMargin()
        box.setLeft(margin - 16)
        box.setRight(self.viewport().width() - document.rootFrame().frameFormat().rightMargin() + 16)
        return box.adjusted(0, -9, 0, 9)

    def _fit_column(self) -> None:
        margin = max(_LEAST_MARGIN, (self.viewport().width() - _COLUMN) // 2)
        frame = self.document().rootFrame().frameFormat()
        if frame.leftMargin() != margin or frame.topMargin() != _LEAST_MARGIN:
            frame.setLeftMargin(margin)
            frame.setRightMargin(margin)
            frame.setTopMargin(_LEAST_MARGIN)
            frame.setBottomMargin(_LEAST_MARGIN)
            self.document().rootFrame().setFrameFormat(frame)

    def _start_flushing(self) -> None:
        if not self._flush.isActive():
            self._flush.start()

    def _keeping_place(self, change: Callable[[], bool | None]) -> bool | None:
        """Make a change; keep the reader's selection, and stay at the bottom if the reader is there."""
        at_bottom, place = self._at_bottom(), self.verticalScrollBar().value()
        before = self.textCursor()
        anchor, position = before.anchor(), before.position()
        result = change()
        if before.hasSelection() and self.textCursor().position() != position:
            self._select(anchor, position)  # text added at the selection's end must not extend it
            self.verticalScrollBar().setValue(place)
        if at_bottom:
            self._to_bottom()
        return result

    def _select(self, anchor: int, position: int) -> None:
        end = self.document().characterCount() - 1
        cursor = self.textCursor()
        cursor.setPosition(min(anchor, end))
        cursor.setPosition(min(position, end), QTextCursor.MoveMode.KeepAnchor)
        self.setTextCursor(cursor)

    def _at_bottom(self) -> bool:
        bar = self.verticalScrollBar()
        return bar.value() >= bar.maximum() - _AT_BOTTOM

    @Slot()
    def _note_place(self) -> None:
        self._following = self._at_bottom()

    @Slot()
    def _follow(self) -> None:
        """Stay at the end while Qt lays a long text out, which goes on after it was put there."""
        if self._following:
            self._to_bottom()

    def _to_bottom(self) -> None:
        bar = self.verticalScrollBar()
        bar.setValue(bar.maximum())
