"""A run's training: when it ends early, and what a kill between two files leaves."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from draftlight.engine.cancel import CancelToken
from draftlight.forge import training
from draftlight.forge.distill import Distillation, keep
from draftlight.forge.judging import Judge
from draftlight.forge.recipe import Kind, Recipe, Shape
from draftlight.forge.reports import AcceptanceMeasured, Outlook, Report
from draftlight.forge.request import ForgeRequest
from draftlight.forge.run_folder import Plan, RunFolder
from draftlight.forge.student import begin
from draftlight.forge.training import in_vain
from draftlight.forge.workshop import Workshop
from small_disk import small_disk
from small_torch import chats_of, small_model


@dataclass(frozen=True)
class Course:
    """What goes on beside a training, and what it has told."""

    course: training._Course
    training: Distillation
    told: list[Report]

    def step(self, loss: float) -> None:
        """Take one step, which had this loss."""
        next(self.training.steps())
        self.course.note(loss)


def test_a_plateau_ends_no_training() -> None:
    measured = [0.196, 0.214, 0.2179, 0.2153, 0.3024, 0.3395, 0.3692, 0.3804]  # of a starter draft's training
    for n_looks in (8, 12, 16):
        looks = [measured[n * 8 // n_looks] for n in range(n_looks)]
        looks[1] += 0.012  # a lucky look
        assert not any(in_vain(looks[:n], n_looks) for n in range(n_looks + 1))


def test_a_training_that_gets_worse_for_most_of_its_looks_ends() -> None:
    looks = [0.2, 0.3, *(0.29 - 0.01 * n for n in range(10))]
    assert not in_vain(looks[:9], 12)
    assert in_vain(looks[:10], 12)


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Course]:
    """Begin what goes on beside a training, or go on with it, with what it tells; each look finds 0.3 and 1.3."""
    monkeypatch.setattr(training, "looked", lambda *_: (0.3, 1.3))
    target = small_model("llama")
    plan = Plan(Recipe(Shape(Kind.PRUNED, layers=(0,))), Outlook("", (1.0,), 0.1, 0.3), 10, "float32")
    draft = begin(target, plan.recipe.shape, 1)
    learned = Distillation(draft, chats_of(8), replace(plan.recipe.training, n_tokens=1_000, batch_tokens=100), 1)
    asked = ForgeRequest(tmp_path / "target.gguf", tmp_path, tmp_path / "out.gguf")
    judge = Judge(cast("Any", None), (), (1.0,), lambda: True)

    def make() -> Course:
        told: list[Report] = []
        shop = Workshop(asked, told.append, lambda: True, CancelToken(), lambda: 0.0)
        return Course(training._Course(shop, learned, draft, judge, plan), learned, told)

    return make


def test_a_look_is_kept_before_the_place_to_go_on_from(
    course: Callable[[], Course], monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    monkeypatch.setattr(training, "keep", lambda file, _: written.append(file.name))
    monkeypatch.setattr(Distillation, "save", lambda _, file: written.append(file.name))
    monkeypatch.setattr(RunFolder, "keep_looks", lambda *_: written.append("looks.json"))
    course().step(1.0)
    assert written == ["best.pt", "looks.json", "checkpoint.pt"], "else a kill in between would lose the look"


def test_who_goes_on_is_told_the_looks_and_the_loss_from_where_it_was(course: Callable[[], Course]) -> None:
    begun = course()
    begun.step(4.0)
    resumed = course()
    assert resumed.told == begun.told == [AcceptanceMeasured(begun.training.n_seen, 0.3, 1.3, 4.0)]
    resumed.step(2.0)
    assert isinstance(resumed.told[-1], AcceptanceMeasured)
    assert 3.9 < resumed.told[-1].loss < 4.0, "one step does not say where the loss is"


def test_a_full_disk_is_told_as_such_and_leaves_what_was_there_before(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint.pt"
    file.write_bytes(b"an older checkpoint")
    with small_disk(), pytest.raises(OSError, match="File too large"):
        keep(file, {"weights": torch.zeros(1_000_000)})
    assert list(tmp_path.iterdir()) == [file]
    assert file.read_bytes() == b"an older checkpoint"
