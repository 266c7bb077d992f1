"""How likely a drafted token is to be accepted, learned from those that were judged.

A token drafted by a model is known by its margin: the lead of its score, noise included, over the runner-up's. (The
noise is the target's too, so the margin knows more than the probability does.) A copied token is known by how many
tokens before it recur where it was copied from, and how often in a row it was what followed. Only tokens that were
reached teach anything: what lies behind a rejection was never judged. Old evidence fades, since acceptance follows the
text.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable

from draftlight.engine.costs import DraftTrial
from draftlight.engine.drafting.base import Drafted
from draftlight.engine.events import DraftSource

_MARGINS = (0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # borders of the classes
_SHIFTS = (-1.6, -1.4, -1.1, -0.7, -0.3, 0.0, 0.4, 0.9, 1.5, 2.2)  # log odds of each class above the source's own
_MATCHED = (2, 3, 4, 6, 9, 16)
_AGREEING = (1, 2, 4)
_COPIED = (  # before anything is known: measured on 97 answers of the starter and 160 texts that copy with edits
    (0.15, 0.17, 0.42, 0.72),
    (0.24, 0.42, 0.65, 0.86),
    (0.28, 0.54, 0.73, 0.91),
    (0.28, 0.71, 0.86, 0.97),
    (0.28, 0.78, 0.86, 0.95),
    (0.30, 0.88, 0.96, 0.98),
    (0.40, 0.96, 0.97, 0.99),
)
_FADING = 0.5 ** (1 / 200)  # a judged token counts half after 200 more
_PRIOR = 6.0  # tokens that what was believed before is worth
_UNKNOWN = 0.6  # acceptance by a draft model nobody has tried
_TRIAL_WEIGHT = 0.7  # of a token of the trial texts, against one of the conversation


class Rate:
    """A fading share of accepted tokens, drawn towards what was believed before."""

    __slots__ = ("accepted", "judged")

    def __init__(self) -> None:
        """Start without evidence."""
        self.accepted = self.judged = 0.0

    def add(self, accepted: bool, weight: float = 1.0) -> None:  # noqa: FBT001 - it is the thing counted
        """Count one token."""
        self.accepted = self.accepted * _FADING + weight * accepted
        self.judged = self.judged * _FADING + weight

    def towards(self, believed: float) -> float:
        """Return the share."""
        return (self.accepted + _PRIOR * believed) / (self.judged + _PRIOR)


class Acceptance:
    """What is known of a pair's acceptance at one kind of sampling, greedy or not."""

    def __init__(self, trials: Iterable[DraftTrial] = ()) -> None:
        """Start from what preflight saw of the draft model, if it did."""
        self._model = Rate()
        self._by_margin = [Rate() for _ in _SHIFTS]
        self._copied = [[Rate() for _ in row] for row in _COPIED]
        for trial in trials:
            self.learn_trial(trial, _TRIAL_WEIGHT)

    def of_model(self) -> float:
        """Return the chance of a token that the draft model has yet to propose."""
        return self._model.towards(_UNKNOWN)

    def of_copy(self, matched: int, agreeing: int) -> float:
        """Return the chance of a token copied after `matched` recurring ones, `agreeing` times followed by it."""
        row, column = bisect_right(_MATCHED, matched), bisect_right(_AGREEING, agreeing)
        return self._copied[row][column].towards(_COPIED[row][column])

    def of(self, drafted: Drafted) -> float:
        """Return the chance of a proposal, given that all before it are accepted."""
        if drafted.margin is None:
            return self.of_copy(drafted.matched, drafted.agreeing)
        place = bisect_right(_MARGINS, drafted.margin)
        return self._by_margin[place].towards(_shifted(self.of_model(), _SHIFTS[place]))

    def learn(self, drafted: Drafted, accepted: bool) -> None:  # noqa: FBT001 - it is the thing learned
        """Take in what became of a proposal that was reached."""
        if drafted.source is DraftSource.NGRAM or drafted.margin is None:
            row, column = bisect_right(_MATCHED, drafted.matched), bisect_right(_AGREEING, drafted.agreeing)
            self._copied[row][column].add(accepted)
        else:
            self.learn_trial(DraftTrial(drafted.margin, accepted))

    def learn_trial(self, trial: DraftTrial, weight: float = 1.0) -> None:
        """Take in what the draft model would have proposed, and whether that is what came."""
        self._model.add(trial.accepted, weight)
        self._by_margin[bisect_right(_MARGINS, trial.margin)].add(trial.accepted, weight)


def _shifted(share: float, log_odds: float) -> float:
    """Return a share with its log odds moved."""
    share = min(max(share, 0.01), 0.99)
    return 1.0 / (1.0 + (1.0 - share) / share * math.exp(-log_odds))
