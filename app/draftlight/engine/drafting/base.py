"""What every drafter offers the loop, and what is known of a drafted token."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from draftlight.engine.cancel import CancelToken
from draftlight.engine.costs import DraftTrial
from draftlight.engine.events import DraftSource
from draftlight.engine.sampling import Sampler


class Drafted(NamedTuple):
    """A proposed token. `q`, `rank` and `top` are the drafter's view; `margin` is its score over the runner-up's.

    A token copied from the text has no margin: `matched` tokens before it recur where it was copied from, and the last
    `agreeing` occurrences in a row were all followed by it.
    """

    token: int
    source: DraftSource
    q: float
    rank: int
    margin: float | None = None
    top: tuple[tuple[int, float], ...] = ()
    decode_seconds: float = 0.0
    matched: int = 0
    agreeing: int = 0


class Offer(NamedTuple):
    """What a drafter could do next, told without doing it.

    `lag` counts the tokens that a draft model has to read first, the last one of the text included; `matched` and
    `agreeing` are those of the token that would be proposed. `silence` says why it is not ready, in words.
    """

    ready: bool
    matched: int = 0
    agreeing: int = 0
    lag: int = 0
    silence: str = ""


class Drafter(Protocol):
    """Proposes tokens one by one. Whatever it proposes, the committed text stays the target's."""

    @property
    def source(self) -> DraftSource:
        """What its tokens are marked with."""
        ...

    @property
    def decode_seconds(self) -> float:
        """Seconds spent so far inside a model."""
        ...

    def begin(self, prompt: Sequence[int], earlier: Sequence[Sequence[int]] = ()) -> None:
        """Make ready for a new answer, keeping what its memory shares with the texts. No forward pass."""
        ...

    def offer(self, sequence: Sequence[int], n_committed: int) -> Offer:
        """Tell whether it could propose a token after `sequence`, whose first `n_committed` tokens stand for good.

        Within one answer the committed part only grows; what lies behind it are this round's drafted tokens.
        """
        ...

    def propose(self, sequence: Sequence[int], sampler: Sampler, cancel: CancelToken) -> Drafted | None:
        """Return the next token after `sequence`, for which offer() was ready; None once cancelled."""
        ...

    def review(self, sequence: Sequence[int], sampler: Sampler, cancel: CancelToken, n_read: int) -> list[DraftTrial]:
        """Compare the text's last tokens with what would have been proposed in their place.

        Of `sequence` at most the last `n_read` tokens are read, as if the text began with them.
        """
        ...
