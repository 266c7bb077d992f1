"""The end of a run: the file that promises more is kept, nothing of the person's is lost, a killed end is repeated."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from draftlight.engine.cancel import CancelToken
from draftlight.errors import UserError
from draftlight.forge import finishing, judging
from draftlight.forge.acceptance import HeldOut, agreement, answered
from draftlight.forge.finishing import finish
from draftlight.forge.judging import QUANTISATIONS, Judge, Judged, longer_is_vain, opened
from draftlight.forge.recipe import Kind, Recipe, Shape
from draftlight.forge.reports import AcceptanceMeasured, Outlook
from draftlight.forge.request import ForgeRequest
from draftlight.forge.run_folder import Plan
from draftlight.forge.student import begin
from draftlight.forge.teacher import load_target
from draftlight.forge.workshop import Stopped, Workshop
from draftlight.library.gguf import read_header
from draftlight.llama.backend import LlamaModel, ModelOptions
from twins import write_twin

SHAPE = Shape(Kind.PRUNED, layers=(0,))
VERIFY_COSTS = tuple(1.0 + 0.2 * k for k in range(17))
PLAN = Plan(Recipe(SHAPE), Outlook(SHAPE.label, VERIFY_COSTS, 0.5, 0.3), 1_000, "float32")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaModel]:
    path = tmp_path_factory.mktemp("finishing") / "target.gguf"
    write_twin(path)
    with LlamaModel(path, ModelOptions(n_ctx=2048, n_threads=1)) as model:
        yield model


@pytest.fixture(scope="module")
def student(target: LlamaModel) -> PreTrainedModel:
    return begin(load_target(target.path, torch.float32), SHAPE, 1)


@pytest.fixture(scope="module")
def held_out(target: LlamaModel) -> list[HeldOut]:
    found = answered(target, target.vocabulary, [[5, 9, 2], [40, 41], [7, 70, 77]], 24, lambda: True)
    assert found is not None
    return found


@pytest.fixture
def judge(target: LlamaModel, held_out: list[HeldOut]) -> Judge:
    return Judge(target, held_out, VERIFY_COSTS, lambda: True)


@pytest.fixture
def shop(target: LlamaModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    """A run that has been trained, and whose `bench` measures nothing."""
    monkeypatch.setattr(finishing, "measured_speed_up", lambda *_: None)
    request = ForgeRequest(target.path, tmp_path / "run", tmp_path / "draft.gguf")
    made = Workshop(request, lambda _: None, lambda: True, CancelToken(), lambda: 0.0)
    made.folder.keep_looks([AcceptanceMeasured(100, 0.1, 1.1, 3.5), AcceptanceMeasured(200, 0.2, 1.2, 2.5)])
    return made


@pytest.mark.parametrize("quantisation", QUANTISATIONS)
def test_a_file_is_judged_by_its_own_drafting(
    student: PreTrainedModel, judge: Judge, tmp_path: Path, quantisation: str
) -> None:
    found = judge.judged(student, quantisation, tmp_path / "trial.gguf.tmp")
    with opened(found.path, 1) as draft:
        assert found.acceptance == agreement(draft, judge.held_out)
    gains = {k: found.block_efficiency[k] / (VERIFY_COSTS[k] + k * found.draft_cost) for k in found.block_efficiency}
    assert found.expected == pytest.approx(max(gains.values()))
    assert gains[found.best_k] == pytest.approx(found.expected)
    assert set(found.block_efficiency) >= {1, 2, 3, 4}
    assert found.logit_difference < 1.0


@pytest.mark.parametrize(("vain", "tried"), [(True, [1, 2, 3, 4]), (False, [1, 2, 3, 4, 6, 8, 12, 16])])
def test_a_judge_tries_drafts_of_up_to_sixteen_but_none_beyond_four_in_vain(
    student: PreTrainedModel,
    judge: Judge,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    vain: bool,  # noqa: FBT001 - the case
    tried: list[int],
) -> None:
    monkeypatch.setattr(judging, "longer_is_vain", lambda *_: vain)
    assert list(judge.judged(student, "Q8_0", tmp_path / "trial.gguf.tmp").block_efficiency) == tried


def test_longer_drafts_are_tried_until_they_cannot_be_worth_more() -> None:
    steep = {k: 1.0 + 0.5 * k for k in range(17)}
    dear_step = {k: 1.0 + (k > 3) for k in range(17)}
    accepted = {k: sum(0.9**i for i in range(k + 1)) for k in (1, 2, 3, 4)}
    assert longer_is_vain(accepted, steep)
    assert accepted[4] / dear_step[4] < accepted[3] / dear_step[3]
    assert not longer_is_vain(accepted, dear_step), "sixteen cost as much as four"
    assert longer_is_vain(dict.fromkeys((1, 2, 3, 4), 1.2), dear_step)


def test_a_judge_that_is_told_to_stop_stops(student: PreTrainedModel, judge: Judge, tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        replace(judge, go_on=lambda: False).judged(student, "Q8_0", tmp_path / "trial.gguf.tmp")


@pytest.mark.parametrize("better", QUANTISATIONS)
def test_the_file_that_promises_more_is_kept(
    shop: Workshop, student: PreTrainedModel, judge: Judge, monkeypatch: pytest.MonkeyPatch, better: str
) -> None:
    judged = Judge.judged

    def prefers(self: Judge, model: PreTrainedModel, quantisation: str, path: Path) -> Judged:
        return replace(judged(self, model, quantisation, path), expected=float(quantisation == better))

    monkeypatch.setattr(Judge, "judged", prefers)
    made = finish(shop, student, judge, PLAN)
    assert made.card.quantisation == better
    assert made.card.n_trained_tokens == 200
    assert read_header(made.path).quantisation == better
    assert shop.folder.done.exists()
    assert not list(shop.folder.folder.glob("*.gguf.tmp"))


def test_a_file_that_came_since_is_left_alone_even_by_a_run_that_was_about_to_write_it(
    shop: Workshop, student: PreTrainedModel, judge: Judge
) -> None:
    shop.folder.keep_out(shop.request.out)
    shop.request.out.write_bytes(b"somebody else's")
    made = finish(shop, student, judge, PLAN)
    assert made.path == shop.request.out.with_name("draft-2.gguf")
    assert shop.request.out.read_bytes() == b"somebody else's"


def test_a_run_that_was_killed_after_it_had_written_writes_the_same_file_again(
    shop: Workshop, student: PreTrainedModel, judge: Judge
) -> None:
    made = finish(shop, student, judge, PLAN)
    shop.folder.done.unlink()
    assert finish(shop, student, judge, PLAN).path == made.path == shop.request.out
    assert [file.name for file in made.path.parent.glob("*.gguf")] == [made.path.name]


def test_a_speed_up_that_could_not_be_measured_does_not_cost_the_draft_model(
    shop: Workshop, student: PreTrainedModel, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise UserError("The pair could not be loaded.", "Try again.")

    monkeypatch.setattr(finishing, "measured_speed_up", fails)
    made = finish(shop, student, judge, PLAN)
    assert made.path.is_file()
    assert made.card.measured is None
    assert "could not be loaded" in (shop.folder.folder / "log.jsonl").read_text("utf-8")


def test_a_pause_and_a_stop_are_asked_about_before_each_answer_that_is_measured(
    shop: Workshop, held_out: list[HeldOut], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DRAFTLIGHT_PROBE_SECONDS", "2")
    asked: list[float] = []
    write_twin(draft := tmp_path / "drafting.gguf", noise=0.05)

    def go_on() -> bool:
        asked.append(0.0)
        return True

    listening = replace(shop, go_on=go_on)
    measured = judging.measured_speed_up(listening, draft, held_out, 60.0)
    assert measured is not None
    assert len(asked) > 2 * len(held_out)  # with a draft model and without one


def test_a_run_stopped_while_it_measures_lists_no_draft_model(
    shop: Workshop, student: PreTrainedModel, judge: Judge
) -> None:
    stopped = Workshop(shop.request, shop.tell, lambda: False, shop.cancel, shop.clock)
    with pytest.raises(Stopped):
        finish(stopped, student, judge, PLAN)
    assert not shop.request.out.exists()
    assert not shop.folder.done.exists()


def test_a_file_that_came_in_the_meantime_is_left_alone(shop: Workshop, student: PreTrainedModel, judge: Judge) -> None:
    shop.request.out.write_text("mine", "utf-8")
    made = finish(shop, student, judge, PLAN)
    assert shop.request.out.read_text("utf-8") == "mine"
    assert made.path.name == "draft-2.gguf"


def test_an_end_that_was_killed_after_the_file_was_written_writes_it_again_to_the_same_place(
    shop: Workshop, student: PreTrainedModel, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = type(shop.folder).end

    def killed(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(shop.folder), "end", killed)
    with pytest.raises(KeyboardInterrupt):
        finish(shop, student, judge, PLAN)
    monkeypatch.setattr(type(shop.folder), "end", end)
    made = finish(shop, student, judge, PLAN)
    assert made.path == shop.request.out
    assert [path.name for path in shop.request.out.parent.glob("*.gguf")] == ["draft.gguf"]
