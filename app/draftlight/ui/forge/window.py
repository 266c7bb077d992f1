"""The forge's window: one page for each state of the run. Closing it leaves the run going."""

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QMessageBox, QPushButton, QStackedWidget, QVBoxLayout, QWidget

from draftlight.library.scanner import ModelFile
from draftlight.settings import PairSettings
from draftlight.ui.forge.choice import ChoicePage
from draftlight.ui.forge.outlook import OutlookPage
from draftlight.ui.forge.pieces import Page
from draftlight.ui.forge.result import FailurePage, ResultPage
from draftlight.ui.forge.run import ForgeRun, Order, Phase
from draftlight.ui.forge.running import RunningPage
from draftlight.ui.forge.tuned import TunedPage

_WIDTH, _HEIGHT = 820, 640


class ForgeWindow(QWidget):
    """Shows what the run is at and asks it for what the person wants. It does not own the run."""

    use_asked = Signal(object)  # Forged or Tuned

    def __init__(self, run: ForgeRun) -> None:
        """Show the run as it is now."""
        super().__init__()
        self.setWindowTitle("Make a draft model - Draftlight")
        self.setAttribute(Qt.WidgetAttribute.WA_QuitOnClose, False)
        self._run = run
        self._box: QMessageBox | None = None  # the question that is open, and of which phase it asks
        self._asked_in = Phase.CHOOSING
        self._over: Order | None = None
        self.choice = ChoicePage(self)
        self.outlook = OutlookPage(self)
        self.running = RunningPage(self)
        self.result = ResultPage(self)
        self.tuned = TunedPage(self)
        self.failure = FailurePage(self)
        self._pages = QStackedWidget(self)
        for page in (self.choice, self.outlook, self.running, self.result, self.tuned, self.failure):
            self._pages.addWidget(page)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(self._pages)
        self.resize(_WIDTH, _HEIGHT)
        self._connect()
        self._show_phase()

    @property
    def page(self) -> QWidget | None:
        """The page in sight."""
        return self._pages.currentWidget()

    def show_models(self, models: Sequence[ModelFile], chosen: Path | None) -> None:
        """Offer these models as targets, `chosen` first."""
        self.choice.show_models(models, chosen)

    def show_pair(self, pair: PairSettings | None, *, allowed: bool) -> None:
        """Offer to tune the draft model of this pair; `allowed` says whether the person's chats may be learned from."""
        self.choice.own_chats.show_pair(pair, allowed=allowed)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Close on Escape, like any window that is not the main one."""
        if event.key() == Qt.Key.Key_Escape:
            self.close()
        else:
            super().keyPressEvent(event)

    def _connect(self) -> None:
        run = self._run
        run.changed.connect(self._show_phase)
        run.reported.connect(self._show_report)
        self.choice.look_asked.connect(self._look)
        self.choice.resume_asked.connect(self._make)
        self.choice.over_asked.connect(self._ask_to_start_over)
        self.outlook.make_asked.connect(self._make_it)
        self.outlook.back_asked.connect(run.choose)
        self.outlook.stop_asked.connect(run.stop)
        self.running.pause_asked.connect(run.pause)
        self.running.go_on_asked.connect(run.go_on)
        self.running.stop_asked.connect(self._ask_to_stop)
        self.running.close_asked.connect(self.close)
        self.result.use_asked.connect(self.use_asked)
        self.result.another_asked.connect(run.choose)
        self.choice.tune_asked.connect(self._make)
        self.tuned.use_asked.connect(self.use_asked)
        self.tuned.back_asked.connect(run.choose)
        self.failure.again_asked.connect(self._again)
        self.failure.back_asked.connect(run.choose)

    @Slot()
    def _show_phase(self) -> None:
        """Show the page that fits, and forget a question that no longer does."""
        run = self._run
        if self._box is not None and (run.phase is not self._asked_in or run.stopping):
            self._box.reject()
        if run.phase is Phase.OUTLOOK and run.order is not None and run.progress.outlook is not None:
            self.outlook.show_outlook(run.order, run.progress.outlook)
        elif run.phase is Phase.MADE and run.progress.forged is not None:
            self.result.show_result(run.progress.forged, run.progress)
        elif run.phase is Phase.TUNED and run.progress.tuned is not None:
            self.tuned.show_result(run.progress.tuned, run.progress)
        elif run.phase is Phase.FAILED:
            self.failure.show_failure(run.failure, resumable=run.resumable, tuning=run.tuning)
        elif run.phase is Phase.CHOOSING:
            self.choice.look_again()
        else:
            self._show_report()
        pages: dict[Phase, Page] = {
            Phase.CHOOSING: self.choice,
            Phase.LOOKING: self.outlook,
            Phase.OUTLOOK: self.outlook,
            Phase.MAKING: self.running,
            Phase.MADE: self.result,
            Phase.TUNED: self.tuned,
            Phase.FAILED: self.failure,
        }
        page = pages[run.phase]
        if page is not self.page:
            self._pages.setCurrentWidget(page)
            page.first.setFocus(Qt.FocusReason.OtherFocusReason)

    @Slot()
    def _show_report(self) -> None:
        run = self._run
        if run.order is None:
            return
        if run.phase is Phase.LOOKING:
            self.outlook.show_looking(run.order, run.progress, stopping=run.stopping)
        elif run.phase is Phase.MAKING:
            self.running.show_run(run.order, run.progress, paused=run.paused, stopping=run.stopping)

    @Slot(object)
    def _look(self, order: Order) -> None:
        self._run.look(order)

    @Slot(object)
    def _make(self, order: Order) -> None:
        self._run.make(order)

    @Slot()
    def _make_it(self) -> None:
        if self._run.order is not None:
            self._run.make(self._run.order)

    @Slot()
    def _again(self) -> None:
        """Go on from what is kept, tune once more, or look at what is possible anew."""
        run = self._run
        if run.order is not None:
            (run.make if run.resumable or run.tuning else run.look)(run.order)

    @Slot()
    def _ask_to_stop(self) -> None:
        question, more = "Stop making the draft model?", "What is done so far is kept: you can resume it later."
        if self._run.tuning:
            question, more = "Stop tuning the draft model?", "It stays as it was; tuning it later begins anew."
        self._ask(question, more, "&Stop it", "&Let it run").clicked.connect(self._run.stop)

    @Slot(object)
    def _ask_to_start_over(self, order: Order) -> None:
        self._over = order
        question, more = "Start over?", "What the unfinished run has done is deleted, and its time is lost."
        self._ask(question, more, "&Start over", "&Keep it").clicked.connect(self._start_over)

    @Slot()
    def _start_over(self) -> None:
        if self._over is not None:
            self._run.start_over(self._over)

    def _ask(self, question: str, more: str, yes: str, no: str) -> QPushButton:
        """Ask, one question at a time; return the button that says yes. Enter and Escape say no."""
        if self._box is not None:
            self._box.reject()
        box = QMessageBox(QMessageBox.Icon.Question, "Draftlight", question, QMessageBox.StandardButton.NoButton, self)
        box.setInformativeText(more)
        box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        box.finished.connect(self._forget_box)
        agree = box.addButton(yes, QMessageBox.ButtonRole.AcceptRole)
        refuse = box.addButton(no, QMessageBox.ButtonRole.RejectRole)
        box.setDefaultButton(refuse)
        box.setEscapeButton(refuse)
        box.open()
        self._box, self._asked_in = box, self._run.phase
        return agree

    @Slot()
    def _forget_box(self) -> None:
        self._box = None
