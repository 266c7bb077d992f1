"""Three pictures in plain SVG: speed-up by kind, acceptance by position, the cost staircase. No network, no script.

Coordinates are pixels, y downwards. Every colour comes with a shape or a label, so that none carries a meaning alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from draftlight.bench.arms import PLAIN
from draftlight.bench.figures import ArmFigures, Figures
from draftlight.bench.intervals import Interval
from draftlight.engine.costs import PairFacts

_WIDTH = 760
_LEFT, _RIGHT, _TOP, _BOTTOM = 150, 24, 46, 46
_LABEL = 90  # pixels kept free for the last dot's label
_PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#4d4d4d")  # Okabe and Ito's
_DASHES = ("none", "6 3", "2 3", "8 3 2 3", "none", "6 3", "2 3", "8 3 2 3")
_ROW = 17  # pixels between two arms of a kind
_GAP = 16  # between two kinds
_ASIDE = 3  # pixels between two curves' dots
_FEWEST_REACHED = 10  # judged tokens from which a rate is drawn
_MILLISECONDS = 1000.0


@dataclass(frozen=True, slots=True)
class _Scale:
    """Maps values from `low` to `high` onto pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        inside = min(max(value, self.low), self.high)
        return self.start + (inside - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """About six round values."""
        step = 10.0**-3
        while (self.high - self.low) / step > 7:  # noqa: PLR2004 - more would crowd the axis
            step *= 2.5 if f"{step:e}".startswith("2") else 2
        first = int(self.low / step)
        return [n * step for n in range(first, int(self.high / step + 1e-9) + 1) if n * step >= self.low]


def speed_up_by_kind(figures: Figures) -> str:
    """Draw a dot with its interval for every arm and kind; the line at 1 is plain decoding. Empty without ratios."""
    arms = [arm for arm in figures.arms if arm.name != PLAIN and arm.ratio is not None]
    if not arms:
        return ""
    rows = [("all", {arm.name: arm.ratio for arm in arms})]
    rows += [
        (kind, {arm.name: arm.by_kind[kind].ratio for arm in arms if kind in arm.by_kind}) for kind in figures.kinds
    ]
    shown = [interval for _, row in rows for interval in row.values() if interval is not None]
    highest = max([1.2, *(interval.high or interval.value for interval in shown)])
    x = _Scale(0.0, highest, _LEFT, _WIDTH - _RIGHT - _LABEL)
    block = len(arms) * _ROW + _GAP
    height = _TOP + len(rows) * block + _BOTTOM
    parts = list(_x_axis(x, height - _BOTTOM, "times plain's speed"))
    parts.append(_line(x(1.0), _TOP - 6, x(1.0), height - _BOTTOM, stroke="#444", dash="4 3"))
    for place, (kind, row) in enumerate(rows):
        top = _TOP + place * block + _GAP / 2
        parts.append(_text(_LEFT - 12, top + (len(arms) - 1) * _ROW / 2 + 4, kind, anchor="end", bold=place == 0))
        for n, arm in enumerate(arms):
            parts += _dot_with_interval(x, top + n * _ROW, arm.name, row.get(arm.name), _PALETTE[n % len(_PALETTE)])
        if place:
            parts.append(_line(_LEFT, top - _GAP / 2 - 4, _WIDTH - _RIGHT, top - _GAP / 2 - 4, stroke="#eee"))
    return _svg(height, "Speed-up by kind of prompt", parts)


def _dot_with_interval(x: _Scale, y: float, name: str, interval: Interval | None, colour: str) -> Iterator[str]:
    if interval is None:
        return
    if interval.low is not None and interval.high is not None:
        yield _line(x(interval.low), y, x(interval.high), y, stroke=colour, width=2)
    yield f'<circle cx="{x(interval.value):.1f}" cy="{y:.1f}" r="4.5" fill="{colour}"/>'
    yield _text(x(interval.high or interval.value) + 8, y + 4, f"{name} {interval.value:.2f}", size=11)


def acceptance_by_position(figures: Figures) -> str:
    """Draw each arm's chance that a drafted token is accepted once it is reached, by its place in the draft."""
    arms = [arm for arm in figures.arms if arm.name != PLAIN]
    curves = {n: curve for n, arm in enumerate(arms) if (curve := _acceptance(arm))}
    if not curves:
        return ""
    longest = max(place for curve in curves.values() for place, _ in curve)
    height = 320
    x, y = _Scale(0.5, longest + 0.5, _LEFT, _WIDTH - _RIGHT), _Scale(0.0, 1.0, height - _BOTTOM, _TOP)
    parts = [*_legend({n: arms[n].name for n in curves}), *_y_axis(y, x, "accepted of those reached", percent=True)]
    parts += _counted_axis(x, range(1, longest + 1), height - _BOTTOM, "place in the draft")
    for n, curve in curves.items():
        aside = _ASIDE * (n - len(arms) / 2)  # so that equal rates do not hide each other
        parts += _curve([(x(place) + aside, y(rate)) for place, rate in curve], n)
    return _svg(height, "Acceptance by position", parts)


def _acceptance(arm: ArmFigures) -> list[tuple[int, float]]:
    if arm.drafting is None:
        return []
    pairs = zip(arm.drafting.accepted_at, arm.drafting.reached_at, strict=True)
    return [
        (place, accepted / reached) for place, (accepted, reached) in enumerate(pairs, 1) if reached >= _FEWEST_REACHED
    ]


def cost_staircase(facts: PairFacts | None) -> str:
    """Draw what a verify costs by its width, at each context measured; a filled dot is a width that is exact."""
    if facts is None:
        return ""
    costs = facts.target
    height = 340
    highest = max(max(row) for row in costs.seconds) * _MILLISECONDS
    x = _Scale(0.5, costs.widths[-1] + 0.5, _LEFT, _WIDTH - _RIGHT)
    y = _Scale(0.0, highest * 1.08, height - _BOTTOM, _TOP)
    names = {n: f"{context:,} tokens of context" for n, context in enumerate(costs.contexts)}
    parts = [*_legend(names), *_y_axis(y, x, "milliseconds")]
    parts += _counted_axis(x, costs.widths, height - _BOTTOM, "rows of a verify: K + 1 (filled: bit-equal to one row)")
    for n, row in enumerate(costs.seconds):
        points = [(x(width), y(seconds * _MILLISECONDS)) for width, seconds in zip(costs.widths, row, strict=True)]
        parts += _curve(points, n, filled=[width in facts.exact_widths for width in costs.widths])
    return _svg(height, "What a verify costs", parts)


def _curve(points: Sequence[tuple[float, float]], n: int, filled: Sequence[bool] = ()) -> Iterator[str]:
    colour, dash = _PALETTE[n % len(_PALETTE)], _DASHES[n % len(_DASHES)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>'
    for place, (x, y) in enumerate(points):
        inside = colour if not filled or filled[place] else "#fff"
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{inside}" stroke="{colour}" stroke-width="1.5"/>'


def _legend(names: Mapping[int, str]) -> Iterator[str]:
    left = float(_LEFT)
    for n, name in names.items():
        colour = _PALETTE[n % len(_PALETTE)]
        yield _line(left, 20, left + 22, 20, stroke=colour, width=2, dash=_DASHES[n % len(_DASHES)])
        yield f'<circle cx="{left + 11:.1f}" cy="20" r="4" fill="{colour}"/>'
        yield _text(left + 28, 24, name)
        left += 28 + 7.2 * len(name) + 20


def _x_axis(x: _Scale, bottom: float, title: str) -> Iterator[str]:
    for tick in x.ticks():
        yield _line(x(tick), _TOP - 6, x(tick), bottom, stroke="#e6e6e6")
        yield _text(x(tick), bottom + 17, f"{tick:g}", anchor="middle")
    yield _text((x.start + x.end) / 2, bottom + 36, title, anchor="middle")


def _counted_axis(x: _Scale, values: Sequence[int], bottom: float, title: str) -> Iterator[str]:
    for value in values:
        yield _text(x(value), bottom + 17, str(value), anchor="middle")
    yield _text((x.start + x.end) / 2, bottom + 36, title, anchor="middle")


def _y_axis(y: _Scale, x: _Scale, title: str, *, percent: bool = False) -> Iterator[str]:
    for tick in y.ticks():
        yield _line(x.start, y(tick), x.end, y(tick), stroke="#e6e6e6")
        yield _text(x.start - 8, y(tick) + 4, f"{tick:.0%}" if percent else f"{tick:g}", anchor="end")
    middle = (y.start + y.end) / 2
    yield f'<g transform="rotate(-90 60 {middle:.1f})">{_text(60, middle, title, anchor="middle")}</g>'


def _line(x1: float, y1: float, x2: float, y2: float, **style: object) -> str:
    look: Mapping[str, object] = {"stroke": "#000", "width": 1, "dash": "none", **style}
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{look["stroke"]}" '
        f'stroke-width="{look["width"]}" stroke-dasharray="{look["dash"]}"/>'
    )


def _text(x: float, y: float, words: str, *, anchor: str = "start", size: int = 12, bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"{weight}>{escape(words)}</text>'


def _svg(height: float, title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" width="{_WIDTH}" '
        f'height="{height:.0f}" role="img" font-family="system-ui, sans-serif" fill="#222">'
        f'<title>{escape(title)}</title><rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>'
    )
