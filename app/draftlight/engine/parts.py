"""What one generation works with, and how long its models take."""

import time
from dataclasses import dataclass

from draftlight.engine.context import Context
from draftlight.engine.controller.experience import Experience
from draftlight.engine.drafting.ahead import AheadDrafter
from draftlight.engine.drafting.base import Drafter
from draftlight.engine.exactness import Exactness
from draftlight.engine.model import Tokenizer


@dataclass(frozen=True, slots=True)
class DecoderParts:
    """What one generation works with: the drafters that it may use; `exactness` in EXACT mode where it was measured."""

    target: Context
    drafters: tuple[Drafter, ...]
    tokenizer: Tokenizer
    experience: Experience | None
    exactness: Exactness | None

    @property
    def ahead(self) -> AheadDrafter | None:
        """The draft model, where it may work while the target verifies."""
        return next((drafter for drafter in self.drafters if isinstance(drafter, AheadDrafter)), None)

    def model_seconds(self) -> tuple[float, float]:
        """Return the seconds spent so far inside draft models and inside the target."""
        return sum(drafter.decode_seconds for drafter in self.drafters), self.target.decode_seconds


class RoundWatch:
    """Times one round, both models' shares apart, without the time its listeners take between two events."""

    def __init__(self, parts: DecoderParts) -> None:
        """Start the clock."""
        self._parts = parts
        self._draft, self._target = parts.model_seconds()
        self._seconds = 0.0
        self._since = time.perf_counter()

    def pause(self) -> None:
        """Stop the clock while a listener looks."""
        self._seconds += time.perf_counter() - self._since

    def go_on(self) -> None:
        """Let it run again."""
        self._since = time.perf_counter()

    def milliseconds(self) -> tuple[float, float, float]:
        """Milliseconds in the draft model, in the target, and outside both."""
        draft, target = self._parts.model_seconds()
        whole = 1000.0 * (self._seconds + time.perf_counter() - self._since)
        draft_ms, target_ms = 1000.0 * (draft - self._draft), 1000.0 * (target - self._target)
        return draft_ms, target_ms, max(0.0, whole - draft_ms - target_ms)
