"""Loading a pair on the engine thread, with progress and a way out."""

from collections.abc import Iterator
from dataclasses import dataclass

from PySide6.QtCore import QObject, Signal, Slot
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QProgressBar, QPushButton, QWidget

from draftlight.chat.service import ChatEvent, ChatService, PairReady
from draftlight.engine.cancel import CancelToken
from draftlight.engine.events import ModelLoading
from draftlight.settings import PairSettings
from draftlight.ui.jobs import Job, JobThread, Work

WAITING = "Waiting for what is running to end"
_STEPS = 1000


@dataclass(frozen=True, slots=True)
class PairInForce:
    """The pair that is loaded. `asked` is how it was wanted, `ready.settings` how it works on this computer."""

    asked: PairSettings
    ready: PairReady


@dataclass(frozen=True, slots=True)
class _Begun:
    """The engine frees the loaded pair now, in order to load this one."""

    asked: PairSettings


class PairLoader(QObject):
    """At most one pair is being loaded; choosing another gives the first up.

    Until its turn comes the pair before it stays loaded, and stays in force where the turn is given up.
    """

    step = Signal(object)  # ModelLoading
    ready = Signal(object)  # PairInForce
    failed = Signal(object)  # the exception
    given_up = Signal(object)  # the PairInForce that is still loaded, or None
    ended = Signal()

    def __init__(self, service: ChatService, engine: JobThread, parent: QObject | None = None) -> None:
        """Load by `service` on the `engine` thread."""
        super().__init__(parent)
        self._service = service
        self._engine = engine
        self._job: Job | None = None
        self._begun: PairSettings | None = None  # what the engine loads, perhaps for a job that was given up
        self._loaded: PairInForce | None = None
        self._done = False

    @property
    def loading(self) -> bool:
        """Whether a pair is being loaded or waits for that."""
        return self._job is not None

    def load(self, pair: PairSettings) -> None:
        """Load this pair in place of the one that is loaded or being loaded."""
        if self._job is not None:
            self._forget(self._job)
        if self._engine.busy:
            self.step.emit(ModelLoading(WAITING))
        self._done = False
        self._job = Job(_loading(self._service, pair))
        self._job.reported.connect(self._on_reported)
        self._job.failed.connect(self._on_failed)
        self._job.finished.connect(self._on_finished)
        self._engine.start(self._job)

    @Slot()
    def cancel(self) -> None:
        """Give the loading up: at once while it waits for its turn."""
        job = self._job
        if job is None:
            return
        job.cancel()
        if self._loaded is not None:
            self._forget(job)
            self._job = None
            self.given_up.emit(self._loaded)
            self.ended.emit()

    def _forget(self, job: Job) -> None:
        """Hear no more of a job than what it leaves loaded."""
        job.cancel()
        job.failed.disconnect(self._on_failed)
        job.finished.disconnect(self._on_finished)

    @Slot(object)
    def _on_reported(self, event: object) -> None:
        wanted = self._job is None or self.sender() is self._job
        if isinstance(event, _Begun):
            self._begun, self._loaded = event.asked, None
            if self._job is None:  # it was given up a moment too late
                self.given_up.emit(None)
        elif isinstance(event, PairReady) and self._begun is not None:
            self._loaded = PairInForce(self._begun, event)
            if wanted:
                self._done = True
                self.ready.emit(self._loaded)
        elif isinstance(event, ModelLoading) and self.sender() is self._job:
            self.step.emit(event)

    @Slot(object)
    def _on_failed(self, error: BaseException) -> None:
        self._done = True
        self.failed.emit(error)

    @Slot()
    def _on_finished(self) -> None:
        self._job = None
        if not self._done:
            self.given_up.emit(self._loaded)
        self.ended.emit()


def _loading(service: ChatService, pair: PairSettings) -> Work:
    """Return the work of loading, which says first that the pair before is gone."""

    def work(cancel: CancelToken) -> Iterator[ChatEvent | _Begun]:
        yield _Begun(pair)
        yield from service.load(pair, cancel)

    return work


class LoadingBar(QFrame):
    """What is being done to make the models ready, how far it is, and Cancel."""

    cancelled = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        """Start hidden."""
        super().__init__(parent)
        self._step = QLabel("", self)
        self._progress = QProgressBar(self)
        self._progress.setTextVisible(False)
        self._progress.setFixedWidth(220)
        self._progress.setAccessibleName("Loading the models")
        cancel = QPushButton("Cancel", self)
        cancel.setAccessibleName("Cancel loading the models")
        cancel.clicked.connect(self.cancelled)
        row = QHBoxLayout(self)
        row.setContentsMargins(16, 0, 16, 8)
        row.setSpacing(14)
        row.addWidget(self._step, 1)
        row.addWidget(self._progress)
        row.addWidget(cancel)
        self.hide()

    @Slot(object)
    def show_step(self, loading: ModelLoading) -> None:
        """Show a step and its progress."""
        self._step.setText(loading.step)
        if loading.fraction is None:
            self._progress.setRange(0, 0)
        else:
            self._progress.setRange(0, _STEPS)
            self._progress.setValue(round(_STEPS * loading.fraction))
        self.show()
