"""How a run ends: with a card and what to do with it, or with a sentence, a remedy and a way on."""

from collections.abc import Callable

from PySide6.QtCore import QObject, QUrl, Slot
from PySide6.QtGui import QDesktopServices, QGuiApplication
from pytestqt.qtbot import QtBot

from draftlight.errors import UserError
from draftlight.forge.client import ForgeFailed
from draftlight.library.scanner import ModelFile
from draftlight.ui.forge.run import Phase
from gui.forging import (
    IN_TRAINING,
    MADE,
    Forging,
    buttons,
    target_of,
    words,
)


def test_the_card_tells_what_the_draft_model_is_worth_and_can_be_used(
    qtbot: QtBot, forging: Callable[..., Forging]
) -> None:
    made = forging()
    made.press("Measure what is possible")
    made.until(qtbot, Phase.OUTLOOK)
    made.press("Make the draft model")
    made.until(qtbot, Phase.MADE)
    told = words(made.window)
    assert "Foretells 58 % of the target's tokens on held-out chats (55 % of drafts accepted at K = 1), costs" in told
    assert "measured 1.27x (1.20 to 1.34)." in told
    assert str(MADE.path) in told
    assert "1.97 at K = 3" in told
    assert len(made.window.result.loss.points) == 2
    with qtbot.waitSignal(made.window.use_asked) as asked:
        made.press("Use it now")
    assert asked.args == [MADE]
    made.press("Make another")
    assert made.window.page is made.window.choice


class Opener(QObject):
    """Takes the desktop's place for files."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[QUrl] = []

    @Slot(QUrl)
    def open(self, url: QUrl) -> None:
        self.opened.append(url)


def test_the_file_is_shown_in_its_folder(qtbot: QtBot, forging: Callable[..., Forging]) -> None:
    made = forging()
    made.press("Measure what is possible")
    made.until(qtbot, Phase.OUTLOOK)
    made.press("Make the draft model")
    made.until(qtbot, Phase.MADE)
    opener = Opener()
    QDesktopServices.setUrlHandler("file", opener, "open")  # type: ignore[arg-type] # the stub asks for bytes, Qt refuses them
    made.press("Show in folder")
    QDesktopServices.unsetUrlHandler("file")
    assert opener.opened == [QUrl.fromLocalFile("/models")]


def test_a_failure_is_told_with_its_remedy_and_resumed_where_that_is_possible(
    qtbot: QtBot, forging: Callable[..., Forging]
) -> None:
    made = forging()
    made.press("Measure what is possible")
    made.until(qtbot, Phase.OUTLOOK)
    made.forge.failure = ForgeFailed("The disk is full.", "Free some space.", resumable=True)
    made.forge.reports = made.forge.reports[:IN_TRAINING]
    made.press("Make the draft model")
    made.until(qtbot, Phase.FAILED)
    assert "The disk is full.\nFree some space.\nWhat was done before is kept" in words(made.window)
    made.forge.failure = None
    made.press("Resume")
    made.until(qtbot, Phase.CHOOSING)
    assert not made.forge.requests[-1].only_outlook


def test_a_failure_with_a_command_offers_to_copy_it_and_to_try_again(
    qtbot: QtBot, forging: Callable[..., Forging]
) -> None:
    made = forging(failure=UserError("Packages are missing.", "Install them with: pip install x"))
    made.press("Measure what is possible")
    made.until(qtbot, Phase.FAILED)
    made.press("Copy the command")
    assert QGuiApplication.clipboard().text() == "pip install x"
    made.forge.failure = None
    made.press("Try again")
    made.until(qtbot, Phase.OUTLOOK)


def test_a_fault_of_the_program_is_told_as_one(qtbot: QtBot, forging: Callable[..., Forging]) -> None:
    made = forging(failure=ValueError("odd"))
    made.press("Measure what is possible")
    made.until(qtbot, Phase.FAILED)
    assert "A fault in the program: odd.\nThe log has the details." in words(made.window)
    assert set(buttons(made.window)) == {"Try again", "Back"}


def test_a_target_that_has_gone_is_told(forging: Callable[..., Forging], models: tuple[ModelFile, ...]) -> None:
    made = forging()
    target_of(models).unlink()
    made.press("Measure what is possible")
    assert made.window.page is made.window.failure
    assert "cannot be read" in words(made.window)
