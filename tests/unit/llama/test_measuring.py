"""What is exact is told from what is not, on toy models that are wrong where it was planted."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from draftlight.engine.model import FloatArray
from draftlight.llama.measuring import Comparison, SingleSteps, TimeBox, Times, exactness_of, read, time_widths
from measured_toys import PlantedModel

TEXT = [number * 7 % 16 for number in range(200)]
CONTEXT = 20


def stepped(model: PlantedModel, n_tokens: int = 48) -> SingleSteps:
    """What single steps of this model compute after a context."""
    read(model, TEXT, CONTEXT, TimeBox(9.0))
    return SingleSteps(model, CONTEXT, TEXT[50 : 50 + n_tokens], Times())


@pytest.mark.parametrize("width", [2, 3, 5, 7, 16])
def test_a_pass_that_computes_the_same_is_exact(width: int) -> None:
    assert stepped(PlantedModel()).compare(width) == Comparison(logits_equal=True, cache_equal=True, difference=0.0)


def test_a_pass_whose_logits_alone_differ_keeps_an_exact_cache() -> None:
    steps = stepped(PlantedModel(odd_logits_from=4))
    assert steps.compare(3).logits_equal
    found = steps.compare(4)
    assert (found.logits_equal, found.cache_equal) == (False, True)
    assert math.isclose(found.difference, 0.001, rel_tol=0.1)


@pytest.mark.parametrize("odd_logits_from", [4, 99])
def test_a_pass_that_leaves_another_cache_is_inexact_even_if_its_logits_are_equal(odd_logits_from: int) -> None:
    steps = stepped(PlantedModel(odd_cache_from=4, odd_logits_from=odd_logits_from))
    assert steps.compare(3).cache_equal
    assert not steps.compare(4).cache_equal


def test_a_pass_over_fewer_tokens_is_held_to_the_same_cache() -> None:
    assert stepped(PlantedModel()).compare(5, 24) == Comparison(logits_equal=True, cache_equal=True, difference=0.0)
    assert not stepped(PlantedModel(odd_cache_from=4)).compare(5, 24).cache_equal


def test_a_difference_in_one_late_token_is_found() -> None:
    class OddAtTheEnd(PlantedModel):
        def forward(self, tokens: Sequence[int], rows: int) -> FloatArray:
            late = len(tokens) > 1 and len(self.held) > CONTEXT + 36
            logits = super().forward(tokens, rows)
            if late:
                logits[-1, 3] = np.nextafter(logits[-1, 3], np.float32(9))
            return logits

    assert not stepped(OddAtTheEnd()).compare(4).logits_equal


def test_the_comparison_can_be_made_again_and_again() -> None:
    steps = stepped(PlantedModel(odd_cache_from=8))
    assert [steps.compare(width).cache_equal for width in (8, 4, 16, 7)] == [False, True, False, True]


@pytest.mark.parametrize("chunk", [8, 32, 37, 64])
def test_a_prompt_s_chunk_is_exact_where_its_cache_is(chunk: int) -> None:
    assert stepped(PlantedModel(odd_logits_from=2)).chunk_is_exact(chunk)
    assert not stepped(PlantedModel(odd_cache_from=8)).chunk_is_exact(chunk)


def test_what_a_rolled_back_draft_leaves_behind_is_noticed() -> None:
    assert stepped(PlantedModel()).survives_rollback(4)
    assert not stepped(PlantedModel(odd_after_rollback=True)).survives_rollback(4)


def test_another_thread_count_is_held_to_the_same_bits() -> None:
    for odd in (False, True):
        model = PlantedModel(odd_single_thread=odd)
        steps = stepped(model)
        model.use_threads(1)
        assert steps.repeat_equally((2, 4)) is not odd


def test_a_width_counts_where_it_was_looked_at_in_every_context() -> None:
    same, near = Comparison(True, True, 0.0), Comparison(False, True, 0.25)
    found = exactness_of({100: {2: same, 4: same, 8: near}, 600: {2: same, 4: near}})
    assert (found.widths, found.near_widths, found.logit_difference) == ((1, 2), (4,), 0.25)
    assert (found.contexts, found.tried_widths) == ((100, 600), (1, 2, 4))


def test_widths_beyond_one_that_leaves_another_cache_do_not_count() -> None:
    same, odd = Comparison(True, True, 0.0), Comparison(False, False, 0.5)
    found = exactness_of({100: {2: same, 3: same, 4: same}, 600: {2: same, 3: odd, 4: same}})
    assert (found.widths, found.near_widths, found.logit_difference) == ((1, 2), (), 0.0)
    assert exactness_of({}).widths == (1,)


def test_no_number_is_no_equal() -> None:
    class Broken(PlantedModel):
        def forward(self, tokens: Sequence[int], rows: int) -> FloatArray:
            logits = super().forward(tokens, rows)
            if len(tokens) > 1:
                logits[:] = np.nan
            return logits

    assert stepped(Broken()).compare(2).difference == math.inf


def test_times_are_medians_of_the_widths_that_all_contexts_share() -> None:
    times = Times()
    for context, width, seconds in ((100, 1, 3.0), (100, 1, 1.0), (100, 1, 2.0), (100, 4, 5.0), (600, 1, 4.0)):
        times.add(context, width, seconds)
    assert times.costs((600, 100)).contexts == (100, 600)
    assert times.costs((100, 600)).widths == (1,)
    assert times.costs((100, 600)).seconds == ((2.0,), (4.0,))
    assert times.costs((100,)).widths == (1, 4)


def test_a_spent_time_box_ends_the_measurement_after_the_least_there_is() -> None:
    now = 0.0
    model, times = PlantedModel(), Times()
    read(model, TEXT, 150, TimeBox(0.0))
    assert 0 < len(model.held) < 150
    time_widths(model, TEXT, 10, (4, 1, 8), times, TimeBox(0.0, lambda: now))
    assert {width: len(taken) for width, taken in times.of[10].items()} == {4: 1}
    time_widths(model, TEXT, 10, (4, 1, 8), times, TimeBox(1.0, lambda: now))
    assert {width: len(taken) for width, taken in times.of[10].items()} == {4: 4, 1: 3, 8: 3}


def test_a_part_of_a_time_box_is_a_share_of_what_is_left() -> None:
    now = [0.0]
    box = TimeBox(10.0, lambda: now[0])
    now[0] = 6.0
    assert box.part(0.5).left == 2.0
    now[0] = 11.0
    assert box.spent
    assert box.part(0.5).spent
