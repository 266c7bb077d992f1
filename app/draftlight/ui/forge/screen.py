"""What the main window has of the forge: a run that goes on by itself, and a window made when first asked for."""

from collections.abc import Sequence

from PySide6.QtCore import QObject, Qt, Signal, Slot

from draftlight.errors import UserError
from draftlight.forge.consent import let_learn, may_learn
from draftlight.forge.figures import tuned_sentences
from draftlight.forge.reports import Forged, Tuned
from draftlight.forge.tuned_files import reset
from draftlight.library.scanner import ModelFile
from draftlight.settings import PairSettings
from draftlight.ui.forge.run import Forge, ForgeRun
from draftlight.ui.forge.window import ForgeWindow
from draftlight.ui.forge.words import worth
from draftlight.ui.jobs import failure_sentence
from draftlight.ui.lists import model_name


class ForgeScreen(QObject):
    """Opens and closes the forge's window, and says outside of it how the run is."""

    told = Signal(str)  # what the run does, for the bottom line; empty where nothing runs
    noticed = Signal(str)  # how it ended while the window was closed
    files_changed = Signal()  # there is a new model file, or one is gone
    use_asked = Signal(object, object)  # the target and its new draft model, as paths

    def __init__(self, forge: Forge, parent: QObject | None = None) -> None:
        """Make draft models by `forge`."""
        super().__init__(parent)
        self._pair: PairSettings | None = None
        self.run = ForgeRun(forge, self)
        self.run.changed.connect(self._tell)
        self.run.reported.connect(self._tell)
        self.run.made.connect(self._on_made)
        self.run.tuned.connect(self._on_tuned)
        self.run.failed.connect(self._on_failed)
        self.window: ForgeWindow | None = None

    def open(self, models: Sequence[ModelFile], pair: PairSettings | None) -> None:
        """Show the window, with the run that there is, or with these models to choose from, the pair's target first."""
        if self.window is None:
            self.window = ForgeWindow(self.run)
            self.window.use_asked.connect(self._use)
            self.window.choice.own_chats.allowed.connect(self._allow)
            self.window.choice.own_chats.reset_asked.connect(self._reset)
        self.show_pair(pair)
        self.window.show_models(models, None if pair is None else pair.target)
        self.window.setWindowState(self.window.windowState() & ~Qt.WindowState.WindowMinimized)
        self.window.show()
        self.window.raise_()
        self.window.activateWindow()

    @Slot(object)
    def show_models(self, models: Sequence[ModelFile]) -> None:
        """Offer these models, what is chosen first: they were looked for while the window is open."""
        if self.window is not None:
            order = self.window.choice.order
            self.window.show_models(models, None if order is None else order.target)

    def show_pair(self, pair: PairSettings | None) -> None:
        """Offer to tune the draft model of this pair, the one in force."""
        self._pair = pair
        if self.window is not None:
            self.window.show_pair(pair, allowed=may_learn())

    def close(self) -> None:
        """Close the window; the run goes on."""
        if self.window is not None:
            self.window.close()

    def shutdown(self) -> bool:
        """Stop the run, so that it can be resumed; tell whether its thread has ended."""
        return self.run.shutdown()

    @property
    def _in_sight(self) -> bool:
        return self.window is not None and self.window.isVisible()

    @Slot()
    def _tell(self) -> None:
        self.told.emit(self.run.sentence)

    @Slot(object)
    def _on_made(self, forged: Forged) -> None:
        self.files_changed.emit()
        if not self._in_sight:
            name = model_name(forged.path)
            self.noticed.emit(f"The draft model {name} is made. {worth(forged.card)} The Models menu has the rest.")

    @Slot(object)
    def _on_tuned(self, tuned: Tuned) -> None:
        self.files_changed.emit()
        if not self._in_sight:
            self.noticed.emit(" ".join(tuned_sentences(tuned)))

    @Slot(bool)
    def _allow(self, allowed: bool) -> None:  # noqa: FBT001 - Qt's signal
        try:
            let_learn(allowed=allowed)
        except UserError as error:
            self.noticed.emit(str(error))
            self.show_pair(self._pair)

    @Slot(object)
    def _reset(self, untuned_pair: PairSettings) -> None:
        """Go back to the untuned draft model where the tuned one is loaded, and delete that."""
        origin = untuned_pair.draft
        if origin is None:
            return
        if self._pair is not None and self._pair.draft not in {None, origin}:
            self.use_asked.emit(untuned_pair.target, origin)
            self.show_pair(untuned_pair)
        try:
            reset(origin, untuned_pair.target)
        except UserError as error:
            self.noticed.emit(str(error))
        self.files_changed.emit()
        if self.window is not None:
            self.window.choice.look_again()

    @Slot(object)
    def _on_failed(self, error: BaseException) -> None:
        if not self._in_sight:
            self.noticed.emit(failure_sentence(error))

    @Slot(object)
    def _use(self, made: Forged | Tuned) -> None:
        order = self.run.order
        if order is not None:
            self.use_asked.emit(order.target, made.path)
            self.close()
