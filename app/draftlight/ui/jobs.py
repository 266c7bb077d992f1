"""The only place where threads start. Runs jobs one after another and brings what they report to the GUI thread.

The working thread sees plain values alone: a callable and a CancelToken. Every QObject is made, used and freed in the
GUI thread, and a job's signals are emitted there, so whatever is connected to them runs there too.
"""

import gc
import itertools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from PySide6.QtCore import QObject, QThread, QTimer, Signal, Slot

from draftlight.engine.cancel import CancelToken
from draftlight.errors import UserError

Work: TypeAlias = Callable[[CancelToken], Iterator[object]]
"""What a job does: yields frozen values to report, and stops early once its token is cancelled."""

LONGEST_WAIT_MS = 5000
COLLECT_EVERY_MS = 5000

_log = logging.getLogger(__name__)


class Job(QObject):
    """One piece of work. Connect first, then hand it to JobThread.start().

    `reported` carries each value the work yields, `failed` the exception that ended it; `finished` is always last.
    """

    reported = Signal(object)
    failed = Signal(object)
    finished = Signal()

    def __init__(self, work: Work) -> None:
        """Prepare the work; nothing runs yet. The thread keeps the job until it has finished."""
        super().__init__()
        self.work = work
        self.token = CancelToken()

    def cancel(self) -> None:
        """Ask the work to stop. A job that has not begun never will; `finished` comes all the same."""
        self.token.cancel()


@dataclass(frozen=True, slots=True)
class _Ticket:
    """What the working thread gets of a job."""

    number: int
    work: Work
    token: CancelToken


class _Worker(QObject):
    """Lives in the working thread and runs tickets in the order of their arrival."""

    reported = Signal(object, object)
    failed = Signal(object, object)
    finished = Signal(object)

    @Slot(object)
    def run(self, ticket: _Ticket) -> None:
        try:
            if not ticket.token.cancelled:
                for value in ticket.work(ticket.token):
                    self.reported.emit(ticket.number, value)
        except BaseException as error:  # noqa: BLE001 - a thread's edge: what is not reported here is lost
            self.failed.emit(ticket.number, error)
        self.finished.emit(ticket.number)


class JobThread(QObject):
    """One thread that runs jobs one after another; it begins with the first job."""

    idle = Signal()
    _submitted = Signal(object)

    def __init__(self, name: str, parent: QObject | None = None) -> None:
        """Prepare the thread under this name."""
        super().__init__(parent)
        self._jobs: dict[int, Job] = {}
        self._numbers = itertools.count()
        self._thread = QThread(self)
        self._thread.setObjectName(name)
        self._worker = _Worker()
        self._worker.moveToThread(self._thread)
        self._submitted.connect(self._worker.run)
        self._worker.reported.connect(self._on_reported)
        self._worker.failed.connect(self._on_failed)
        self._worker.finished.connect(self._on_finished)

    @property
    def busy(self) -> bool:
        """Whether a job runs or waits."""
        return bool(self._jobs)

    def start(self, job: Job) -> None:
        """Run the job after those already given."""
        number = next(self._numbers)
        self._jobs[number] = job
        if not self._thread.isRunning():
            self._thread.start()
        self._submitted.emit(_Ticket(number, job.work, job.token))

    def cancel_all(self) -> None:
        """Ask every job, the waiting ones too, to stop."""
        for job in self._jobs.values():
            job.cancel()

    def shutdown(self) -> bool:
        """Cancel everything and end the thread.

        Returns False where the work did not stop within five seconds (stuck inside a library); the process must then
        leave by os._exit, because ending a thread by force can leave it holding locks.
        """
        self.cancel_all()
        self._thread.quit()
        return self._thread.wait(LONGEST_WAIT_MS)

    @Slot(object, object)
    def _on_reported(self, number: int, value: object) -> None:
        self._jobs[number].reported.emit(value)

    @Slot(object, object)
    def _on_failed(self, number: int, error: BaseException) -> None:
        if not isinstance(error, UserError):
            _log.error("A job failed", exc_info=error)
        self._jobs[number].failed.emit(error)

    @Slot(object)
    def _on_finished(self, number: int) -> None:
        job = self._jobs.pop(number)  # a bound signal alone would not keep it alive
        job.finished.emit()
        if not self._jobs:
            self.idle.emit()


def failure_sentence(error: BaseException) -> str:
    """Return what to tell a person about the exception that ended a job."""
    return str(error) if isinstance(error, UserError) else f"A fault in the program: {error}. The log has the details."


class GarbageCollector(QObject):
    """Collects reference cycles in the GUI thread only.

    Python may otherwise run its collector in the working thread and free a QObject there, which crashes Qt.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        """Take over from the automatic collector."""
        super().__init__(parent)
        gc.disable()
        self._timer = QTimer(self)
        self._timer.timeout.connect(self._collect)
        self._timer.start(COLLECT_EVERY_MS)

    @Slot()
    def _collect(self) -> None:
        gc.collect()

    def stop(self) -> None:
        """Give collecting back to Python."""
        self._timer.stop()
        gc.enable()
