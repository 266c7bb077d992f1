"""A run's folder: what was decided comes back, and what cannot be read is told."""

from pathlib import Path

import pytest

from draftlight.errors import UserError
from draftlight.forge.acceptance import HeldOut
from draftlight.forge.recipe import Kind, Recipe, Shape
from draftlight.forge.reports import AcceptanceMeasured, Outlook
from draftlight.forge.run_folder import Plan, Prospect, RunFolder

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
    looks = [AcceptanceMeasured(1000, 0.2, 1.1), AcceptanceMeasured(2000, 0.3, 1.3)]
    folder.keep_plan(plan)
    folder.keep_prospect(prospect)
    folder.keep_held_out(held_out)
    folder.keep_looks(looks)
    assert folder.plan() == plan
    assert folder.prospect() == prospect
    assert folder.held_out() == held_out
    assert folder.looks() == looks


def test_the_time_spent_is_the_sum_of_all_parts_and_a_line_cut_short_does_not_count(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.seconds_spent() == 0.0
    folder.log(stage="chats", seconds=12.5)
    folder.log(acceptance=0.3)
    folder.log(stage="training", seconds=30)
    with (tmp_path / "log.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"stage": "training", "seconds": 9')
    assert folder.seconds_spent() == 42.5


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
