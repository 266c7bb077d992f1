"""Loading a pair on the engine thread, with progress and a way out."""

from functools import partial

from PySide6.QtCore import QObject, Signal, Slot
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QProgressBar, QPushButton, QWidget

from draftlight.chat.service import ChatService, PairReady
from draftlight.engine.events import ModelLoading
from draftlight.settings import PairSettings
from draftlight.ui.jobs import Job, JobThread

_STEPS = 1000


class PairLoader(QObject):
    """At most one pair is being loaded; choosing another gives the first up."""

    step = Signal(object)  # ModelLoading
    ready = Signal(object)  # PairReady
    failed = Signal(object)  # the exception
    given_up = Signal()
    ended = Signal()

    def __init__(self, service: ChatService, engine: JobThread, parent: QObject | None = None) -> None:
        """Load by `service` on the `engine` thread."""
        super().__init__(parent)
        self._service = service
        self._engine = engine
        self._job: Job | None = None
        self._done = False

    @property
    def loading(self) -> bool:
        """Whether a pair is being loaded."""
        return self._job is not None

    def load(self, pair: PairSettings) -> None:
        """Load this pair in place of the one that is loaded or being loaded."""
        if self._job is not None:
            self._forget(self._job)
        self._done = False
        self._job = Job(partial(self._service.load, pair))
        self._job.reported.connect(self._on_reported)
        self._job.failed.connect(self._on_failed)
        self._job.finished.connect(self._on_finished)
        self._engine.start(self._job)

    @Slot()
    def cancel(self) -> None:
        """Give the loading up."""
        if self._job is not None:
            self._job.cancel()

    def _forget(self, job: Job) -> None:
        job.cancel()
        job.reported.disconnect(self._on_reported)
        job.failed.disconnect(self._on_failed)
        job.finished.disconnect(self._on_finished)

    @Slot(object)
    def _on_reported(self, event: object) -> None:
        if isinstance(event, ModelLoading):
            self.step.emit(event)
        elif isinstance(event, PairReady):
            self._done = True
            self.ready.emit(event)

    @Slot(object)
    def _on_failed(self, error: BaseException) -> None:
        self._done = True
        self.failed.emit(error)

    @Slot()
    def _on_finished(self) -> None:
        self._job = None
        if not self._done:
            self.given_up.emit()
        self.ended.emit()


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
