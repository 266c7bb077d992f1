"""The picture of an outlook: at each draft length what a round costs, against the tokens it is expected to bring."""

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QBrush, QPainter, QPaintEvent, QPalette, QPen
from PySide6.QtWidgets import QWidget

from draftlight.forge.reports import Outlook
from draftlight.ui.forge.plot import Axis, Picture, Plot, rounded_axis
from draftlight.ui.forge.words import ratio

_TICKS = 4
_BAR = 0.6  # of the room between two draft lengths
_MARKER = 4.5


class Staircase(Picture):
    """Bars: the verify, full, and the drafting, hatched. Rings on a line: tokens. Where a ring is above, it pays."""

    def __init__(self, parent: QWidget | None = None) -> None:
        """Start without an outlook."""
        super().__init__("What a round costs and what it brings, a picture", parent)
        self._outlook: Outlook | None = None

    def show_outlook(self, outlook: Outlook) -> None:
        """Draw this outlook."""
        self._outlook = outlook
        rows = [
            f"K = {k}: costs {cost + k * outlook.draft_cost:.2f}, brings {_tokens(outlook, k):.2f} tokens, "
            f"{ratio(_tokens(outlook, k) / (cost + k * outlook.draft_cost))}"
            for k, cost in enumerate(outlook.verify_costs)
            if k
        ]
        self.tell("In plain steps of the target:\n" + "\n".join(rows))

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw the bars and the line."""
        if self._outlook is None:
            return
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        line = painter.fontMetrics().height()
        around = QRectF(self.rect()).adjusted(0, line + 4, 0, 0)
        plot = Plot(painter, around, *self._axes(self._outlook), self.palette())
        plot.draw_axes()
        self._draw_bars(painter, plot, self._outlook)
        self._draw_tokens(painter, plot, self._outlook)
        self._draw_legend(painter)
        self.draw_focus(painter)

    def _axes(self, outlook: Outlook) -> tuple[Axis, Axis]:
        lengths = range(len(outlook.verify_costs))
        costs = [cost + k * outlook.draft_cost for k, cost in enumerate(outlook.verify_costs)]
        highest = max(*costs, *(_tokens(outlook, k) for k in lengths))
        x = Axis(-0.5, len(lengths) - 0.5, tuple(map(float, lengths)), "drafted tokens in a round, K")
        return x, rounded_axis(
            0.0,
            highest,
            _TICKS,
            "plain steps of the target, and tokens",
            "{:g}".format,
        )

    def _draw_bars(self, painter: QPainter, plot: Plot, outlook: Outlook) -> None:
        accent = self.colour(QPalette.ColorRole.Accent)
        edge = QPen(accent, 1)
        for k, verify in enumerate(outlook.verify_costs):
            painter.setPen(edge)
            painter.setBrush(self.colour(QPalette.ColorRole.Highlight))
            painter.drawRect(QRectF(plot.point(k - _BAR / 2, verify), plot.point(k + _BAR / 2, 0)))
            if k:
                top = verify + k * outlook.draft_cost
                painter.setBrush(QBrush(accent, Qt.BrushStyle.BDiagPattern))
                painter.drawRect(QRectF(plot.point(k - _BAR / 2, top), plot.point(k + _BAR / 2, verify)))

    def _draw_tokens(self, painter: QPainter, plot: Plot, outlook: Outlook) -> None:
        painter.setPen(QPen(self.colour(QPalette.ColorRole.Text), 2))
        painter.setBrush(self.colour(QPalette.ColorRole.Base))
        points = [plot.point(k, _tokens(outlook, k)) for k in range(len(outlook.verify_costs))]
        painter.drawPolyline(points)
        for point in points:
            painter.drawEllipse(point, _MARKER, _MARKER)

    def _draw_legend(self, painter: QPainter) -> None:
        """Name the three marks in a row at the top."""
        metrics = painter.fontMetrics()
        line = metrics.height()
        accent, text = self.colour(QPalette.ColorRole.Accent), self.colour(QPalette.ColorRole.Text)
        fills = (
            ("a verify of K", QBrush(self.colour(QPalette.ColorRole.Highlight))),
            ("drafting K", QBrush(accent, Qt.BrushStyle.BDiagPattern)),
        )
        left = 2.0
        for name, fill in fills:
            painter.setPen(QPen(accent, 1))
            painter.setBrush(fill)
            painter.drawRect(QRectF(left, 3, line - 4, line - 5))
            painter.setPen(text)
            painter.drawText(QPointF(left + line + 2, metrics.ascent() + 1), name)
            left += 2 * line + metrics.horizontalAdvance(name)
        painter.setPen(QPen(text, 2))
        painter.drawLine(QPointF(left, line / 2), QPointF(left + line, line / 2))
        painter.setBrush(self.colour(QPalette.ColorRole.Base))
        painter.drawEllipse(QPointF(left + line / 2, line / 2), _MARKER, _MARKER)
        painter.drawText(QPointF(left + line + 6, metrics.ascent() + 1), "tokens it is expected to bring")


def _tokens(outlook: Outlook, k: int) -> float:
    """Return the tokens that a round of K drafted ones is expected to bring."""
    return sum(outlook.expected_acceptance**i for i in range(k + 1))
