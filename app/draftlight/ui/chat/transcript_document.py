"""Writes messages and coloured tokens into one QTextDocument. Knows where each token stands; not how it is looked at.

Only the last answer ever changes, so only the document's tail is ever replaced.
"""

import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from PySide6.QtCore import Qt
from PySide6.QtGui import QBrush, QColor, QFont, QTextBlockFormat, QTextCharFormat, QTextCursor, QTextDocument

from draftlight.chat.trace import TokenSpan, Trace
from draftlight.engine.events import COMMITTED_FATES, TokenFate
from draftlight.settings import Highlight
from draftlight.ui.chat.token_runs import Piece, TokenIndex, displayable, joins_cleanly, runs, utf16_length
from draftlight.ui.theme import Theme

LONGEST_PARAGRAPH = 8000  # UTF-16 units, about 2,000 tokens: beyond that each insertion lays out too much again
LONGEST_SHOWN_TEXT = 20_000  # characters of a person's message; a pasted megabyte would be one slow paragraph
_CHUNK = 64  # tokens between two looks at the clock
_FARTHEST_STEP_BACK = 32  # tokens in which to look for a border that no character crosses
_LINE_BREAK = "⏎"
_LINE_HEIGHT = 150.0  # per cent
_PROPORTIONAL = int(QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)


@dataclass(slots=True, eq=False)
class ShownMessage:
    """A message as the transcript shows it. `trace` has an answer's tokens, `text` stands where there is none.

    `greedy` says that the answer was made at temperature 0, where a token's score is its logit. `mode` is its Mode,
    empty while that is not known.
    """

    heading: str
    text: str = ""
    trace: Trace | None = None
    from_person: bool = False
    greedy: bool = False
    mode: str = ""
    message_id: int | None = None
    remarks: tuple[str, ...] = ()  # above the text: what the model does not see
    notes: tuple[str, ...] = ()  # below it: how it ended, its figures
    start: int = 0  # the places in the document are the writer's
    body: int = 0
    end: int = 0

    @property
    def spans(self) -> Sequence[TokenSpan]:
        """The answer's tokens."""
        return () if self.trace is None else self.trace.spans


@dataclass(frozen=True, slots=True)
class Anchor:
    """A place in the conversation that a rebuild does not move: UTF-16 units into a token, or into the message."""

    message: int
    token: int | None
    offset: int
    from_end: bool = False  # counted from the message's end: it lies in the notes


@dataclass(slots=True)
class _Live:
    """The answer that is being written."""

    message: ShownMessage
    drawn: int = 0  # tokens in the document
    dirty: int = 0  # the first token that differs from what is drawn
    waiting: str = ""
    waiting_drawn: str = ""
    frozen: bool = False


@dataclass(slots=True)
class _Formats:
    """The formats that are not those of tokens."""

    heading: QTextCharFormat = field(default_factory=QTextCharFormat)
    note: QTextCharFormat = field(default_factory=QTextCharFormat)
    person: QTextCharFormat = field(default_factory=QTextCharFormat)


class TranscriptDocument:
    """The whole conversation in one document."""

    def __init__(self, document: QTextDocument, theme: Theme) -> None:
        """Write into `document` in the theme's formats; call rebuild() when they change."""
        self._document = document
        self._theme = theme
        self._formats = _Formats()
        self._live: _Live | None = None
        self.index: TokenIndex[ShownMessage] = TokenIndex()
        self.messages: list[ShownMessage] = []
        self.mode = Highlight.ALL
        self._take_formats()

    @property
    def live(self) -> ShownMessage | None:
        """The answer that is being written, if any."""
        return self._live.message if self._live else None

    def clear(self) -> None:
        """Forget all messages."""
        self._document.clear()
        self.index.clear()
        self.messages.clear()
        self._live = None

    def rebuild(self) -> None:
        """Write everything again: formats or highlight mode changed."""
        messages, live = list(self.messages), self._live
        self.clear()
        self._take_formats()
        for message in messages:
            if live is not None and message is live.message:
                self.open_answer(message)
                self.set_waiting(live.waiting)
                self.flush()
                if live.frozen:
                    self.freeze()
            else:
                self.append(message)

    def append(self, message: ShownMessage) -> None:
        """Add a finished message."""
        self._begin(message)
        if message.spans:
            self._live = _Live(message)
            self.flush()
            self._live = None
        else:
            self._insert_plain(message)
        self._end(message)

    def open_answer(self, message: ShownMessage) -> None:
        """Add an answer whose trace will grow; mark() and flush() bring them in, close_answer() ends it."""
        self._begin(message)
        self._live = _Live(message)

    def mark(self, first: int) -> None:
        """Note that the live answer's tokens differ from number `first` on."""
        if self._live is not None:
            self._live.dirty = min(self._live.dirty, first)

    def set_waiting(self, text: str) -> None:
        """Show a sentence in place of the live answer until its first token comes."""
        if self._live is not None:
            self._live.waiting = text

    def freeze(self) -> None:
        """Stop drawing the live answer and show it as ended, before the engine has come to its end."""
        if self._live is not None and not self._live.frozen:
            self.flush()
            self._live.frozen = True
            self._end(self._live.message)

    def close_answer(self) -> None:
        """Draw what is left of the live answer and its notes."""
        if self._live is None:
            return
        message = self._live.message
        if self._live.frozen:
            self._live.frozen = False
            self._delete_from(message.end)
        self._live.waiting = ""
        self.flush()
        if not message.spans and message.text:
            self._insert_plain(message)
        self._live = None
        self._end(message)

    def drop_messages(self, number: int) -> None:
        """Remove the messages from that number on."""
        if number >= len(self.messages):
            return
        start = self.messages[number].start
        if self._live is not None and self._live.message in self.messages[number:]:
            self._live = None
        del self.messages[number:]
        if number:
            self._delete_from(start - 1)
        else:
            self.clear()

    def anchor_at(self, position: int) -> Anchor | None:
        """Return what stands at that place, None where nothing does."""
        number = bisect_right(self.messages, position, key=lambda message: message.start) - 1
        if number < 0:
            return None
        message = self.messages[number]
        entry = self.index.entry_near(position)
        if entry >= 0 and (place := self.index.entry(entry)).owner is message and position <= place.end:
            return Anchor(number, place.number, position - place.start)
        from_end = position >= message.end > message.body
        return Anchor(number, None, position - (message.end if from_end else message.start), from_end=from_end)

    def position_of(self, anchor: Anchor) -> int:
        """Return where that stands now. A token that is no longer shown gives way to the one before it."""
        message = self.messages[anchor.message]
        if anchor.token is None:
            position = (message.end if anchor.from_end else message.start) + anchor.offset
            return min(position, self._document.characterCount() - 1)

        def number_of(entry: int) -> int:
            place = self.index.entry(entry)
            return place.number if place.owner is message else len(message.spans)

        entries = range(self.index.entry_near(message.body - 1) + 1, len(self.index))
        shown = bisect_right(entries, anchor.token, key=number_of)
        if shown == 0:
            return message.body
        place = self.index.entry(entries[shown - 1])
        return min(place.end, place.start + anchor.offset)

    def flush(self, deadline: float | None = None) -> bool:
        """Bring the live answer's tail up to date until the deadline (time.perf_counter); tell whether all is drawn."""
        live = self._live
        if live is None or live.frozen:
            return True
        spans = live.message.spans
        if live.dirty >= len(spans) and live.drawn == len(spans) and live.waiting == live.waiting_drawn:
            return True
        cursor = self._cursor()
        cursor.beginEditBlock()
        self._rewind(live, cursor)
        while live.drawn < len(spans):
            self._insert_tokens(live, cursor)
            if deadline is not None and time.perf_counter() > deadline:
                break
        if not spans and live.waiting != live.waiting_drawn:
            cursor.insertText(live.waiting, self._formats.note)
            live.waiting_drawn = live.waiting
        cursor.endEditBlock()
        live.dirty = live.drawn
        return live.drawn == len(spans)

    def _rewind(self, live: _Live, cursor: QTextCursor) -> None:
        """Delete the tail that is no longer right, back to a border that no character crosses."""
        if live.waiting_drawn:
            self._delete_from(live.message.body)
            live.waiting_drawn = ""
        spans = live.message.spans
        first = min(live.dirty, live.drawn, len(spans))
        for _ in range(_FARTHEST_STEP_BACK):
            if first in (0, len(spans)) or joins_cleanly(spans[first - 1].text, spans[first].text):
                break
            first -= 1
        if first < live.drawn:
            position = self.index.drop_tokens(live.message, first)
            if position is not None:
                self._delete_from(position)
            live.drawn = first
        cursor.movePosition(QTextCursor.MoveOperation.End)

    def _insert_tokens(self, live: _Live, cursor: QTextCursor) -> None:
        """Insert the next chunk of tokens, all in one paragraph or with the paragraphs that they bring themselves."""
        spans, first = live.message.spans, live.drawn
        last = min(first + _CHUNK, len(spans))
        for _ in range(_FARTHEST_STEP_BACK):
            if last == len(spans) or joins_cleanly(spans[last - 1].text, spans[last].text):
                break
            last += 1
        if cursor.positionInBlock() > LONGEST_PARAGRAPH:
            self.index.add(live.message, first, cursor.position(), 1, copied=False)
            cursor.insertBlock()
        position = cursor.position()
        pieces: list[Piece] = []
        for number in range(first, last):
            span = spans[number]
            fate = self._drawn_fate(span.fate)
            if fate is None:
                continue
            committed = span.fate in COMMITTED_FATES
            text = displayable(span.text)
            if not committed:
                text = text.replace("\n", _LINE_BREAK)  # a break that the answer has not must not break its lines
            length = utf16_length(text)
            self.index.add(live.message, number, position, length, copied=committed)
            position += length
            pieces.append(Piece(text, fate))
        for run in runs(pieces):
            cursor.insertText(run.text, self._theme.formats[run.fate])
        live.drawn = last

    def _drawn_fate(self, fate: TokenFate) -> TokenFate | None:
        """Return the fate a token is drawn in under the present mode, None where it is not shown."""
        if self.mode is Highlight.ALL:
            return fate
        if fate not in COMMITTED_FATES:
            return None
        marked = self.mode is Highlight.ACCEPTED and fate is TokenFate.ACCEPTED
        return fate if marked else TokenFate.PLAIN

    def _begin(self, message: ShownMessage) -> None:
        cursor = self._cursor()
        cursor.beginEditBlock()
        heading = QTextBlockFormat()
        heading.setTopMargin(26.0 if self.messages else 10.0)
        heading.setBottomMargin(4.0)
        if self.messages:
            cursor.insertBlock(heading)
        else:
            cursor.setBlockFormat(heading)
        message.start = cursor.position()
        cursor.insertText(displayable(message.heading), self._formats.heading)
        for remark in message.remarks:
            self._insert_note(cursor, remark)
        body = QTextBlockFormat()
        body.setLineHeight(_LINE_HEIGHT, _PROPORTIONAL)
        cursor.insertBlock(body, self._theme.formats[TokenFate.PLAIN])
        message.body = message.end = cursor.position()
        cursor.endEditBlock()
        self.messages.append(message)

    def _insert_plain(self, message: ShownMessage) -> None:
        text = message.text
        if len(text) > LONGEST_SHOWN_TEXT:
            left = len(text) - LONGEST_SHOWN_TEXT
            text = f"{text[:LONGEST_SHOWN_TEXT]} … ({left:,} more characters; all of them are saved and were sent)"
        self._cursor().insertText(displayable(text), self._formats.person)

    def _end(self, message: ShownMessage) -> None:
        cursor = self._cursor()
        message.end = cursor.position()
        cursor.beginEditBlock()
        for note in message.notes:
            self._insert_note(cursor, note)
        cursor.endEditBlock()

    def _insert_note(self, cursor: QTextCursor, note: str) -> None:
        block = QTextBlockFormat()
        block.setTopMargin(6.0)
        cursor.insertBlock(block, self._formats.note)
        cursor.insertText(displayable(note), self._formats.note)

    def _cursor(self) -> QTextCursor:
        """Return a cursor at the end, apart from the reader's own."""
        cursor = QTextCursor(self._document)
        cursor.movePosition(QTextCursor.MoveOperation.End)
        return cursor

    def _delete_from(self, position: int) -> None:
        cursor = QTextCursor(self._document)
        cursor.setPosition(position)
        kept = cursor.blockFormat()
        cursor.movePosition(QTextCursor.MoveOperation.End, QTextCursor.MoveMode.KeepAnchor)
        cursor.removeSelectedText()
        if cursor.blockFormat() != kept:  # setting it always would count as a change of the whole paragraph
            cursor.setBlockFormat(kept)
        self.index.drop_from(position)

    def _take_formats(self) -> None:
        colours = self._theme.colours
        self._formats.heading.setForeground(QBrush(QColor(colours.dim)))
        self._formats.heading.setFontWeight(QFont.Weight.DemiBold)
        self._formats.note.setForeground(QBrush(QColor(colours.dim)))
        self._formats.person.setForeground(QBrush(QColor(colours.text)))
        self._document.setDefaultStyleSheet("")
        option = self._document.defaultTextOption()
        option.setWrapMode(option.WrapMode.WrapAtWordBoundaryOrAnywhere)
        option.setAlignment(Qt.AlignmentFlag.AlignLeading)
        self._document.setDefaultTextOption(option)
