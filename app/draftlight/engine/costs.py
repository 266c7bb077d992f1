"""What a forward pass costs by its width and context, as measured before; and what else was measured of a pair.

Values only: who measures and who decides live elsewhere. Costs are a staircase that need not even rise: kernels that
work on four rows at a time make a verify of four cheaper than one of three.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Seconds of one forward pass: `seconds[i][j]` at `contexts[i]` tokens with `widths[j]` new ones, both rising."""

    contexts: tuple[int, ...]
    widths: tuple[int, ...]
    seconds: tuple[tuple[float, ...], ...]

    def at(self, width: int, context: int) -> float:
        """Return the seconds for this width and context: straight lines between measured points and beyond them."""
        per_context = [_on_line(self.widths, row, width) for row in self.seconds]
        return max(_on_line(self.contexts, per_context, context), min(per_context) / 2)


@dataclass(frozen=True, slots=True)
class DraftTrial:
    """One position of the target's own greedy text: did the draft model choose the same, and how surely.

    `margin` is the draft's largest logit less its second largest.
    """

    margin: float
    accepted: bool


@dataclass(frozen=True, slots=True)
class PairFacts:
    """What was measured of a pair on this machine with these settings: the ground that AUTO and EXACT stand on.

    `exact_widths` are the verify widths whose logits and cache are bit-equal to width 1's; `exact_prefill` the largest
    chunk of a prompt whose cache is, 0 where none of them is. `near_exact` are further widths whose cache is bit-equal
    and whose logits differ from width 1's by no more than `logit_difference`.
    """

    target: StepCosts
    draft: StepCosts | None = None
    exact_widths: frozenset[int] = frozenset({1})
    exact_prefill: int = 0
    near_exact: frozenset[int] = frozenset()
    logit_difference: float = 0.0
    trials: tuple[DraftTrial, ...] = ()


def _on_line(points: Sequence[int], values: Sequence[float], x: int) -> float:
    """Interpolate between the two points around x; beyond the ends go on along the last two."""
    if len(points) == 1:
        return values[0]
    right = min(max(bisect_right(points, x), 1), len(points) - 1)
    x0, x1, y0, y1 = points[right - 1], points[right], values[right - 1], values[right]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
