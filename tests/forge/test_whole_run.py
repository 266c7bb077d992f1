"""A toy forge from end to end in its real process: chats, training, a file that drafts; killed and resumed."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from draftlight.engine.cancel import CancelToken
from draftlight.errors import UserError
from draftlight.forge.chats import Shards
from draftlight.forge.client import Control, forge
from draftlight.forge.labels import labelled_by
from draftlight.forge.recipe import ChatPlan, HeldOutPlan, Kind, Recipe, Shape, TrainingPlan, as_toml
from draftlight.forge.reports import (
    AcceptanceMeasured,
    ChatsWritten,
    Forged,
    Outlook,
    Report,
    Stage,
    StageBegun,
    Trained,
)
from draftlight.forge.request import ForgeRequest, request_for
from draftlight.forge.run_folder import RunFolder
from draftlight.library.gguf import read_header
from draftlight.library.pairing import check_pair
from draftlight.library.scanner import list_models
from draftlight.llama.backend import LlamaModel, ModelOptions
from findings import note
from twins import write_twin

TOY = Recipe(
    Shape(Kind.PRUNED, layers=(0,)),
    ChatPlan(n_tokens=5_000, longest_question=6, longest_answer=32, n_together=32),
    TrainingPlan(n_tokens=25_000, batch_tokens=600, learning_rate=3e-3, n_negatives=256),
    HeldOutPlan(n_questions=8, n_tokens=64, n_looks=5),
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("toy") / "toy.gguf"
    write_twin(path)
    return path


@pytest.fixture(autouse=True)
def quiet_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # the same sums each time, and a core left to others
    monkeypatch.setenv("DRAFTLIGHT_PROBE_SECONDS", "2")


def request(target: Path, tmp_path: Path, recipe: Recipe = TOY) -> ForgeRequest:
    tmp_path.mkdir(exist_ok=True)
    file = tmp_path / "toy.toml"
    file.write_text(as_toml(recipe))
    asked = request_for(target, minutes=2.0, out=tmp_path / "toy-draft.gguf", recipe=file)
    return replace(asked, folder=tmp_path / "run")


def reports(asked: ForgeRequest) -> Iterator[Report]:
    return forge(asked, CancelToken(), Control(), low_battery=lambda: False)


def whole_run(asked: ForgeRequest) -> tuple[list[Report], dict[str, torch.Tensor]]:
    """Run to the end; return what it reported, and the trained weights, which are deleted at the end."""
    told, weights = [], {}
    for report in reports(asked):
        told.append(report)
        if isinstance(report, StageBegun) and report.stage is Stage.MEASURING:
            weights = torch.load(RunFolder(asked.folder).best, weights_only=True)
    return told, weights


def killed_at(asked: ForgeRequest, kind: type[Report]) -> None:
    """Kill the run's process, as hard as can be, once it has reported such a thing."""

    def heard() -> None:
        for report in reports(asked):
            if isinstance(report, kind):
                for child in psutil.Process().children(recursive=True):
                    if asked.folder.as_posix() in " ".join(child.cmdline()):
                        child.kill()

    with pytest.raises(UserError, match="ended by the system"):
        heard()


def test_a_toy_run_makes_a_draft_model_that_is_accepted_more_and_more_and_a_killed_one_ends_the_same(
    target: Path, tmp_path: Path
) -> None:
    asked = request(target, tmp_path)
    told, first = whole_run(asked)
    assert isinstance(told[-1], Forged)
    looks = [report.acceptance for report in told if isinstance(report, AcceptanceMeasured)]
    assert max(looks[len(looks) // 2 :]) > looks[0] + 0.03
    assert any(isinstance(report, Outlook) for report in told)
    assert [report for report in told if isinstance(report, ChatsWritten)][-1].n_tokens == TOY.chats.n_tokens
    losses = [report.loss for report in told if isinstance(report, Trained)]
    assert losses[-1] < losses[0]
    card = told[-1].card
    assert card.acceptance == pytest.approx(max(looks), abs=0.2)
    assert card.n_bytes == pytest.approx(asked.out.stat().st_size, rel=0.02)
    assert check_pair(read_header(target), read_header(asked.out)).ok
    assert read_header(asked.out).get_str("draftlight.forge.shape") == TOY.shape.label
    assert [model.path.name for model in list_models([tmp_path])] == ["toy-draft.gguf"]
    note(f"a toy forge: accepted at {looks[0]:.0%} of places at first, {max(looks):.0%} in the end")

    again = replace(asked, folder=tmp_path / "again", out=tmp_path / "again-draft.gguf")
    killed_at(again, ChatsWritten)
    killed_at(again, AcceptanceMeasured)
    other = replace(TOY, shape=Shape(Kind.PRUNED, layers=(1,)))
    looking = replace(request(target, tmp_path / "other", other), folder=again.folder, only_outlook=True)
    outlooks = [report for report in reports(looking) if isinstance(report, Outlook)]
    assert [each.shape for each in outlooks] == [other.shape.label], "not that of the run that was begun"
    assert looking.recipe is not None
    looking.recipe.write_text(as_toml(TOY), "utf-8")
    outlooks = [report for report in reports(looking) if isinstance(report, Outlook)]
    assert [each.shape for each in outlooks] == [TOY.shape.label], "not that of the recipe as it was"
    assert asked.recipe is not None
    asked.recipe.unlink()  # the run has its own by now
    assert not again.out.exists()
    again.out.write_bytes(b"somebody else's")
    told, second = whole_run(again)
    assert isinstance(told[-1], Forged)
    assert told[-1].path == tmp_path / "again-draft-2.gguf"
    assert again.out.read_bytes() == b"somebody else's"
    assert first
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_stopped_run_keeps_what_it_has_and_lists_nothing(target: Path, tmp_path: Path) -> None:
    asked = request(target, tmp_path, replace(TOY, chats=replace(TOY.chats, quantised_labels=True)))
    cancel, folder = CancelToken(), RunFolder(asked.folder)
    for report in forge(asked, cancel, Control(), low_battery=lambda: False):
        if isinstance(report, StageBegun) and report.stage is Stage.TRAINING:
            cancel.cancel()
    chats = Shards(folder.chats).read(0)
    with LlamaModel(target, ModelOptions(n_ctx=2048, n_threads=1)) as model:
        again = labelled_by(model, chats, TOY.chats.n_labels, lambda: True)
    assert again is not None
    assert np.array_equal(again.label_ids[:, 0], chats.label_ids[:, 0]), "the labels are those of the file"
    n_steps, n_seen, *_ = torch.load(folder.checkpoint, weights_only=True)["at"]
    assert n_steps >= 1
    assert n_seen < TOY.training.n_tokens // TOY.held_out.n_looks, "a look would have saved, too"
    assert not folder.done.exists()
    assert list_models([tmp_path]) == ()
    left = [child for child in psutil.Process().children(recursive=True) if "forge.worker" in str(child.cmdline())]
    assert left == []


def test_a_run_by_minutes_plans_chats_training_and_looks_for_what_is_left_of_them(target: Path, tmp_path: Path) -> None:
    asked = replace(request(target, tmp_path), recipe=None, minutes=6.0)
    cancel = CancelToken()
    for report in forge(asked, cancel, Control(), low_battery=lambda: False):
        if isinstance(report, ChatsWritten):
            assert report.sample, "of the chats that were written to see how long they take"
            cancel.cancel()
    plan = RunFolder(asked.folder).plan()
    assert plan is not None
    assert plan.recipe.chats.n_tokens > 2_000
    assert 4_000 < plan.recipe.training.n_tokens <= 8 * plan.recipe.chats.n_tokens
    assert plan.recipe.held_out.n_looks >= 3
    assert plan.outlook.shape == plan.recipe.shape.label


def test_a_full_disk_is_told_in_a_sentence(target: Path, tmp_path: Path) -> None:
    asked = request(target, tmp_path)
    full = Path("/dev/full")
    if not full.exists() or os.name == "nt":
        pytest.skip("this system has no /dev/full")
    asked.folder.mkdir()
    (asked.folder / "log.jsonl").symlink_to(full)
    with pytest.raises(UserError, match="disk is full"):
        list(reports(asked))
    assert list_models([tmp_path]) == ()
