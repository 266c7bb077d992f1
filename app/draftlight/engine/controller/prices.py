"""What a round costs right now: the measured staircase, corrected by the passes of this session as they come.

Other programs and a warm processor change every price alike, which decides nothing; a width whose price moves by
itself is corrected by itself.
"""

from collections.abc import Sequence

from draftlight.engine.costs import StepCosts
from draftlight.engine.events import RoundVerified

_FOLLOW = 0.08  # weight of the newest pass
_FIRST = 5  # passes after which a width's own correction is trusted
_LEAST, _MOST = 0.25, 4.0  # corrections beyond that are a hiccup
_STRETCH = 32  # tokens of context over which a price hardly changes
_HOST_SECONDS = 0.0003  # per row, before anything was seen


class Corrected:
    """A staircase and how far the present runs from it."""

    def __init__(self, costs: StepCosts) -> None:
        """Start at the measured prices."""
        self._costs = costs
        self._near: tuple[int, dict[int, float]] = (-1, {})  # measured prices by width in this stretch of contexts
        self._all = 1.0
        self._by_width: dict[int, tuple[int, float]] = {}

    def at(self, width: int, context: int) -> float:
        """Return the seconds to expect."""
        n_seen, factor = self._by_width.get(width, (0, 1.0))
        trust = min(1.0, n_seen / _FIRST)
        return self._measured(width, context) * self._all * (1.0 + trust * (factor - 1.0))

    def observe(self, width: int, context: int, seconds: float) -> None:
        """Take in one pass."""
        measured = self._measured(width, context)
        if measured <= 0.0 or seconds <= 0.0:
            return
        ratio = min(max(seconds / measured, _LEAST), _MOST)
        n_seen, factor = self._by_width.get(width, (0, 1.0))
        own = min(max(ratio / self._all, _LEAST), _MOST)
        self._by_width[width] = (n_seen + 1, factor + max(_FOLLOW, 1.0 / (n_seen + 1)) * (own - factor))
        self._all += _FOLLOW * (ratio / factor - self._all)

    def _measured(self, width: int, context: int) -> float:
        """Look a price up, to the nearest stretch of contexts: it is asked for dozens of times a round."""
        stretch = context // _STRETCH
        if self._near[0] != stretch:
            self._near = (stretch, {})
        prices = self._near[1]
        price = prices.get(width)
        if price is None:
            price = prices[width] = self._costs.at(width, stretch * _STRETCH + _STRETCH // 2)
        return price


class Prices:
    """Seconds of verifying, drafting and the host's own work."""

    def __init__(self, target: StepCosts, draft: StepCosts | None) -> None:
        """Start from what preflight measured."""
        self._target = Corrected(target)
        self._draft = None if draft is None else Corrected(draft)
        self._host = _HOST_SECONDS

    def forward(self, width: int, context: int) -> float:
        """Seconds of one pass of the target."""
        return self._target.at(width, context)

    def verify(self, n_drafted: int, width: int, context: int) -> float:
        """Seconds to verify this many drafted tokens in a pass of this width, the host's work included."""
        return self._target.at(width, context) + self._host * (n_drafted + 1)

    def draft(self, n_read: int, context: int) -> float:
        """Seconds until the draft model, having `n_read` tokens to read, has proposed one."""
        return self._host + (0.0 if self._draft is None else self._draft.at(n_read, context))

    @property
    def can_draft(self) -> bool:
        """Whether the draft model's price is known."""
        return self._draft is not None

    def observe(self, report: RoundVerified, context: int, n_read: Sequence[int]) -> None:
        """Take in a finished round. `n_read`: how many tokens the draft model read before each of its proposals."""
        width = report.n_submitted + 1
        self._target.observe(report.width or width, context, report.verify_ms / 1000.0)
        if self._draft is not None and n_read:
            expected = sum(self._draft.at(n, context) for n in n_read)
            share = report.draft_ms / 1000.0 / expected if expected > 0.0 else 1.0
            for n in n_read:
                self._draft.observe(n, context, share * self._draft.at(n, context))
        host = report.host_ms / 1000.0 / (len(report.drafted) + width)
        self._host += _FOLLOW * (host - self._host)
