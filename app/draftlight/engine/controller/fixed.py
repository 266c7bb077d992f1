"""The person's own choice of K, the same in every round."""

from collections.abc import Collection

from draftlight.engine.controller.base import Offers, Outlook
from draftlight.engine.costs import DraftTrial
from draftlight.engine.drafting.base import Drafted
from draftlight.engine.events import DraftSource, Reasoning, RoundVerified

_PREFERRED = (DraftSource.MODEL, DraftSource.NGRAM)
_LEAST_MATCHED = 2  # a single token recurs too often to mean anything where nobody weighs it


class FixedLength:
    """Drafts K tokens a round, from the draft model where there is one, else from the text's repetitions."""

    reasoning: Reasoning | None = None

    def __init__(self, k: int) -> None:
        """Draft `k` tokens a round."""
        self._k = k
        self._n_drafted = 0
        self._outlook = Outlook(0, 0, (0,))
        self.off_reason = ""

    def begin_round(self, outlook: Outlook) -> None:
        """Start a round."""
        self._outlook = outlook
        self._n_drafted = 0
        self.off_reason = "" if self._k else "drafting is off"

    def asks(self, sources: Collection[DraftSource]) -> Collection[DraftSource]:
        """Return the preferred source that is loaded until K tokens are drafted."""
        if self._n_drafted >= self._outlook.longest(self._k):
            return ()
        return [next(source for source in _PREFERRED if source in sources)]

    def wants_review(self, offers: Offers) -> int:
        """Return 0: a fixed choice tries nothing."""
        del offers
        return 0

    def reviewed(self, trials: list[DraftTrial], seconds: float) -> None:
        """A fixed choice learns nothing."""

    def next_source(self, offers: Offers) -> DraftSource | None:
        """Return the source that was asked, where it has something to say."""
        for source, offer in offers.items():
            if offer.ready and (source is not DraftSource.NGRAM or offer.matched >= _LEAST_MATCHED):
                return source
            if not self._n_drafted:
                self.off_reason = offer.silence or "the last tokens have not occurred before"
        return None

    def drafted(self, proposal: Drafted) -> None:
        """Count a proposal."""
        del proposal
        self._n_drafted += 1

    def n_submitted(self) -> int:
        """Return all that may be verified at once."""
        return self._outlook.longest(self._n_drafted)

    def observe(self, report: RoundVerified) -> None:
        """A fixed choice learns nothing."""
