"""A forge that plays reports on the run's own thread, and the window around it, handled as a person would."""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QComboBox, QLabel, QMessageBox, QWidget
from pytestqt.qtbot import QtBot

from draftlight.engine.cancel import CancelToken
from draftlight.forge.client import Control
from draftlight.forge.reports import (
    AcceptanceMeasured,
    ChatsWritten,
    Forged,
    Held,
    Outlook,
    Report,
    Stage,
    StageBegun,
    Trained,
)
from draftlight.forge.request import ForgeRequest, request_for
from draftlight.library.scanner import ModelFile
from draftlight.ui.forge.run import ForgeRun, Phase
from draftlight.ui.forge.window import ForgeWindow
from scripted_forge import CARD, WORTH_IT

MADE = Forged(Path("/models/big-draft.gguf"), CARD)
SAMPLE = "user: Why is the sky blue?\nanswer: The air scatters"
LEARNING: tuple[Report, ...] = (
    StageBegun(Stage.LOADING, "Loading the target"),
    WORTH_IT,
    StageBegun(Stage.CHATS, "The target writes chats"),
    ChatsWritten(300, 1_200, 900.0, SAMPLE),
    StageBegun(Stage.TRAINING, "The draft model learns"),
    Trained(1_000, 4_000, 3.5, 750.0),
    AcceptanceMeasured(1_000, 0.31, 1.4, 3.5),
    Trained(2_000, 4_000, 2.25, 720.0),
    AcceptanceMeasured(2_000, 0.52, 1.8, 2.25),
    StageBegun(Stage.MEASURING, "Measuring the draft model"),
    MADE,
)
IN_TRAINING = 9  # reports of LEARNING before its training is over


class ScriptedForge:
    """Plays reports. Before the one at `hold_at` it waits until `go_on` is set or the run is cancelled.

    While it waits it takes notice of a pause, once `notices` is set.
    """

    def __init__(
        self,
        reports: Sequence[Report] = LEARNING,
        *,
        outlook: Outlook = WORTH_IT,
        hold_at: int | None = None,
        failure: Exception | None = None,
    ) -> None:
        self.reports = reports
        self.outlook = outlook
        self.hold_at = hold_at
        self.failure = failure
        self.requests: list[ForgeRequest] = []
        self.controls: list[Control] = []
        self.holding = threading.Event()
        self.go_on = threading.Event()
        self.notices = threading.Event()
        self.stopped = threading.Event()

    def __call__(self, request: ForgeRequest, cancel: CancelToken, control: Control) -> Iterator[Report]:
        self.requests.append(request)
        self.controls.append(control)
        if request.only_outlook:
            yield StageBegun(Stage.OUTLOOK, "Measuring what is possible")
            if self.failure is None:
                yield self.outlook
        else:
            yield from self._make(cancel, control)
        if self.failure is not None and not cancel.cancelled:
            raise self.failure

    def _make(self, cancel: CancelToken, control: Control) -> Iterator[Report]:
        for number, report in enumerate(self.reports):
            if number == self.hold_at:
                self.holding.set()
                waiting = False
                while not cancel.cancelled and not self.go_on.wait(0.005):
                    if self.notices.is_set() and control.paused is not waiting:
                        waiting = control.paused
                        yield Held(waiting)
            if cancel.cancelled:
                self.stopped.set()
                return
            yield report


class Forging:
    """The forge's window and its run."""

    def __init__(self, forge: ScriptedForge) -> None:
        self.forge = forge
        self.run = ForgeRun(forge)
        self.window = ForgeWindow(self.run)

    def until(self, qtbot: QtBot, phase: Phase) -> None:
        qtbot.waitUntil(lambda: self.run.phase is phase, timeout=10_000)

    def in_training(self, qtbot: QtBot) -> None:
        """Wait until the script holds and everything before that has been told."""
        n_points = sum(isinstance(report, Trained) for report in self.forge.reports[: self.forge.hold_at])
        qtbot.waitUntil(lambda: self.forge.holding.is_set() and len(self.run.progress.losses) == n_points)

    def press(self, text: str) -> None:
        press(self.window, text)


def buttons(within: QWidget) -> dict[str, QAbstractButton]:
    """Return the buttons in sight that can be pressed, by their text without the mark of the key."""
    found = within.findChildren(QAbstractButton)
    return {one.text().replace("&", ""): one for one in found if one.text() and one.isVisible() and one.isEnabled()}


def press(within: QWidget, text: str) -> None:
    QTest.mouseClick(buttons(within)[text], Qt.MouseButton.LeftButton)


def words(within: QWidget) -> str:
    """Return all text in sight."""
    return "\n".join(label.text() for label in within.findChildren(QLabel) if label.isVisible())


def choices(within: QWidget, name: str) -> QComboBox:
    return next(box for box in within.findChildren(QComboBox) if box.accessibleName() == name)


def question(window: QWidget) -> QMessageBox:
    """Return the question that is open over a window."""
    (box,) = [box for box in window.findChildren(QMessageBox) if box.isVisible()]
    return box


def target_of(models: tuple[ModelFile, ...]) -> Path:
    return next(model.path for model in models if model.path.stem == "big")


def leave_unfinished(target: Path) -> Path:
    """Leave a run of the target as if it had been killed; return its folder."""
    folder = request_for(target).folder
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text("{}")
    return folder


def begin(qtbot: QtBot, made: Forging) -> None:
    """Go through the outlook and on until the script holds in the training."""
    made.press("Measure what is possible")
    made.until(qtbot, Phase.OUTLOOK)
    made.press("Make the draft model")
    made.in_training(qtbot)
