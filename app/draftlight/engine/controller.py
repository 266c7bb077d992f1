"""How many tokens to draft next. Knows rounds and their costs, not models."""

from typing import Protocol

from draftlight.engine.events import RoundVerified


class DraftLengthController(Protocol):
    """Chooses K for each round and learns from what came of it."""

    def draft_length(self) -> int:
        """K for the next round; 0 is plain decoding."""
        ...

    @property
    def off_reason(self) -> str:
        """Why K was 0, in words."""
        ...

    def observe(self, report: RoundVerified) -> None:
        """Learn from a finished round."""
        ...


class FixedLength:
    """The person's own choice of K, the same in every round."""

    def __init__(self, k: int) -> None:
        """Draft `k` tokens a round."""
        self._k = k

    def draft_length(self) -> int:
        """K."""
        return self._k

    @property
    def off_reason(self) -> str:
        """Why K was 0."""
        return "drafting is off"

    def observe(self, report: RoundVerified) -> None:
        """A fixed choice learns nothing."""


AUTO_UNTIL_MEASURED = 3


def controller_for(draft_length: int | None) -> DraftLengthController:
    """Return the controller for a request's draft length.

    AUTO (None) has no measured costs to go by yet and drafts three tokens, llama.cpp's own default.
    """
    return FixedLength(AUTO_UNTIL_MEASURED if draft_length is None else draft_length)
