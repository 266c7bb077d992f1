"""A run's folder: what was decided comes back, and what cannot be read is told."""

from dataclasses import replace
from pathlib import Path

import pytest

from draftlight.engine.cancel import CancelToken
from draftlight.errors import UserError
from draftlight.forge.acceptance import HeldOut
from draftlight.forge.recipe import Kind, Recipe, Shape
from draftlight.forge.reports import AcceptanceMeasured, Outlook, Stage
from draftlight.forge.request import ForgeRequest
from draftlight.forge.run_folder import Plan, Prospect, RunFolder
from draftlight.forge.workshop import Workshop

OUTLOOK = Outlook("2 layers, 128 wide", (1.0, 1.2, 1.4), 0.1, 0.3)
SHAPE = Shape(Kind.NARROW, n_layers=2, width=128)


def test_what_was_decided_comes_back(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    assert folder.plan() is None
    assert folder.prospect() is None
    assert folder.held_out() is None
    assert folder.looks() == []
    plan = Plan(Recipe(SHAPE), OUTLOOK, 1000, "float32")
    prospect = Prospect("auto, 60 minutes", SHAPE, OUTLOOK, "float32")
    held_out = [HeldOut((1, 2), (3, 4, 5))]
    looks = [AcceptanceMeasured(1000, 0.2, 1.1, 3.5), AcceptanceMeasured(2000, 0.3, 1.3, 2.5)]
    folder.keep_plan(plan)
    folder.keep_prospect(prospect)
    folder.keep_held_out(held_out)
    folder.keep_looks(looks)
    assert folder.plan() == plan
    assert folder.prospect() == prospect
    assert folder.held_out() == held_out
    assert folder.looks() == looks


def test_the_time_of_all_parts_of_a_run_counts_up_to_what_a_kill_cut_off(tmp_path: Path) -> None:
    seconds = 100.0

    def shop(*, only_outlook: bool = False) -> Workshop:
        asked = ForgeRequest(tmp_path / "target.gguf", tmp_path / "run", tmp_path / "out.gguf")
        asked = replace(asked, only_outlook=only_outlook)
        return Workshop(asked, lambda _: None, lambda: True, CancelToken(), lambda: seconds)

    first = shop()
    (tmp_path / "run").mkdir()
    with first.stage(Stage.LOADING, "Loading"):
        seconds += 40.0
    seconds += 20.0
    first.note_spent()
    seconds += 3.0
    assert first.spent == 63.0
    seconds += 1_000.0  # killed, and gone on with later
    looking = shop(only_outlook=True)
    with looking.stage(Stage.OUTLOOK, "Measuring"):
        seconds += 30.0
    second = shop()
    seconds += 5.0
    assert second.spent == 65.0


def test_a_run_of_another_version_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"recipe": {"seed": 1}}', "utf-8")
    with pytest.raises(UserError, match="another version"):
        RunFolder(tmp_path).plan()


def test_what_only_going_on_needs_is_deleted_at_the_end(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.chats.mkdir()
    trial = tmp_path / "Q8_0.gguf.tmp"
    for file in (folder.checkpoint, folder.best, trial, folder.chats / "chats-00000.npz"):
        file.touch()
    folder.keep_out(tmp_path / "made.gguf")
    folder.log(stage="training", seconds=30)
    folder.end()
    assert folder.done.exists()
    assert folder.out() == tmp_path / "made.gguf"
    assert sorted(file.name for file in tmp_path.rglob("*") if file.is_file()) == ["done", "log.jsonl", "out.json"]
