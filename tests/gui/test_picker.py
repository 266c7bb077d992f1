"""The pickers' rules: everything found is listed, what cannot be used is greyed with the reason, and choices told."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QCheckBox, QComboBox, QSpinBox
from pytestqt.qtbot import QtBot

from draftlight.engine.decoding import Mode
from draftlight.library.scanner import list_models
from draftlight.settings import DraftLength, Highlight, PairSettings, Settings
from draftlight.ui.jobs import JobThread
from draftlight.ui.lists import ModelList
from draftlight.ui.models.picker import ModelPicker
from unit.library.conftest import TOKENS, gguf_bytes, metadata

OTHER_TOKENS = (*TOKENS[:5], b"zz", TOKENS[6])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two models with one vocabulary, one with another, an embedding model, a broken file."""
    files = {
        "big.gguf": gguf_bytes(),
        "small.gguf": gguf_bytes(metadata(general__name="Small")),
        "stranger.gguf": gguf_bytes(metadata(tokenizer__ggml__tokens=OTHER_TOKENS)),
        "embedding.gguf": gguf_bytes(metadata(general__architecture="bert")),
        "recurrent.gguf": gguf_bytes(metadata(general__architecture="mamba")),
        "broken.gguf": b"GGUF",
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


@pytest.fixture
def build(qtbot: QtBot) -> Iterator[Callable[..., ModelPicker]]:
    threads: list[JobThread] = []
    pickers: list[ModelPicker] = []  # kept alive: a test may hold a part of one alone

    def make(folder: Path, target: str | None = "big.gguf", **changes: object) -> ModelPicker:
        threads.append(JobThread("files"))
        picker = ModelPicker(Settings().changed(**changes), threads[-1], lambda: list_models([folder]))
        qtbot.addWidget(picker)
        pickers.append(picker)
        if target is not None:
            picker.show_pair(PairSettings(folder / target))
        with qtbot.waitSignal(threads[-1].idle, timeout=10_000):
            picker.look_for_models()
        return picker

    yield make
    for thread in threads:
        assert thread.shutdown()


def combo(picker: ModelPicker, name: str) -> QComboBox:
    return next(one for one in picker.findChildren(QComboBox) if one.accessibleName() == name)


def items(box: QComboBox) -> dict[str, tuple[bool, str]]:
    """Return each item's first word, whether it can be chosen, and its tool tip."""
    found = {}
    for row in range(box.count()):
        index = box.model().index(row, 0)
        usable = bool(index.flags() & Qt.ItemFlag.ItemIsEnabled)
        found[box.itemText(row).split()[0]] = (usable, str(index.data(Qt.ItemDataRole.ToolTipRole)))
    return found


def choose(box: QComboBox, first_word: str) -> None:
    row = next(row for row in range(box.count()) if box.itemText(row).split()[0] == first_word)
    box.setCurrentIndex(row)
    box.activated.emit(row)


def test_drafts_that_cannot_serve_are_listed_greyed_with_the_reason(
    build: Callable[..., ModelPicker], folder: Path
) -> None:
    drafts = items(combo(build(folder), "Draft"))
    assert drafts["None"][0]
    assert drafts["N-gram,"][0]
    assert drafts["small"][0]
    usable, reason = drafts["stranger"]
    assert not usable
    assert "Token 5 differs" in reason
    usable, reason = drafts["embedding"]
    assert not usable
    assert "embedding model" in reason
    assert not drafts["broken"][0]


def test_targets_that_cannot_chat_are_listed_greyed_with_the_reason(
    build: Callable[..., ModelPicker], folder: Path
) -> None:
    targets = items(combo(build(folder), "Target"))
    assert targets["big"][0]
    assert not targets["embedding"][0]
    assert "embedding model" in targets["embedding"][1]
    assert not targets["broken"][0]


def test_nothing_can_draft_for_a_target_that_cannot_roll_back(build: Callable[..., ModelPicker], folder: Path) -> None:
    drafts = items(combo(build(folder, "recurrent.gguf"), "Draft"))
    assert drafts["None"][0]
    assert not drafts["N-gram,"][0]
    assert "cannot be rolled back" in drafts["small"][1]


@pytest.mark.parametrize(("n_data", "offered"), [(44, True), (44_000, False)])
def test_a_draft_model_is_offered_to_be_made_where_no_smaller_model_fits(
    qtbot: QtBot, build: Callable[..., ModelPicker], folder: Path, n_data: int, *, offered: bool
) -> None:
    (folder / "big.gguf").write_bytes(gguf_bytes(n_data=n_data))
    picker = build(folder)
    drafts = combo(picker, "Draft")
    assert ("Make" in items(drafts)) == offered
    assert "Make" not in items(combo(build(folder, "recurrent.gguf"), "Draft")), "nothing can draft for it at all"
    if offered:
        with qtbot.waitSignal(picker.draft_wanted), qtbot.assertNotEmitted(picker.pair_chosen):
            choose(drafts, "Make")
        assert drafts.currentText().startswith("None")


def test_a_chosen_draft_is_reported_with_its_target(
    qtbot: QtBot, build: Callable[..., ModelPicker], folder: Path
) -> None:
    picker = build(folder)
    for word, expected in (
        ("small", PairSettings(folder / "big.gguf", folder / "small.gguf", ngram=True)),
        ("N-gram,", PairSettings(folder / "big.gguf", ngram=True)),
    ):
        with qtbot.waitSignal(picker.pair_chosen) as chosen:
            choose(combo(picker, "Draft"), word)
        assert chosen.args == [expected]


def test_a_pair_outside_the_folders_is_shown_too(build: Callable[..., ModelPicker], folder: Path) -> None:
    picker = build(folder, None)
    picker.show_pair(PairSettings(Path("/elsewhere/t.gguf"), Path("/elsewhere/d.gguf")))
    assert combo(picker, "Target").currentText() == "t"
    assert combo(picker, "Draft").currentText() == "d"


def test_without_any_model_the_lists_say_so(build: Callable[..., ModelPicker], tmp_path: Path) -> None:
    picker = build(tmp_path, None)
    targets = items(combo(picker, "Target"))
    assert list(targets) == ["No"]
    assert not targets["No"][0]
    assert not combo(picker, "Draft").isEnabled()
    assert not picker.has_pair


def test_the_settings_are_shown_and_choices_read_back(
    qtbot: QtBot, build: Callable[..., ModelPicker], folder: Path
) -> None:
    picker = build(folder, draft_length=5, highlight=Highlight.ACCEPTED)
    first: DraftLength = picker.draft_length
    assert first == 5
    assert picker.highlight is Highlight.ACCEPTED
    assert picker.temperature == pytest.approx(0.8)
    assert picker.mode == "auto"
    with qtbot.waitSignal(picker.draft_length_chosen):
        choose(combo(picker, "Draft length"), "Off")
    assert picker.draft_length == 0
    with qtbot.waitSignal(picker.mode_chosen):
        choose(combo(picker, "Mode"), "Exact")
    assert picker.mode is Mode.EXACT
    with qtbot.waitSignal(picker.options_changed):
        picker.next_highlight()
    assert picker.highlight.value == "off"


def test_a_fixed_seed_is_used_again_and_a_fresh_one_is_none(build: Callable[..., ModelPicker], folder: Path) -> None:
    picker = build(folder)
    fresh, seed = picker.findChild(QCheckBox), picker.findChild(QSpinBox)
    assert fresh is not None
    assert seed is not None
    assert picker.seed is None
    assert not seed.isEnabled()
    fresh.setChecked(False)
    seed.setValue(1234)
    assert picker.seed == 1234


def test_automatic_draft_length_is_offered_first_and_explained(build: Callable[..., ModelPicker], folder: Path) -> None:
    picker = build(folder, draft_length="auto", mode="fast")
    assert (picker.draft_length, picker.mode) == ("auto", Mode.FAST)
    offered = items(combo(picker, "Draft length"))
    assert next(iter(offered)) == "Auto"
    assert "worth their time" in offered["Auto"][1]
    assert all(
        tip and tip != "None" for name in ("Draft length", "Mode") for _, tip in items(combo(picker, name)).values()
    )


def test_every_field_has_a_name_for_screen_readers(build: Callable[..., ModelPicker], folder: Path) -> None:
    picker = build(folder)
    fields = [*picker.findChildren(QComboBox), *picker.findChildren(QSpinBox)]
    assert all(field.accessibleName() for field in fields)


def test_a_name_that_is_too_long_loses_its_middle_and_the_tool_tip_has_all_of_it(
    build: Callable[..., ModelPicker], folder: Path
) -> None:
    name = "Some-Model-135M-Instruct-with-a-long-name-Q4_1.gguf"
    (folder / name).write_bytes(gguf_bytes())
    picker = build(folder, name)
    picker.resize(1024, 60)
    targets = combo(picker, "Target")
    assert isinstance(targets, ModelList)
    targets.setFixedWidth(160)
    assert targets.shown.startswith("Some")
    assert targets.shown.endswith("Q4_1")
    assert "…" in targets.shown
    assert name.removesuffix(".gguf") in targets.toolTip()
    assert not targets.grab().isNull()
    targets.setFixedWidth(900)
    assert targets.shown == name.removesuffix(".gguf"), "its size stands in the opened list alone"
