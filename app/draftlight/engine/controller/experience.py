"""What a loaded pair has taught so far. It outlives the single answer and holds no text, only rates and prices."""

from collections.abc import Sequence

from draftlight.engine.controller.acceptance import Acceptance
from draftlight.engine.controller.prices import Prices
from draftlight.engine.costs import PairFacts
from draftlight.engine.events import RoundVerified

_FADING = 0.5 ** (1 / 16)  # a round counts half after 16 more
_REVIEW_SHARE = 0.01  # of all time may go into trying a draft model that is left out


class Pace:
    """The tokens a second that the last rounds achieved."""

    def __init__(self) -> None:
        """Start with nothing seen."""
        self._tokens = self._seconds = 0.0

    def add(self, n_tokens: int, milliseconds: float) -> None:
        """Count a round."""
        self._tokens = self._tokens * _FADING + n_tokens
        self._seconds = self._seconds * _FADING + milliseconds / 1000.0

    def rate(self, plain_seconds: float) -> float:
        """Return the tokens a second; plain decoding's where nothing was seen yet."""
        return (self._tokens + 1.0) / (self._seconds + plain_seconds)


class Experience:
    """Prices, acceptance and pace of one loaded pair."""

    def __init__(self, facts: PairFacts) -> None:
        """Start from what preflight measured."""
        self.prices = Prices(facts.target, facts.draft)
        self.pace = Pace()
        self._greedy, self._sampled = Acceptance(facts.trials), Acceptance(facts.trials)
        self._for_reviews = 0.0  # seconds

    def acceptance(self, *, greedy: bool) -> Acceptance:
        """Return what is known at temperature 0, or above it."""
        return self._greedy if greedy else self._sampled

    def learn(self, report: RoundVerified, context: int, n_read: Sequence[int]) -> float:
        """Take in a finished round; return the milliseconds it saved against plain steps for the same tokens.

        `n_read` are the tokens that the draft model read before each of its proposals.
        """
        spent = report.draft_ms + report.verify_ms + report.host_ms
        self._for_reviews += _REVIEW_SHARE * spent / 1000.0
        if report.audit is None:  # else a second pass is in the verify's time
            self.prices.observe(report, context, n_read)
        return len(report.committed) * 1000.0 * self.prices.verify(0, 1, context) - spent

    def may_review(self, seconds: float) -> bool:
        """Tell whether enough time was saved up, and take it."""
        if self._for_reviews < seconds:
            return False
        self._for_reviews -= seconds
        return True

    def overran(self, seconds: float) -> None:
        """Take what a review took beyond that: the next one waits until it is saved up, too."""
        self._for_reviews -= seconds
