"""Which cache is chosen: exact where that costs less than a tenth, else the fastest."""

import math

import pytest

from draftlight.llama.cache_choice import bytes_per_token, choose_exact, choose_fast, next_to_examine, types_to_try
from draftlight.llama.report import CacheTrial
from draftlight.settings import KvType

EXACT, INEXACT = (1, 2, 3, 4), (1, 2)


def trial(kv_type: str, seconds: float | None, exact: tuple[int, ...] | None = None) -> CacheTrial:
    return CacheTrial(KvType(kv_type), 100, seconds, exact)


@pytest.mark.parametrize(
    ("trials", "chosen", "reason"),
    [
        ([trial("q8_0", 1.0, EXACT), trial("f32", 1.2)], "q8_0", "exact, and the fastest"),
        ([trial("q8_0", 1.09, EXACT), trial("f32", 1.0, INEXACT)], "q8_0", "exact, for 9% more time than f32"),
        ([trial("q8_0", 1.2, EXACT), trial("f32", 1.0, INEXACT)], "f32", "takes 20% more time, so it runs in FAST"),
        ([trial("q8_0", 1.2), trial("f32", 1.0, INEXACT)], "f32", "none that is about as fast is exact"),
        ([trial("q8_0", 1.2, EXACT), trial("f32", 1.0, EXACT)], "f32", "exact, and the fastest"),
        ([trial("q8_0", 1.0, EXACT), trial("f32", None)], "q8_0", "exact, and the fastest"),
        ([trial("q8_0", None)], "q8_0", "nothing else"),
    ],
)
def test_a_target_s_cache_is_exact_unless_that_costs_a_tenth(
    trials: list[CacheTrial], chosen: str, reason: str
) -> None:
    found = choose_exact(trials)
    assert found.kv_type == chosen
    assert reason in found.reason


def test_where_exactness_is_insisted_on_it_may_cost_anything() -> None:
    trials = [trial("q8_0", 3.0), trial("f32", 1.0, INEXACT), trial("f16", 2.0, INEXACT)]
    assert next_to_examine(trials, math.inf) is KvType.Q8_0
    assert choose_exact([trial("q8_0", 3.0, EXACT), *trials[1:]], math.inf).kv_type is KvType.Q8_0


@pytest.mark.parametrize(
    ("trials", "expected"),
    [
        ([trial("q8_0", 1.05), trial("f32", 1.0), trial("f16", 1.2)], "f32"),
        ([trial("q8_0", 1.05), trial("f32", 1.0, INEXACT), trial("f16", 1.2)], "q8_0"),
        ([trial("q8_0", 1.05), trial("f32", 1.0, EXACT)], None),  # the fastest is exact: the others cannot win
        ([trial("q8_0", 1.2), trial("f32", 1.0, INEXACT)], None),  # too slow to win
        ([trial("q8_0", 1.05, EXACT), trial("f32", 1.0, INEXACT), trial("f16", 1.08)], None),
        ([trial("q8_0", None)], None),
    ],
)
def test_only_types_that_may_win_are_examined(trials: list[CacheTrial], expected: str | None) -> None:
    assert next_to_examine(trials) == expected


def test_a_draft_model_s_cache_is_the_smallest_of_the_fastest() -> None:
    assert choose_fast([trial("q8_0", 1.0), trial("f32", None), trial("f16", 0.9)]).kv_type is KvType.F16
    small, large = CacheTrial(KvType.Q8_0, 34, 1.03), CacheTrial(KvType.F32, 128, 1.0)
    assert choose_fast([large, small]).kv_type is KvType.Q8_0


def test_a_type_that_was_asked_for_is_the_only_one_tried() -> None:
    assert types_to_try(KvType.F32) == (KvType.F32,)
    assert types_to_try(KvType.AUTO) == (KvType.Q8_0, KvType.F16)


def test_what_a_type_takes_follows_from_what_another_takes() -> None:
    assert bytes_per_token(KvType.Q8_0, 34, KvType.F32) == 128
    assert bytes_per_token(KvType.F16, 64, KvType.F16) == 64
