"""Learning from use in the window: allowed first, told as it goes, before and after shown, undone by one button."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtWidgets import QCheckBox
from pytestqt.qtbot import QtBot

from draftlight import paths
from draftlight.errors import UserError
from draftlight.forge.consent import let_learn, may_learn
from draftlight.forge.reports import AcceptanceMeasured, ChatsWritten, Report, Stage, StageBegun, Trained, Tuned
from draftlight.forge.tuned_files import tuning_request
from draftlight.library.scanner import ModelFile, list_models
from draftlight.settings import PairSettings
from draftlight.ui.forge.run import Phase
from draftlight.ui.forge.window import ForgeWindow
from gui.forging import ScriptedForge, buttons, press, question, words
from gui.opened import Opened
from unit.forge.test_tuned_files import tune
from unit.library.conftest import gguf_bytes

BETTER = Tuned(Path("/models/small-tuned.gguf"), 0.4, 0.47, 50, 8)
LEARNING: tuple[Report, ...] = (
    StageBegun(Stage.LOADING, "Loading both"),
    StageBegun(Stage.CHATS, "Reading what it answered"),
    ChatsWritten(300, 1_200, 10.0),
    StageBegun(Stage.TRAINING, "Tuning small"),
    Trained(1_000, 4_000, 3.5, 30.0),
    AcceptanceMeasured(1_000, 0.44, 1.4, 3.5),
    StageBegun(Stage.MEASURING, "Testing"),
    BETTER,
)
IN_TRAINING = 6


@pytest.fixture
def models(tmp_path: Path) -> tuple[ModelFile, ...]:
    folder = tmp_path / "models"
    folder.mkdir()
    for name in ("big", "small"):
        (folder / f"{name}.gguf").write_bytes(gguf_bytes())
    return list_models([folder])


@pytest.fixture
def pair(models: tuple[ModelFile, ...]) -> PairSettings:
    return PairSettings(models[0].path, models[1].path, n_ctx=512)


@pytest.fixture
def opened(
    ready: Callable[..., Opened], models: tuple[ModelFile, ...], pair: PairSettings
) -> Callable[..., tuple[Opened, ForgeWindow]]:
    """Open the window with a pair loaded, and the forge's window."""

    def make(forge: ScriptedForge, loaded: PairSettings = pair, *, allowed: bool = False) -> tuple[Opened, ForgeWindow]:
        let_learn(allowed=allowed)
        one = ready(pair=loaded, models=models, forge=forge)
        one.act("Make a draft model …")
        assert one.window.forge.window is not None
        return one, one.window.forge.window

    return make


def consent(window: ForgeWindow) -> QCheckBox:
    (box,) = window.findChildren(QCheckBox)
    return box


def test_nothing_is_learned_from_chats_until_that_is_allowed(opened: Callable[..., tuple[Opened, ForgeWindow]]) -> None:
    _, window = opened(ScriptedForge())
    assert not consent(window).isChecked()
    assert "Tune it" not in buttons(window)
    assert "Nothing leaves the computer, and nothing is kept but the tuned draft model" in words(window)
    consent(window).click()
    assert may_learn()
    assert "Tune it" in buttons(window)
    consent(window).click()
    assert not may_learn()
    assert "Tune it" not in buttons(window)


def test_consent_that_was_withdrawn_elsewhere_is_withdrawn_in_the_window(
    opened: Callable[..., tuple[Opened, ForgeWindow]],
) -> None:
    one, window = opened(ScriptedForge(), allowed=True)
    assert consent(window).isChecked()
    let_learn(allowed=False)
    one.act("Make a draft model …")
    assert not consent(window).isChecked()
    assert "Tune it" not in buttons(window)


def test_consent_that_cannot_be_noted_is_not_shown_as_given(
    opened: Callable[..., tuple[Opened, ForgeWindow]],
) -> None:
    one, window = opened(ScriptedForge())
    paths.settings_file().mkdir(parents=True)
    consent(window).click()
    assert not consent(window).isChecked()
    assert "The settings cannot be saved" in one.window.notices.sentences[-1]


def test_without_a_draft_model_there_is_nothing_to_tune_but_consent_can_be_withdrawn(
    opened: Callable[..., tuple[Opened, ForgeWindow]], pair: PairSettings
) -> None:
    alone = replace(pair, draft=None)
    _, window = opened(ScriptedForge(), alone)
    assert not consent(window).isVisible()
    _, window = opened(ScriptedForge(), alone, allowed=True)
    assert consent(window).isChecked()
    assert "Tune it" not in buttons(window)
    consent(window).click()
    assert not may_learn()


def test_a_tuning_is_told_as_it_goes_and_its_result_can_be_used(
    qtbot: QtBot, opened: Callable[..., tuple[Opened, ForgeWindow]], pair: PairSettings
) -> None:
    forge = ScriptedForge(LEARNING, hold_at=IN_TRAINING)
    one, window = opened(forge, allowed=True)
    press(window, "Tune it")
    qtbot.waitUntil(lambda: bool(one.window.forge.run.progress.acceptances))
    (request,) = forge.requests
    assert (request.target, request.tune) == (pair.target, pair.draft)
    told = words(window)
    assert "Tuning small on your chats" in told
    assert "Read your chats" in told
    assert "Measure what is possible" not in told
    assert "What the target &writes" not in told
    assert "Tuning the draft model: learning from them" in one.window.status.text
    press(window, "Cancel …")
    assert "begins anew" in question(window).informativeText()
    press(question(window), "Let it run")
    forge.go_on.set()
    qtbot.waitUntil(lambda: one.window.forge.run.phase is Phase.TUNED)
    assert "40.0 % of the target's tokens were foretold before, 47.0 % after" in words(window)
    with qtbot.waitSignal(one.window.loader.ended):
        press(window, "Use it now")
    assert one.loader.loaded[-1].draft == BETTER.path
    assert not window.isVisible()


def test_no_gain_is_told_and_offers_nothing_to_use(
    qtbot: QtBot, opened: Callable[..., tuple[Opened, ForgeWindow]]
) -> None:
    one, window = opened(ScriptedForge([replace(BETTER, path=None, after=0.39)]), allowed=True)
    press(window, "Tune it")
    qtbot.waitUntil(lambda: one.window.forge.run.phase is Phase.TUNED)
    assert "Tuning has brought nothing" in words(window)
    assert set(buttons(window)) == {"Back"}
    press(window, "Back")
    assert window.page is window.choice


def test_what_was_tuned_earlier_and_stays_is_told(
    qtbot: QtBot, opened: Callable[..., tuple[Opened, ForgeWindow]]
) -> None:
    one, window = opened(ScriptedForge([replace(BETTER, path=None, earlier=0.5)]), allowed=True)
    press(window, "Tune it")
    qtbot.waitUntil(lambda: one.window.forge.run.phase is Phase.TUNED)
    assert "50.0 % by the draft model tuned earlier, 47.0 % after" in words(window)
    assert "deleted since; a reset deletes it" in words(window)


def test_a_refusal_is_told_and_trying_again_tunes_again(
    qtbot: QtBot, opened: Callable[..., tuple[Opened, ForgeWindow]]
) -> None:
    forge = ScriptedForge((), failure=UserError("There are 3 answers, and 17 more are needed.", "Chat some more."))
    one, window = opened(forge, allowed=True)
    press(window, "Tune it")
    qtbot.waitUntil(lambda: one.window.forge.run.phase is Phase.FAILED)
    assert "The draft model was not tuned" in words(window)
    assert "17 more are needed" in words(window)
    press(window, "Try again")
    qtbot.waitUntil(lambda: one.window.forge.run.phase is Phase.FAILED and not one.window.forge.run.busy)
    assert [request.tune is not None for request in forge.requests] == [True, True]


def test_what_was_tuned_unseen_is_a_notice(qtbot: QtBot, opened: Callable[..., tuple[Opened, ForgeWindow]]) -> None:
    forge = ScriptedForge(LEARNING, hold_at=IN_TRAINING)
    one, window = opened(forge, allowed=True)
    press(window, "Tune it")
    window.close()
    forge.go_on.set()
    qtbot.waitUntil(lambda: one.window.forge.run.phase is Phase.TUNED)
    (notice,) = one.window.notices.sentences
    assert "47.0 % after" in notice


def test_a_reset_deletes_the_tuned_draft_model_and_loads_the_untuned_one(
    qtbot: QtBot, opened: Callable[..., tuple[Opened, ForgeWindow]], pair: PairSettings
) -> None:
    assert pair.draft is not None
    made = tune(tuning_request(pair.target, pair.draft))
    one, window = opened(ScriptedForge(), replace(pair, draft=made), allowed=True)
    assert {"Tune it anew", "Reset"} <= set(buttons(window))
    with qtbot.waitSignal(one.window.loader.ended):
        press(window, "Reset")
    assert not made.exists()
    assert one.loader.loaded[-1].draft == pair.draft
    assert one.saved == [] or one.saved[-1].pair != replace(pair, draft=made)
    assert "Reset" not in buttons(window)
    assert "Tune it" in buttons(window)
