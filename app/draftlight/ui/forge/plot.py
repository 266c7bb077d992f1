"""What both kinds of picture share: axes with round numbers, in the font and the colours of the widget."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFocusEvent, QPainter, QPalette, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

_GAP = 6
_LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
_RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
_LINES_HIGH = 11  # a picture's height in lines of text


@dataclass(frozen=True, slots=True)
class Axis:
    """From `low` to `high`, with numbers at the ticks; `name` says of what."""

    low: float
    high: float
    ticks: tuple[float, ...]
    name: str
    label: Callable[[float], str] = "{:g}".format

    def share(self, value: float) -> float:
        """Return where the value lies, 0 at the low end and 1 at the high one."""
        return (value - self.low) / (self.high - self.low)


def rounded_axis(low: float, high: float, n_ticks: int, name: str, label: Callable[[float], str]) -> Axis:
    """Return an axis that holds both values, with about that many ticks at round numbers."""
    span = high - low if high > low else max(abs(high), 1.0)
    rough = span / max(1, n_ticks)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil((low + span) / step - 1e-9)
    ticks = tuple(n * step for n in range(first, last + 1))
    return Axis(ticks[0], ticks[-1], ticks, name, label)


class Plot:
    """The area inside the axes, and the way from values to points of the widget."""

    def __init__(self, painter: QPainter, around: QRectF, x: Axis, y: Axis, palette: QPalette) -> None:
        """Leave room for the numbers and names of both axes inside `around`."""
        self._painter, self._x, self._y, self._palette = painter, x, y, palette
        metrics = painter.fontMetrics()
        numbers = max(metrics.horizontalAdvance(y.label(tick)) for tick in y.ticks)
        last = metrics.horizontalAdvance(x.label(x.ticks[-1]))
        self._line = metrics.height()
        top = around.top() + self._line + _GAP
        bottom = around.bottom() - 2 * self._line - _GAP
        left, right = around.left() + numbers + 2 * _GAP, around.right() - max(_GAP, last / 2)
        self.area = QRectF(QPointF(left, top), QPointF(max(left + 1, right), max(top + 1, bottom)))

    def point(self, x: float, y: float) -> QPointF:
        """Return where these values lie."""
        area = self.area
        return QPointF(area.left() + area.width() * self._x.share(x), area.bottom() - area.height() * self._y.share(y))

    def draw_axes(self) -> None:
        """Draw lines, numbers and names."""
        painter, area, line = self._painter, self.area, self._line
        dim = self._palette.color(QPalette.ColorRole.PlaceholderText)
        grid = QPen(self._palette.color(QPalette.ColorRole.Mid), 1)
        for tick in self._y.ticks:
            height = self.point(self._x.low, tick).y()
            painter.setPen(grid)
            painter.drawLine(QPointF(area.left(), height), QPointF(area.right(), height))
            painter.setPen(dim)
            numbers = QRectF(0, height - line / 2, area.left() - _GAP, line)
            painter.drawText(numbers, _RIGHT, self._y.label(tick))
        painter.setPen(QPen(dim, 1))
        painter.drawLine(area.bottomLeft(), area.bottomRight())
        self._draw_numbers_below()
        below = QRectF(area.left(), area.bottom() + line + 2, area.width(), line + 2)
        above = QRectF(0, area.top() - line - _GAP, area.right(), line)
        for name, room, side in ((self._x.name, below, _RIGHT), (self._y.name, above, _LEFT)):
            shown = painter.fontMetrics().elidedText(name, Qt.TextElideMode.ElideRight, int(room.width()))
            painter.drawText(room, side, shown)

    def _draw_numbers_below(self) -> None:
        """Draw the numbers of the lower axis, as many as have room."""
        free = self.area.left() - 2 * _GAP
        for tick in self._x.ticks:
            text = self._x.label(tick)
            width = self._painter.fontMetrics().horizontalAdvance(text)
            left = self.point(tick, self._y.low).x() - width / 2
            if left >= free:
                self._painter.drawText(
                    QRectF(left - 1, self.area.bottom() + 2, width + 2, self._line), Qt.AlignmentFlag.AlignCenter, text
                )
                free = left + width + 2 * _GAP


class Picture(QWidget):
    """A drawing that the keyboard reaches, so that a screen reader can tell its twin in words."""

    def __init__(self, name: str, parent: QWidget | None = None) -> None:
        """Name the picture; it has nothing to show yet."""
        super().__init__(parent)
        self.setAccessibleName(name)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)

    @property
    def summary(self) -> str:
        """What the picture says, in words."""
        return self.accessibleDescription()

    def tell(self, summary: str) -> None:
        """Say in words what the picture shows from now on, and draw it."""
        self.setAccessibleDescription(summary)
        self.setToolTip(summary)
        self.update()

    def colour(self, role: QPalette.ColorRole) -> QColor:
        """Return a colour of the look in force."""
        return self.palette().color(role)

    def sizeHint(self) -> QSize:
        """Return a size that grows with the font."""
        line = self.fontMetrics().height()
        return QSize(22 * line, _LINES_HIGH * line)

    def minimumSizeHint(self) -> QSize:
        """Return the size below which numbers collide."""
        line = self.fontMetrics().height()
        return QSize(13 * line, 9 * line)

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Show the frame."""
        super().focusInEvent(event)
        self.update()

    def draw_focus(self, painter: QPainter) -> None:
        """Draw the frame of what has the keyboard."""
        if not self.hasFocus():
            return
        painter.setPen(QPen(self.colour(QPalette.ColorRole.Accent), 2))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(1, 1, -1, -1), 6, 6)
