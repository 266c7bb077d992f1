"""A context holds exactly what it was told to, and never evaluates a token twice without need."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftlight.engine.context import Context
from draftlight.engine.model import CannotRollBack
from toys import TableModel

TOKENS = st.lists(st.integers(0, 3), min_size=1, max_size=12)


@given(sequences=st.lists(TOKENS, min_size=1, max_size=8))
def test_logits_equal_a_fresh_model_s_whatever_came_before(sequences: list[list[int]]) -> None:
    context = Context(TableModel(4))
    for sequence in sequences:
        rows = (len(sequence) + 1) // 2
        logits = context.advance(sequence, rows)
        assert (logits == TableModel(4).forward(sequence, rows)).all()
        assert list(context.tokens) == sequence


@given(held=TOKENS, wanted=TOKENS)
def test_the_shared_prefix_is_the_longest_one(held: list[int], wanted: list[int]) -> None:
    context = Context(TableModel(4))
    context.advance(held)
    n = context.shared_prefix(wanted)
    assert held[:n] == wanted[:n]
    assert n == min(len(held), len(wanted)) or held[n] != wanted[n]


def test_only_what_is_missing_is_fed() -> None:
    model = TableModel()
    context = Context(model)
    context.advance([1, 2, 3, 4])
    context.advance([1, 2, 5])
    context.advance([1, 2, 5, 6, 7], rows=2)
    assert model.forwards == [4, 1, 2]


def test_a_long_prompt_is_cut_at_multiples_of_the_chunk_whatever_was_reused() -> None:
    model = TableModel()
    context = Context(model, chunk=4)
    prompt = [1] * 14
    assert list(context.prefill(prompt)) == [4, 8, 12]
    context.advance(prompt)
    changed = [*prompt[:6], *[2] * 8]
    assert list(context.prefill(changed)) == [8, 12]
    assert model.forwards == [4, 4, 4, 2, 2, 4]


def test_a_failed_forward_leaves_the_cache_as_it_was() -> None:
    model = TableModel()
    context = Context(model)
    context.advance([1, 2])
    model.fail_at = 1
    with pytest.raises(RuntimeError, match="broke"):
        context.advance([1, 2, 3])
    assert (context.tokens, model.held) == ((1, 2), [1, 2])


def test_a_model_that_cannot_roll_back_says_so() -> None:
    model = TableModel()
    context = Context(model)
    context.advance([1, 2, 3])
    model.can_roll_back = False
    with pytest.raises(CannotRollBack):
        context.advance([1, 4])
    assert context.tokens == (1, 2, 3)


def test_a_new_text_starts_anew_on_a_model_that_cannot_roll_back() -> None:
    model = TableModel()
    model.can_roll_back = False
    context = Context(model)
    context.advance([1, 2, 3])
    assert context.begin([1, 2, 4]) == 0
    assert (context.tokens, model.held) == ((), [])
    assert (context.advance([1, 2, 4]) == TableModel().forward([1, 2, 4], 1)).all()


def test_a_text_that_is_known_whole_is_evaluated_again_from_its_last_token() -> None:
    context = Context(TableModel())
    context.advance([1, 2, 3])
    assert (context.begin([1, 2, 3]), context.begin([1, 2])) == (2, 1)
