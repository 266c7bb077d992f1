"""What every drafter offers the loop, and what is known of a drafted token."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from draftlight.engine.cancel import CancelToken
from draftlight.engine.events import DraftSource
from draftlight.engine.sampling import Sampler


@dataclass(frozen=True, slots=True)
class Drafted:
    """A proposed token. `q`, `rank` and `top` are the drafter's view; `margin` is its score over the runner-up's."""

    token: int
    source: DraftSource
    q: float
    rank: int
    margin: float | None = None
    top: tuple[tuple[int, float], ...] = ()
    decode_seconds: float = 0.0


class Drafter(Protocol):
    """Proposes tokens one by one. Whatever it proposes, the committed text stays the target's."""

    @property
    def decode_seconds(self) -> float:
        """Seconds spent so far inside a model."""
        ...

    @property
    def silence(self) -> str:
        """Why the last draft was empty, in words."""
        ...

    def draft(self, history: Sequence[int], limit: int, sampler: Sampler, cancel: CancelToken) -> Iterator[Drafted]:
        """Propose at most `limit` tokens after `history`; fewer, or none, where it has nothing good to say.

        A draft ends after an end token, and before the next forward pass once cancelled.
        """
        ...
