"""One live curve: a value over the tokens seen, with axes, the latest value in words, and where it should get to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QPainter, QPainterPath, QPaintEvent, QPalette, QPen
from PySide6.QtWidgets import QWidget

from draftlight.ui.forge.plot import Axis, Picture, Plot, rounded_axis
from draftlight.ui.forge.words import count, percent

_TICKS = 4
_MARKER = 3.5
_NOTHING = "no value yet"
_MOST_MARKERS = 60  # more would hide the line
_MANY = 50  # points, from which on the beginning is left out of a picture of them
_BEGINNING = 0.03  # of the tokens; a loss falls so far there that all that follows would look flat


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a curve shows. A share goes from 0 to 100 %; any other value gets an axis that fits."""

    name: str
    unit: str
    is_share: bool = False

    @property
    def label(self) -> Callable[[float], str]:
        """How a value is written."""
        return percent if self.is_share else "{:.2f}".format


LOSS = Meaning("Loss", "nats a token")
ACCEPTANCE = Meaning("Acceptance", "of held-out tokens foretold", is_share=True)


class Curve(Picture):
    """Draws points in the order of their tokens."""

    def __init__(self, meaning: Meaning, parent: QWidget | None = None) -> None:
        """Start without points."""
        super().__init__(f"{meaning.name}, a curve", parent)
        self._meaning = meaning
        self._points: tuple[tuple[int, float], ...] = ()
        self._expected: float | None = None
        self.show_points(())

    @property
    def points(self) -> Sequence[tuple[int, float]]:
        """What is drawn."""
        return self._points

    def show_points(self, points: Sequence[tuple[int, float]], expected: float | None = None) -> None:
        """Draw these points, and a dashed line at the value that is expected at the end."""
        self._points, self._expected = tuple(points), expected
        self.tell(self._in_words())

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw axes, the dashed line and the curve."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        plot = Plot(painter, QRectF(self.rect()), self._tokens(), self._values(), self.palette())
        plot.draw_axes()
        if self._expected is not None:
            self._draw_expected(painter, plot)
        if self._points:
            self._draw_curve(painter, plot)
        else:
            self._draw_nothing(painter, plot)
        self.draw_focus(painter)

    def _in_words(self) -> str:
        meaning = self._meaning
        if not self._points:
            return f"{meaning.name}: no value yet."
        (_, first), (n_tokens, last) = self._points[0], self._points[-1]
        begun = f", {meaning.label(first)} at first" if len(self._points) > 1 else ""
        expected = "" if self._expected is None else f" Expected in the end: {meaning.label(self._expected)}."
        return f"{meaning.name}: {meaning.label(last)} after {count(n_tokens)} tokens{begun}.{expected}"

    def _tokens(self) -> Axis:
        last = max((n_tokens for n_tokens, _ in self._points), default=0)
        return rounded_axis(0, last or 1_000, _TICKS, "tokens seen", _short)

    def _values(self) -> Axis:
        meaning = self._meaning
        latest = f": {meaning.label(self._points[-1][1])} {meaning.unit}" if self._points else ""
        name = f"{meaning.name}{latest}"
        if meaning.is_share:
            return Axis(0.0, 1.0, (0.0, 0.25, 0.5, 0.75, 1.0), name, percent)
        values = [value for _, value in self._shown()] or [0.0, 1.0]
        return rounded_axis(min(values), max(values), _TICKS, name, "{:g}".format)

    def _shown(self) -> Sequence[tuple[int, float]]:
        if self._meaning.is_share or len(self._points) < _MANY:
            return self._points
        begun = _BEGINNING * self._points[-1][0]
        return [point for point in self._points if point[0] >= begun]

    def _draw_nothing(self, painter: QPainter, plot: Plot) -> None:
        words = painter.fontMetrics().boundingRect(_NOTHING).toRectF().adjusted(-6, -2, 6, 2)
        words.moveCenter(plot.area.center())
        painter.fillRect(words, self.colour(QPalette.ColorRole.Window))
        painter.setPen(self.colour(QPalette.ColorRole.PlaceholderText))
        painter.drawText(words, Qt.AlignmentFlag.AlignCenter, _NOTHING)

    def _draw_expected(self, painter: QPainter, plot: Plot) -> None:
        assert self._expected is not None  # noqa: S101 - paintEvent has looked
        dim = self.colour(QPalette.ColorRole.PlaceholderText)
        painter.setPen(QPen(dim, 1.5, Qt.PenStyle.DashLine))
        height = plot.point(0, self._expected).y()
        painter.drawLine(QPointF(plot.area.left(), height), QPointF(plot.area.right(), height))
        painter.setPen(dim)
        line = painter.fontMetrics().height()
        above = QRectF(plot.area.left(), height - line - 1, plot.area.width() - 2, line)
        painter.drawText(above, Qt.AlignmentFlag.AlignRight, "expected")

    def _draw_curve(self, painter: QPainter, plot: Plot) -> None:
        accent = self.colour(QPalette.ColorRole.Accent)
        points = [plot.point(*point) for point in self._shown()]
        path = QPainterPath(points[0])
        for point in points[1:]:
            path.lineTo(point)
        painter.setPen(QPen(accent, 2))
        painter.drawPath(path)
        painter.setBrush(accent)
        for point in points if len(points) <= _MOST_MARKERS else points[-1:]:
            painter.drawEllipse(point, _MARKER, _MARKER)


def _short(n_tokens: float) -> str:
    """Return a number of tokens for an axis."""
    if n_tokens >= 1e6:  # noqa: PLR2004 - mega
        return f"{n_tokens / 1e6:g}M"
    return f"{n_tokens / 1e3:g}k" if n_tokens >= 1e3 else f"{n_tokens:g}"  # noqa: PLR2004 - kilo
