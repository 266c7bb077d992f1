"""The card that opens over a token: its fate and why, its figures, and both models' likeliest tokens as paired bars."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from PySide6.QtCore import QPoint, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QBrush, QColor, QFont, QFontDatabase, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QFrame, QGridLayout, QLabel, QSizePolicy, QVBoxLayout, QWidget

from draftlight.engine.events import Alternative, RoundVerified, TokenFate, TokenReport
from draftlight.ui.chat.token_facts import figures, probability, reason, round_figures, title, visible
from draftlight.ui.chat.token_runs import Place
from draftlight.ui.chat.transcript_document import ShownMessage
from draftlight.ui.theme import Theme

_WIDTH = 400
_GAP = 6
_FEWEST_ROWS = 2


@dataclass(frozen=True, slots=True)
class CardContent:
    """A token and what its round and its answer say of it; `verified` is None while the round is not over."""

    token: TokenReport
    round: int
    greedy: bool
    verified: RoundVerified | None = None


def card_content(place: Place[ShownMessage]) -> CardContent:
    """Gather what the card shows of a place: the token, and its round where that is known already."""
    span = place.owner.spans[place.number]
    rounds = place.owner.trace.rounds if place.owner.trace is not None else ()
    entry = bisect_left(rounds, span.round, key=lambda verified: verified.round)
    known = entry < len(rounds) and rounds[entry].round == span.round
    return CardContent(span.report, span.round, place.owner.greedy, rounds[entry] if known else None)


class ProbabilityBars(QWidget):
    """Both models' likeliest tokens at one place: the target's bar solid, the draft's hatched below it."""

    _ROW = 27
    _TEXT = 118
    _VALUE = 96

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        """Start empty."""
        super().__init__(parent)
        self._theme = theme
        self._rows: list[tuple[str, float | None, float | None]] = []
        self._drafted = False
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Likeliest tokens of both models")

    def show_tops(self, target: Sequence[Alternative], draft: Sequence[Alternative], too_high: int = 0) -> None:
        """Show the union of both lists, the likeliest for the target first; at least so many pixels less of it."""
        by_target = {item.id: item for item in target}
        by_draft = {item.id: item for item in draft}
        self._drafted = bool(draft)
        self._rows = []
        for item in (*target, *(item for item in draft if item.id not in by_target)):
            p = by_target[item.id].probability if item.id in by_target else None
            q = by_draft[item.id].probability if item.id in by_draft else None
            self._rows.append((visible(item.text), p, q))
        del self._rows[max(_FEWEST_ROWS, len(self._rows) - ceil(too_high / self._ROW)) :]
        self.setAccessibleDescription("; ".join(self._sentence(row) for row in self._rows))
        self.setVisible(bool(self._rows))
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        """Return room for all rows and the key."""
        return QSize(_WIDTH - 40, self._ROW * len(self._rows) + 20 if self._rows else 0)

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw a key and one row a token."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        colours = self._theme.colours
        painter.setPen(QColor(colours.dim))
        key = QRect(self._TEXT, 0, self.width(), 16)
        meaning = "target solid, draft hatched" if self._drafted else "target; nothing was drafted here"
        painter.drawText(key, Qt.AlignmentFlag.AlignLeft, meaning)
        for number, (text, p, q) in enumerate(self._rows):
            top = 20 + number * self._ROW
            name = QRect(0, top, self._TEXT - 8, self._ROW - 6)
            painter.setPen(QColor(colours.text))
            shown = painter.fontMetrics().elidedText(text, Qt.TextElideMode.ElideRight, name.width())
            painter.drawText(name, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft, shown)
            self._draw_bar(painter, top if self._drafted else top + 6, p, hatched=False)
            if self._drafted:
                self._draw_bar(painter, top + 12, q, hatched=True)

    def _draw_bar(self, painter: QPainter, top: int, share: float | None, *, hatched: bool) -> None:
        colours = self._theme.colours
        room = self.width() - self._TEXT - self._VALUE
        width = max(2.0, room * share) if share else 0.0
        colour = QColor(colours.accent if not hatched else colours.dim)
        bar = QRectF(self._TEXT, top + 1, width, 9)
        if width:
            painter.setPen(QPen(colour, 1))
            painter.setBrush(QBrush(colour, Qt.BrushStyle.BDiagPattern if hatched else Qt.BrushStyle.SolidPattern))
            painter.drawRoundedRect(bar, 2, 2)
        painter.setPen(QColor(colours.dim))
        small = QFont(self.font())
        small.setPointSizeF(self.font().pointSizeF() * 0.82)
        painter.setFont(small)
        value = QRectF(self._TEXT + width + 6, top - 1, self._VALUE, 13)
        painter.drawText(
            value, Qt.AlignmentFlag.AlignVCenter, probability(share) if share is not None else "not among its top"
        )
        painter.setFont(self.font())

    @staticmethod
    def _sentence(row: tuple[str, float | None, float | None]) -> str:
        text, p, q = row
        parts = [f"{name} {probability(share)}" for name, share in (("target", p), ("draft", q)) if share is not None]
        return f"{text}: {', '.join(parts)}"


class TokenCard(QFrame):
    """Everything about one token. Takes no focus: it follows the mouse or the token that the keyboard is on."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        """Make the card, hidden, inside `parent`."""
        super().__init__(parent)
        self._around = parent
        self.setObjectName("card")
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setFixedWidth(_WIDTH)
        self._theme = theme
        self._chip = QLabel(self)
        self._chip.setTextFormat(Qt.TextFormat.PlainText)
        fixed = QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont)
        fixed.setPointSizeF(self.font().pointSizeF() * 1.3)
        self._chip.setFont(fixed)
        self._title = QLabel(self)
        self._title.setObjectName("title")
        self._reason = QLabel(self)
        self._reason.setWordWrap(True)
        self._bars = ProbabilityBars(theme, self)
        self._grid = QGridLayout()
        self._grid.setHorizontalSpacing(14)
        self._grid.setVerticalSpacing(3)
        self._grid.setColumnStretch(1, 1)
        for label in (self._title, self._reason):
            label.setTextFormat(Qt.TextFormat.PlainText)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(16, 14, 16, 14)
        layout.setSpacing(8)
        layout.addWidget(self._chip)
        layout.addWidget(self._title)
        layout.addWidget(self._reason)
        layout.addWidget(self._bars)
        layout.addLayout(self._grid)
        self.hide()

    def open_at(self, content: CardContent, place: QRect) -> None:
        """Show the content below `place` (in the parent's coordinates), or above it where there is no room below."""
        token = content.token
        self._chip.setText(visible(token.text))
        self._chip.setStyleSheet(self._chip_style(token.fate))
        self._title.setText(title(token))
        self._reason.setText(reason(token, content.verified, greedy=content.greedy))
        self._bars.show_tops(token.target_top, token.draft_top)
        rows = [*figures(token, greedy=content.greedy), *round_figures(token, content.round, content.verified)]
        self._fill_grid(rows)
        self.setAccessibleName(f"Token {visible(token.text)}: {self._title.text()}")
        self.setAccessibleDescription(" ".join((self._reason.text(), *(f"{name}: {value}." for name, value in rows))))
        self.adjustSize()
        too_high = self.height() - self._around.height() + 2 * _GAP
        if too_high > 0:
            self._bars.show_tops(token.target_top, token.draft_top, too_high)
            self.adjustSize()
        self._move_beside(place)
        self.show()
        self.raise_()

    def _chip_style(self, fate: TokenFate) -> str:
        drawn = self._theme.formats[fate]
        fill = drawn.background().color().name() if drawn.hasProperty(drawn.Property.BackgroundBrush) else "transparent"
        line = drawn.underlineColor().name()
        return (
            f"background: {fill}; color: {drawn.foreground().color().name()}; border: 1px solid {line};"
            "border-radius: 6px; padding: 3px 8px;"
        )

    def _fill_grid(self, rows: Sequence[tuple[str, str]]) -> None:
        while (item := self._grid.takeAt(0)) is not None:
            widget = item.widget()
            if widget is not None:
                widget.hide()
                widget.deleteLater()
        for number, (name, value) in enumerate(rows):
            label = QLabel(name, self)
            label.setObjectName("dim")
            shown = QLabel(value, self)
            shown.setTextFormat(Qt.TextFormat.PlainText)
            shown.setWordWrap(True)
            self._grid.addWidget(label, number, 0, Qt.AlignmentFlag.AlignTop)
            self._grid.addWidget(shown, number, 1)
            for made in (label, shown):
                made.show()  # else Qt shows it later, and an open card is measured without it

    def _move_beside(self, place: QRect) -> None:
        """Stand below the token, else above it, else at its side: never on it."""
        room = self._around.rect().adjusted(_GAP, _GAP, -_GAP, -_GAP)
        left = min(max(room.left(), place.left() - 20), room.right() - self.width())
        below, above = place.bottom() + _GAP, place.top() - _GAP - self.height()
        if below + self.height() <= room.bottom():
            top = below
        elif above >= room.top():
            top = above
        else:
            top = max(room.top(), min(below, room.bottom() - self.height()))
            right = place.right() + 2 * _GAP
            fits = right + self.width() <= room.right()
            left = right if fits else max(room.left(), place.left() - 2 * _GAP - self.width())
        self.move(QPoint(left, top))
