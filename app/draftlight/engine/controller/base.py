"""What the loop asks of whoever decides on a draft's length."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from draftlight.engine.costs import DraftTrial
from draftlight.engine.drafting.base import Drafted, Offer
from draftlight.engine.events import DraftSource, Reasoning, RoundVerified

Offers: TypeAlias = Mapping[DraftSource, Offer]


@dataclass(frozen=True, slots=True)
class Outlook:
    """A round's frame: the tokens so far, those that may still come, and the draft lengths allowed, rising, 0 first.

    `widths` are the rows of the verify by draft length: more than K + 1 where a wider pass is cheaper, or the only
    exact one; the rows behind the draft are padding that nobody looks at. Empty: K + 1 for each.
    """

    n_tokens: int
    n_left: int
    lengths: tuple[int, ...]
    widths: tuple[int, ...] = ()

    def width(self, k: int) -> int:
        """Return how many rows a verify of k drafted tokens has."""
        return self.widths[k] if self.widths else k + 1

    def longest(self, k: int) -> int:
        """Return the longest length allowed that is no more than `k`."""
        return max(length for length in self.lengths if length <= k)


class DraftLengthController(Protocol):
    """Decides token by token whether to draft on and from which source, and learns from what came of it."""

    @property
    def off_reason(self) -> str:
        """Why nothing was drafted, in words."""
        ...

    @property
    def reasoning(self) -> Reasoning | None:
        """The figures behind this round's draft; None where there are none."""
        ...

    def begin_round(self, outlook: Outlook) -> None:
        """Start a round."""
        ...

    def asks(self, sources: Collection[DraftSource]) -> Collection[DraftSource]:
        """Return whose offers it wants to weigh for the next token, of the sources that are loaded."""
        ...

    def wants_review(self, offers: Offers) -> int:
        """Return on how many of the last tokens the draft model shall be tried before this draft; 0: not now."""
        ...

    def reviewed(self, trials: list[DraftTrial], seconds: float) -> None:
        """Learn from a review that took so long."""
        ...

    def next_source(self, offers: Offers) -> DraftSource | None:
        """Return who of those asked shall propose the next token; None where the draft is long enough."""
        ...

    def drafted(self, proposal: Drafted) -> None:
        """Take note of a proposal."""
        ...

    def n_submitted(self) -> int:
        """Return how many of the proposals shall be verified: one of the lengths allowed."""
        ...

    def observe(self, report: RoundVerified) -> None:
        """Learn from a finished round."""
        ...
