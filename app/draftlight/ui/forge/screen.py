"""What the main window has of the forge: a run that goes on by itself, and a window made when first asked for."""

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QObject, Qt, Signal, Slot

from draftlight.forge.reports import Forged
from draftlight.library.scanner import ModelFile
from draftlight.ui.forge.run import Forge, ForgeRun
from draftlight.ui.forge.window import ForgeWindow
from draftlight.ui.forge.words import worth
from draftlight.ui.jobs import failure_sentence
from draftlight.ui.lists import model_name


class ForgeScreen(QObject):
    """Opens and closes the forge's window, and says outside of it how the run is."""

    told = Signal(str)  # what the run does, for the bottom line; empty where nothing runs
    noticed = Signal(str)  # how it ended while the window was closed
    made = Signal()  # there is a new model file
    use_asked = Signal(object, object)  # the target and its new draft model, as paths

    def __init__(self, forge: Forge, parent: QObject | None = None) -> None:
        """Make draft models by `forge`."""
        super().__init__(parent)
        self.run = ForgeRun(forge, self)
        self.run.changed.connect(self._tell)
        self.run.reported.connect(self._tell)
        self.run.made.connect(self._on_made)
        self.run.failed.connect(self._on_failed)
        self.window: ForgeWindow | None = None

    def open(self, models: Sequence[ModelFile], target: Path | None) -> None:
        """Show the window, with the run that there is, or with these models to choose from, `target` first."""
        if self.window is None:
            self.window = ForgeWindow(self.run)
            self.window.use_asked.connect(self._use)
        self.window.show_models(models, target)
        self.window.setWindowState(self.window.windowState() & ~Qt.WindowState.WindowMinimized)
        self.window.show()
        self.window.raise_()
        self.window.activateWindow()

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
        self.made.emit()
        if not self._in_sight:
            name = model_name(forged.path)
            self.noticed.emit(f"The draft model {name} is made. {worth(forged.card)} The Models menu has the rest.")

    @Slot(object)
    def _on_failed(self, error: BaseException) -> None:
        if not self._in_sight:
            self.noticed.emit(failure_sentence(error))

    @Slot(object)
    def _use(self, forged: Forged) -> None:
        order = self.run.order
        if order is not None:
            self.use_asked.emit(order.target, forged.path)
            self.close()
