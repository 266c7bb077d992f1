"""The rules of loading: the remedy "load it again" can be done, a choice waits and can be taken back, wishes stay."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtWidgets import QComboBox, QLabel, QPushButton
from pytestqt.qtbot import QtBot

from draftlight.engine.costs import PairFacts, StepCosts
from draftlight.errors import UserError
from draftlight.library.scanner import ModelFile, list_models
from draftlight.settings import KvType, PairSettings
from draftlight.ui.models.loading import WAITING
from gui.opened import QUESTION, Opened
from gui.scripted import PAIR, StoryDecoder
from unit.library.conftest import gguf_bytes

OTHER = PairSettings(Path("/models/other.gguf"))
WISH = replace(PAIR, n_ctx=4096, n_gpu_layers=20, kv_type=KvType.Q8_0)


def works(asked: PairSettings) -> PairSettings:
    """Return what a computer without a graphics card makes of it."""
    return replace(asked, n_gpu_layers=0, kv_type=KvType.F16, use_extra_buffers=False)


def choose(opened: Opened, name: str, value: str) -> None:
    """Pick an entry of one of the lists, as a click does, also where it is the one that is shown."""
    box = next(one for one in opened.window.picker.findChildren(QComboBox) if one.accessibleName() == name)
    row = next(row for row in range(box.count()) if box.itemText(row).split()[0] == value)
    box.setCurrentIndex(row)
    box.activated.emit(row)


def texts(opened: Opened) -> Sequence[str]:
    """What the bar that shows the loading says; nothing while it is hidden."""
    bar = opened.window.loading
    return [label.text() for label in bar.findChildren(QLabel)] if bar.isVisible() else []


def composer_says(opened: Opened) -> list[str]:
    return [label.text() for label in opened.window.composer.findChildren(QLabel)]


def settle(qtbot: QtBot, opened: Opened) -> None:
    qtbot.waitUntil(lambda: not opened.window._engine.busy, timeout=10_000)


def test_the_same_pair_can_be_chosen_again_after_it_failed_to_load(
    qtbot: QtBot, opening: Callable[..., Opened]
) -> None:
    opened = opening()
    opened.loader.failure = UserError("The memory is not enough.", "Close other programs.")
    opened.window.start(None)
    settle(qtbot, opened)
    opened.loader.failure = None
    choose(opened, "Target", "big-target")
    settle(qtbot, opened)
    assert opened.loader.loaded == [PAIR]
    opened.send(QUESTION)
    opened.finish(qtbot)
    assert "Paris" in opened.window.transcript.toPlainText()


def test_the_same_pair_can_be_chosen_again_after_its_loading_was_given_up(
    qtbot: QtBot, opening: Callable[..., Opened]
) -> None:
    opened = opening()
    opened.loader.go_on.clear()
    opened.window.start(None)
    opened.window.loader.cancel()
    opened.loader.go_on.set()
    settle(qtbot, opened)
    assert opened.loader.loaded == []
    choose(opened, "Target", "big-target")
    settle(qtbot, opened)
    assert opened.loader.loaded == [PAIR]


def test_the_same_pair_can_be_chosen_again_after_an_answer_failed(qtbot: QtBot, ready: Callable[..., Opened]) -> None:
    opened = ready()
    opened.decoder.failure = UserError("big-target.gguf was changed on disk while it was loaded.", "Load it again.")
    choose(opened, "Target", "big-target")
    settle(qtbot, opened)
    assert opened.loader.loaded == [PAIR], "the choice of what is loaded and sound loads nothing"
    opened.send(QUESTION)
    opened.finish(qtbot)
    choose(opened, "Target", "big-target")
    settle(qtbot, opened)
    assert opened.loader.loaded == [PAIR, PAIR]


def test_the_menu_loads_the_models_again(qtbot: QtBot, ready: Callable[..., Opened]) -> None:
    opened = ready()
    opened.act("Load the models again")
    settle(qtbot, opened)
    assert opened.loader.loaded == [PAIR, PAIR]
    opened.send(QUESTION)
    opened.finish(qtbot)
    assert "Paris" in opened.window.transcript.toPlainText()


def test_the_menu_says_that_nothing_is_chosen_yet(opening: Callable[..., Opened]) -> None:
    opened = opening(pair=None)
    opened.window.start(None)
    opened.act("Load the models again")
    assert "choose a target" in opened.window.notices.sentences[0]
    assert opened.loader.loaded == []


def test_what_works_here_does_not_replace_what_was_asked_for(
    qtbot: QtBot, opening: Callable[..., Opened], tmp_path: Path
) -> None:
    (tmp_path / "small.gguf").write_bytes(gguf_bytes())
    models: tuple[ModelFile, ...] = tuple(list_models([tmp_path]))
    opened = opening(pair=WISH, models=models)
    opened.loader.works = works
    opened.window.start(None)
    settle(qtbot, opened)
    qtbot.waitUntil(lambda: bool(opened.window.picker.models))
    opened.window._save()
    assert opened.saved[-1].pair == WISH
    choose(opened, "Target", "small")
    settle(qtbot, opened)
    assert opened.loader.loaded[-1] == replace(WISH, target=tmp_path / "small.gguf")
    opened.window._save()
    assert opened.saved[-1].pair == opened.loader.loaded[-1]


@pytest.fixture
def waiting(qtbot: QtBot, ready: Callable[..., Opened]) -> Opened:
    """A window where another pair was chosen while an answer comes."""
    opened = ready(StoryDecoder(hold_at=2))
    opened.send(QUESTION)
    qtbot.waitUntil(opened.decoder.holding.is_set)
    opened.window.load(OTHER)
    return opened


def test_a_pair_that_waits_for_an_answer_says_so_and_is_loaded_then(qtbot: QtBot, waiting: Opened) -> None:
    assert WAITING in texts(waiting)
    waiting.decoder.go_on.set()
    settle(qtbot, waiting)
    assert waiting.loader.loaded == [PAIR, OTHER]
    assert "town" in waiting.window.transcript.toPlainText()
    assert texts(waiting) == []


def test_a_pair_given_up_while_it_waits_leaves_the_one_before_in_force(qtbot: QtBot, waiting: Opened) -> None:
    cancel = waiting.window.loading.findChild(QPushButton)
    assert cancel is not None
    cancel.click()
    assert texts(waiting) == [], "at once, not when the answer has ended"
    waiting.decoder.go_on.set()
    settle(qtbot, waiting)
    assert waiting.loader.loaded == [PAIR]
    assert "No model is loaded" not in composer_says(waiting)
    box = next(one for one in waiting.window.picker.findChildren(QComboBox) if one.accessibleName() == "Target")
    assert box.currentText() == "big-target"
    waiting.send("And Spain's?")
    waiting.finish(qtbot)
    assert waiting.window.transcript.toPlainText().count("town") == 2


def test_a_second_choice_while_the_first_one_waits_replaces_it(qtbot: QtBot, waiting: Opened) -> None:
    third = PairSettings(Path("/models/third.gguf"))
    waiting.window.load(third)
    waiting.decoder.go_on.set()
    settle(qtbot, waiting)
    assert waiting.loader.loaded == [PAIR, third]
    assert waiting.saved == [] or waiting.saved[-1].pair != OTHER


def test_giving_up_a_pair_that_has_begun_leaves_none(qtbot: QtBot, ready: Callable[..., Opened]) -> None:
    opened = ready()
    begun: list[object] = []
    opened.window.loader.step.connect(begun.append)
    opened.loader.go_on.clear()
    opened.window.load(OTHER)
    qtbot.waitUntil(lambda: bool(begun))
    opened.window.loader.cancel()
    opened.loader.go_on.set()
    settle(qtbot, opened)
    assert "No model is loaded" in composer_says(opened)
    opened.act("Load the models again")
    settle(qtbot, opened)
    assert opened.loader.loaded[-1] == OTHER


def test_exact_mode_loads_a_pair_again_whose_cache_is_not_exact(qtbot: QtBot, ready: Callable[..., Opened]) -> None:
    opened = ready()
    exact = replace(PAIR, exact=True)
    for mode in ("Exact", "Exact", "Fast"):
        choose(opened, "Mode", mode)
        settle(qtbot, opened)
        assert opened.loader.loaded == [PAIR, exact]
    choose(opened, "Mode", "Exact")
    settle(qtbot, opened)
    assert opened.loader.loaded == [PAIR, exact], "again would make it no more exact"
    choose(opened, "Mode", "Auto")
    opened.act("Load the models again")
    settle(qtbot, opened)
    assert opened.loader.loaded[-1] == PAIR


def test_exact_mode_keeps_a_pair_that_is_exact_anyway(qtbot: QtBot, ready: Callable[..., Opened]) -> None:
    decoder = StoryDecoder()
    decoder.facts = PairFacts(StepCosts((100,), (1,), ((0.01,),)), exact_widths=frozenset({1, 2, 3, 4, 5}))
    opened = ready(decoder)
    choose(opened, "Mode", "Exact")
    settle(qtbot, opened)
    assert opened.loader.loaded == [PAIR]
