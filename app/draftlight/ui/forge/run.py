"""One run of the forge at a time, on a thread of its own. It goes on whether or not anybody looks."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

from PySide6.QtCore import QObject, Signal, Slot

from draftlight.engine.cancel import CancelToken
from draftlight.errors import UserError
from draftlight.forge.client import Control, ForgeFailed, discard
from draftlight.forge.reports import Report
from draftlight.forge.request import ForgeRequest, request_for, unfinished
from draftlight.forge.tuned_files import tuning_request
from draftlight.ui.forge.progress import Progress
from draftlight.ui.jobs import Job, JobThread, Work

Forge: TypeAlias = Callable[[ForgeRequest, CancelToken, Control], Iterator[Report]]
"""Makes a draft model, or finds out what one could bring: forge.client.forge()."""


@dataclass(frozen=True, slots=True)
class Order:
    """What the person asks for. `minutes` is the time the whole run may take; `size` "auto", "narrow" or "pruned".

    With `tune` that draft model is tuned on the person's chats instead.
    """

    target: Path
    minutes: float = 60.0
    size: str = "auto"
    tune: Path | None = None

    def request(self, *, only_outlook: bool = False) -> ForgeRequest:
        """Return the request, with the usual places. Raises UserError where there is no such target."""
        if self.tune is not None:
            return tuning_request(self.target, self.tune)
        return replace(request_for(self.target, minutes=self.minutes, size=self.size), only_outlook=only_outlook)

    @property
    def begun(self) -> ForgeRequest | None:
        """What an earlier run for this target was asked for, where it can be resumed."""
        try:
            return unfinished(self.request())
        except UserError:  # the target is gone; whoever begins a run is told
            return None


class Phase(StrEnum):
    """What the screen shows."""

    CHOOSING = "choosing"
    LOOKING = "looking"
    OUTLOOK = "outlook"
    MAKING = "making"
    MADE = "made"
    TUNED = "tuned"
    FAILED = "failed"


class ForgeRun(QObject):
    """Starts, pauses and stops the work, and keeps what it reported."""

    changed = Signal()  # the phase, a pause, a stop on its way
    reported = Signal(object)  # Report
    made = Signal(object)  # Forged
    tuned = Signal(object)  # Tuned
    failed = Signal(object)  # the exception

    def __init__(self, forge: Forge, parent: QObject | None = None) -> None:
        """Run by `forge`; nothing runs yet."""
        super().__init__(parent)
        self._forge = forge
        self._thread = JobThread("forge", self)
        self._job: Job | None = None
        self._control = Control()
        self.phase = Phase.CHOOSING
        self.order: Order | None = None
        self.progress = Progress()
        self.failure: BaseException | None = None

    @property
    def busy(self) -> bool:
        """Whether something runs."""
        return self._job is not None

    @property
    def paused(self) -> bool:
        """Whether the run is held up."""
        return self.busy and self._control.paused

    @property
    def stopping(self) -> bool:
        """Whether the run has been asked to stop and has not yet."""
        return self._job is not None and self._job.token.cancelled

    @property
    def resumable(self) -> bool:
        """Whether what was done before the failure is kept and worth going on from."""
        if isinstance(self.failure, ForgeFailed):
            return self.failure.resumable
        return self.order is not None and self.order.begun is not None

    @property
    def sentence(self) -> str:
        """What the run does, for those who look elsewhere; empty where nothing runs."""
        if not self.busy or self.phase is not Phase.MAKING:
            return ""
        what = "Tuning the draft model" if self.tuning else "Making a draft model"
        if self.stopping:
            return f"{what}: {'stopping' if self.tuning else 'saving what is done'}"
        if self.paused:
            return f"{what}: {'paused' if self.progress.waiting else 'pausing'}"
        return f"{what}: {self.progress.doing}"

    @property
    def tuning(self) -> bool:
        """Whether the run tunes a draft model that there is."""
        return self.order is not None and self.order.tune is not None

    def look(self, order: Order) -> None:
        """Find out what a draft model could bring."""
        self._start(order, Phase.LOOKING)

    def make(self, order: Order) -> None:
        """Make the draft model, or go on making it."""
        self._start(order, Phase.MAKING)

    def start_over(self, order: Order) -> None:
        """Forget what an earlier run for the target has done, and begin with the outlook."""
        try:
            discard(order.request())
        except UserError as error:
            self._fail(order, error)
        else:
            self.look(order)

    @Slot()
    def pause(self) -> None:
        """Hold the run up."""
        self._control.pause()
        self.changed.emit()

    @Slot()
    def go_on(self) -> None:
        """Let it go on."""
        self._control.go_on()
        self.changed.emit()

    @Slot()
    def stop(self) -> None:
        """Ask the run to end; what is done so far is kept."""
        if self._job is not None:
            self._job.cancel()
            self.changed.emit()

    @Slot()
    def choose(self) -> None:
        """Go back to the beginning."""
        if not self.busy:
            self._enter(Phase.CHOOSING)

    def shutdown(self) -> bool:
        """Stop the run, so that it can be resumed; tell whether its thread has ended."""
        return self._thread.shutdown()

    def _start(self, order: Order, phase: Phase) -> None:
        if self.busy:
            return
        try:
            request = order.request(only_outlook=phase is Phase.LOOKING)
        except UserError as error:
            self._fail(order, error)
            return
        self.order, self.failure, self._control = order, None, Control()
        self.progress = Progress(tuning=order.tune is not None)
        self._job = Job(_work(self._forge, request, self._control))
        self._job.reported.connect(self._on_reported)
        self._job.failed.connect(self._on_failed)
        self._job.finished.connect(self._on_finished)
        self._thread.start(self._job)
        self._enter(phase)

    def _fail(self, order: Order, error: UserError) -> None:
        self.order, self.failure = order, error
        self._enter(Phase.FAILED)

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self.changed.emit()

    @Slot(object)
    def _on_reported(self, report: Report) -> None:
        self.progress.take(report)
        self.reported.emit(report)

    @Slot(object)
    def _on_failed(self, error: BaseException) -> None:
        self.failure = error

    @Slot()
    def _on_finished(self) -> None:
        looked, progress = self.phase is Phase.LOOKING, self.progress
        self._job = None
        if progress.forged is not None:
            self._enter(Phase.MADE)
            self.made.emit(progress.forged)
        elif progress.tuned is not None:
            self._enter(Phase.TUNED)
            self.tuned.emit(progress.tuned)
        elif self.failure is not None:
            self._enter(Phase.FAILED)
            self.failed.emit(self.failure)
        elif looked and progress.outlook is not None:
            self._enter(Phase.OUTLOOK)
        else:
            self._enter(Phase.CHOOSING)


def _work(forge: Forge, request: ForgeRequest, control: Control) -> Work:
    """Return the work of one run."""

    def work(cancel: CancelToken) -> Iterator[Report]:
        yield from forge(request, cancel, control)

    return work
