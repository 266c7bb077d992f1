"""A model is surveyed as far as time and memory allow; what is left out is said."""

from collections.abc import Sequence
from typing import Any

import pytest

from draftlight.engine.model import FloatArray
from draftlight.llama.backend import ModelNotLoaded
from draftlight.llama.measuring import TimeBox
from draftlight.llama.report import ThreadTrial
from draftlight.llama.survey import Surveyor, best_threads
from draftlight.settings import KvType
from measured_toys import PlantedModel

ALL = (KvType.Q8_0, KvType.F32, KvType.F16)
TEXT = [number * 7 % 16 for number in range(800)]
PLENTY = 10**12


def surveyor(model: PlantedModel) -> tuple[Surveyor, list[str]]:
    said: list[str] = []
    return Surveyor(model, "toy.gguf", TEXT, said.append), said


def test_the_fastest_exact_type_is_chosen_and_examined_at_every_context() -> None:
    model = PlantedModel()
    survey, said = surveyor(model)
    found = survey.survey_target(ALL, PLENTY, TimeBox(60.0))
    assert found.cache.kv_type is KvType.F32
    assert found.exactness.widths == (1, 2, 3, 4, 5, 6, 7, 8, 12, 16)
    assert found.exactness.contexts == (100, 250, 600, 2000)
    assert found.exactness.prefill > 0
    assert found.exactness.threads
    assert found.costs.contexts == (100, 2000)
    assert set(found.costs.widths) >= {1, 2, 4, 8, 16, 64}
    assert survey.left_out == []
    assert "comparing passes of toy.gguf at 2,000 tokens" in said
    assert model.n_threads == 4


def test_a_type_that_proves_inexact_gives_way_to_an_exact_one_of_about_the_same_speed() -> None:
    model = PlantedModel()
    model.exact_types = frozenset({KvType.Q8_0})
    model.seconds = {KvType.Q8_0: 0.0105, KvType.F32: 0.010, KvType.F16: 0.020}
    found = surveyor(model)[0].survey_target(ALL, PLENTY, TimeBox(60.0))
    assert found.cache.kv_type is KvType.Q8_0
    assert found.exactness.widths[-1] == 16
    assert {trial.kv_type: trial.exact_widths for trial in found.cache_trials} == {
        KvType.Q8_0: found.exactness.widths,
        KvType.F32: (1,),
        KvType.F16: None,
    }


def test_the_facts_of_an_inexact_choice_say_so() -> None:
    model = PlantedModel()
    model.exact_types = frozenset({KvType.Q8_0})
    found = surveyor(model)[0].survey_target(ALL, PLENTY, TimeBox(60.0))
    assert found.cache.kv_type is KvType.F32
    assert (found.exactness.widths, found.exactness.near_widths, found.exactness.prefill) == ((1,), (), 0)


@pytest.mark.parametrize(
    ("planted", "widths", "near", "prefill"),
    [
        ({"odd_cache_from": 5}, (1, 2, 3, 4), (), 0),
        ({"odd_logits_from": 6}, (1, 2, 3, 4, 5), (6, 7, 8, 12, 16), 512),
        ({"odd_after_rollback": True}, (1,), (), 0),
    ],
)
def test_what_is_wrong_with_wide_passes_is_found(
    planted: dict[str, Any], widths: tuple[int, ...], near: tuple[int, ...], prefill: int
) -> None:
    found = surveyor(PlantedModel(**planted))[0].survey_target((KvType.Q8_0,), PLENTY, TimeBox(60.0)).exactness
    assert (found.widths, found.near_widths) == (widths, near)
    assert found.prefill == prefill or (prefill and found.prefill)  # how long a chunk may be depends on the speed


def test_a_single_thread_that_computes_other_bits_is_said() -> None:
    found = surveyor(PlantedModel(odd_single_thread=True))[0].survey_target((KvType.Q8_0,), PLENTY, TimeBox(60.0))
    assert found.exactness.threads is False


def test_a_type_that_would_fill_the_memory_is_not_tried() -> None:
    model = PlantedModel(n_ctx=4096)
    survey, _ = surveyor(model)
    found = survey.survey_target(ALL, 4 * 4096 * 100, TimeBox(60.0))
    assert [trial.step_seconds is None for trial in found.cache_trials] == [False, True, False]
    assert "over a quarter of the free memory" in survey.left_out[0]


def test_a_refused_type_is_left_out_and_none_at_all_is_a_sentence() -> None:
    model = PlantedModel()
    model.refused = frozenset({KvType.F32})
    found = surveyor(model)[0].survey_target(ALL, PLENTY, TimeBox(60.0))
    assert found.cache.kv_type is not KvType.F32
    assert found.cache_trials[1].why_not == "No f32 cache."
    model = PlantedModel()
    model.refused, model.kv_type = frozenset(ALL), KvType.AUTO
    with pytest.raises(ModelNotLoaded, match="No f16 cache"):
        surveyor(model)[0].survey_target(ALL, PLENTY, TimeBox(60.0))


def test_without_time_the_least_is_measured_and_the_rest_is_said() -> None:
    survey, _ = surveyor(PlantedModel())
    found = survey.survey_target(ALL, PLENTY, TimeBox(0.0))
    assert found.cache.kv_type is KvType.Q8_0
    assert found.exactness.contexts == (600,)
    assert 1 in found.costs.widths
    assert any("no time to try" in sentence for sentence in survey.left_out)
    assert any("not compared at 100 tokens" in sentence for sentence in survey.left_out)
    assert any("not timed at widths" in sentence for sentence in survey.left_out)


@pytest.mark.parametrize("n_ctx", [64, 100, 300, 700, 2100])
def test_a_short_context_is_surveyed_within_its_room(n_ctx: int) -> None:
    model = PlantedModel(n_ctx=n_ctx)
    found = surveyor(model)[0].survey_target(ALL, PLENTY, TimeBox(60.0))
    assert found.exactness.widths[:4] == (1, 2, 3, 4)
    assert max(found.costs.contexts) < n_ctx
    drafts = surveyor(PlantedModel(n_ctx=n_ctx))[0].survey_draft(ALL, PLENTY, TimeBox(60.0))
    assert drafts.cache.kv_type is KvType.F32


def test_a_model_that_cannot_take_tokens_back_is_timed_forwards_only() -> None:
    model = PlantedModel()
    model.can_roll_back = False
    found = surveyor(model)[0].survey_target(ALL, PLENTY, TimeBox(60.0))
    assert found.costs.widths == (1, 64)
    assert found.exactness.widths == (1,)


def test_the_fewest_threads_that_are_about_as_fast_are_used() -> None:
    assert best_threads([ThreadTrial(1, 2.0, 2.0), ThreadTrial(2, 1.0, 1.04), ThreadTrial(4, 1.0, 1.0)]) == 2
    assert best_threads([ThreadTrial(1, 1.0, 1.0), ThreadTrial(2, 9.0, 9.0)]) == 1


def test_more_threads_are_tried_until_they_are_clearly_worse() -> None:
    class Contended(PlantedModel):
        def forward(self, tokens: Sequence[int], rows: int) -> FloatArray:
            logits = super().forward(tokens, rows)
            self.decode_seconds += 0.05 * (self.n_threads > 1)
            return logits

    model = Contended()
    survey, _ = surveyor(model)
    trials = survey.try_threads([1, 2, 4, 8], TimeBox(60.0))
    assert [trial.n_threads for trial in trials] == [1, 2]
    assert model.n_threads == 1
