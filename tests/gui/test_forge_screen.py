"""The forge's rules in the whole window: reachable, told of in the bottom line, ended with the program, usable."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from draftlight.errors import UserError
from draftlight.library.scanner import ModelFile, list_models
from draftlight.settings import PairSettings
from draftlight.ui.forge.run import Order, Phase
from draftlight.ui.forge.window import ForgeWindow
from gui.forging import IN_TRAINING, LEARNING, MADE, ScriptedForge, choices, press, words
from gui.opened import Opened
from unit.library.conftest import gguf_bytes

_OFFER = "Make a draft model for it …"


@pytest.fixture
def models(tmp_path: Path) -> tuple[ModelFile, ...]:
    folder = tmp_path / "models"
    folder.mkdir()
    for name in ("other", "target"):
        (folder / f"{name}.gguf").write_bytes(gguf_bytes())
    return list_models([folder])


@pytest.fixture
def opened(qtbot: QtBot, ready: Callable[..., Opened], models: tuple[ModelFile, ...]) -> Callable[..., Opened]:
    """Open the window with `target` loaded and the models found."""

    def make(forge: ScriptedForge) -> Opened:
        one = ready(pair=PairSettings(models[1].path, n_ctx=512), models=models, forge=forge)
        qtbot.waitUntil(lambda: bool(one.window.picker.models))
        return one

    return make


def forge_window(one: Opened) -> ForgeWindow:
    assert one.window.forge.window is not None
    return one.window.forge.window


def begin(qtbot: QtBot, one: Opened, forge: ScriptedForge) -> None:
    """Go through the outlook and on until the script holds in the training."""
    one.act("Make a draft model …")
    press(forge_window(one), "Measure what is possible")
    qtbot.waitUntil(lambda: one.window.forge.run.phase is Phase.OUTLOOK)
    press(forge_window(one), "Make the draft model")
    qtbot.waitUntil(lambda: forge.holding.is_set() and len(one.window.forge.run.progress.losses) == 2)


def test_the_menu_opens_the_window_with_the_pairs_target_first(opened: Callable[..., Opened]) -> None:
    one = opened(ScriptedForge())
    assert one.window.forge.window is None, "nothing is made before it is asked for"
    one.act("Make a draft model …")
    window = forge_window(one)
    assert window.isVisible()
    assert not window.isModal()
    targets = choices(window, "Target")
    assert [targets.itemText(row).split()[0] for row in range(targets.count())] == ["target", "other"]


def test_models_that_are_found_while_the_window_is_open_are_offered_and_the_choice_stays(
    opened: Callable[..., Opened], models: tuple[ModelFile, ...]
) -> None:
    one = opened(ScriptedForge())
    one.act("Make a draft model …")
    targets = choices(forge_window(one), "Target")
    targets.setCurrentIndex(1)
    one.window.picker.models_found.emit((*models, replace(models[0], path=models[0].path.with_name("new.gguf"))))
    assert {targets.itemText(row).split()[0] for row in range(targets.count())} == {"target", "other", "new"}
    assert targets.currentText().split()[0] == "other"


def test_the_bottom_line_tells_of_a_run_whose_window_is_closed_and_one_can_go_on_chatting(
    qtbot: QtBot, opened: Callable[..., Opened]
) -> None:
    forge = ScriptedForge(hold_at=IN_TRAINING)
    one = opened(forge)
    begin(qtbot, one, forge)
    forge_window(one).close()
    assert "Making a draft model: training, 12 min left" in one.window.status.text
    one.send("What is the capital of France?")
    one.finish(qtbot)
    assert "Paris" in one.window.transcript.toPlainText()
    one.act("Make a draft model …")
    assert forge_window(one).page is forge_window(one).running
    forge_window(one).close()
    forge.go_on.set()
    qtbot.waitUntil(lambda: one.window.forge.run.phase is Phase.MADE)
    assert "Making" not in one.window.status.text
    (notice,) = one.window.notices.sentences
    assert "The draft model big-draft is made. Foretells 58 % of the target's tokens" in notice


def test_a_run_that_fails_unseen_is_told_as_a_notice(qtbot: QtBot, opened: Callable[..., Opened]) -> None:
    forge = ScriptedForge(LEARNING[:-1], hold_at=IN_TRAINING)
    one = opened(forge)
    begin(qtbot, one, forge)
    forge_window(one).close()
    forge.failure = UserError("The disk is full.", "Free some space.")
    forge.go_on.set()
    qtbot.waitUntil(lambda: one.window.notices.sentences == ["The disk is full. Free some space."])


def test_quitting_closes_the_forges_window_and_stops_the_run(qtbot: QtBot, opened: Callable[..., Opened]) -> None:
    forge = ScriptedForge(hold_at=IN_TRAINING)
    one = opened(forge)
    begin(qtbot, one, forge)
    one.window.close()
    assert not forge_window(one).isVisible()
    assert one.window.shutdown()
    assert forge.stopped.is_set()


def test_an_open_window_of_the_forge_does_not_keep_the_program_alive(opened: Callable[..., Opened]) -> None:
    one = opened(ScriptedForge())
    one.act("Make a draft model …")
    keeping = [window for window in QApplication.topLevelWidgets() if window.isVisible()]
    assert forge_window(one) in keeping
    one.window.close()
    assert [window for window in QApplication.topLevelWidgets() if window.isVisible()] == []


def test_use_it_now_loads_the_target_with_its_new_draft_model(
    qtbot: QtBot, opened: Callable[..., Opened], models: tuple[ModelFile, ...]
) -> None:
    one = opened(ScriptedForge())
    one.window.forge.run.make(Order(models[0].path))
    qtbot.waitUntil(lambda: one.window.forge.run.phase is Phase.MADE)
    one.act("Make a draft model …")
    with qtbot.waitSignal(one.window.loader.ended):
        press(forge_window(one), "Use it now")
    expected = PairSettings(models[0].path, MADE.path, ngram=True, n_ctx=512)
    assert one.loader.loaded[-1] == replace(expected, exact=False)
    assert not forge_window(one).isVisible(), "the chat is in sight"


def test_a_target_without_a_draft_model_is_offered_one_in_the_list_of_drafts(
    qtbot: QtBot, opened: Callable[..., Opened]
) -> None:
    one = opened(ScriptedForge())
    drafts = choices(one.window.picker, "Draft")
    qtbot.waitUntil(lambda: drafts.findText(_OFFER) >= 0)
    row = drafts.findText(_OFFER)
    assert row == drafts.count() - 1
    before = drafts.currentText()
    drafts.setCurrentIndex(row)
    drafts.activated.emit(row)
    assert drafts.currentText() == before, "it is no draft model"
    assert "Make a draft model" in words(forge_window(one))
    assert len(one.loader.loaded) == 1, "nothing is loaded"
