"""What all parts of a forge run work with: the request, the run's folder, whom to tell, and whether to go on."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from draftlight.engine.cancel import CancelToken
from draftlight.forge.reports import Report, Stage, StageBegun
from draftlight.forge.request import ForgeRequest
from draftlight.forge.run_folder import RunFolder

_Value = TypeVar("_Value")


class Stopped(Exception):
    """Somebody asked the run to stop; what it has is kept."""


def needed(value: _Value | None) -> _Value:
    """Return the value; what has none was stopped. Raises Stopped."""
    if value is None:
        raise Stopped
    return value


@dataclass(frozen=True, slots=True)
class Workshop:
    """What a run works with. `go_on` waits while the run is paused, and says no once it is to stop.

    `clock` counts seconds, those of a pause left out. Looking at what is possible is not counted as the run's time.
    """

    request: ForgeRequest
    tell: Callable[[Report], None]
    go_on: Callable[[], bool]
    cancel: CancelToken
    clock: Callable[[], float]
    folder: RunFolder = field(init=False)
    _began: float = field(init=False)  # by the clock, as if the run had been at work all the time

    def __post_init__(self) -> None:
        """Name the run's folder, and take up the time where an earlier part of the run has left it."""
        object.__setattr__(self, "folder", RunFolder(self.request.folder))
        object.__setattr__(self, "_began", self.clock() - self.folder.spent())

    @property
    def spent(self) -> float:
        """Seconds that the run has taken up to now."""
        return self.clock() - self._began

    def note_spent(self) -> None:
        """Note them, so that a kill loses no more than what comes after. Raises OSError."""
        if not self.request.only_outlook:
            self.folder.keep_spent(self.spent)

    @contextmanager
    def stage(self, stage: Stage, sentence: str) -> Iterator[None]:
        """Say that a part begins, and note what it took, also where it is stopped. Raises OSError."""
        self.tell(StageBegun(stage, sentence))
        started = self.clock()
        try:
            yield
        finally:
            self.folder.log(stage=str(stage), seconds=round(self.clock() - started, 1))
            self.note_spent()
