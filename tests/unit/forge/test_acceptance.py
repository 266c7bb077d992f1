"""Held-out acceptance: what is counted is what drafting with the target itself would show."""

import numpy as np
import pytest

from draftlight.engine.cancel import CancelToken
from draftlight.engine.context import Context
from draftlight.engine.decoding import GenerationRequest, SpeculativeDecoder
from draftlight.engine.drafting.model import ModelDrafter
from draftlight.engine.events import GenerationFinished
from draftlight.engine.sampling import SamplingParams
from draftlight.forge.acceptance import HeldOut, agreement, answered, block_efficiency
from toys import LetterTokenizer, TableModel

PROMPTS = ((1, 2, 3), (4, 5), (6, 7, 8, 9))
N_TOKENS = 40
TOKENIZER = LetterTokenizer()


def held_out(tokenizer: LetterTokenizer = TOKENIZER) -> list[HeldOut]:
    found = answered(TableModel(), tokenizer, PROMPTS, N_TOKENS, lambda: True)
    assert found is not None
    return found


def test_answers_are_the_targets_greedy_ones() -> None:
    target = TableModel()
    for each in held_out():
        assert len(each.answer) == N_TOKENS
        text = list(each.prompt)
        for token in each.answer:
            assert token == int(np.argmax(target.row(text)))
            text.append(token)


def test_an_end_token_ends_an_answer() -> None:
    end = held_out()[0].answer[7]
    first = held_out(LetterTokenizer(end=end))[0].answer
    assert first[-1] == end
    assert end not in first[:-1]


def test_a_stop_leaves_no_answers() -> None:
    asked = iter([True] * 50 + [False])
    assert answered(TableModel(), TOKENIZER, PROMPTS, N_TOKENS, lambda: next(asked)) is None


def test_agreement_is_the_share_of_places_where_the_likeliest_token_is_the_targets() -> None:
    draft = TableModel(noise=1.5)
    right = [
        int(np.argmax(draft.row((*each.prompt, *each.answer[:place])))) == token
        for each in held_out()
        for place, token in enumerate(each.answer)
    ]
    assert agreement(draft, held_out()) == pytest.approx(sum(right) / len(right))
    assert agreement(TableModel(), held_out()) == 1.0


@pytest.mark.parametrize("draft_length", [1, 3, 6])
@pytest.mark.parametrize("noise", [0.0, 1.0, 3.0])
def test_reciting_the_answer_counts_the_rounds_that_the_target_itself_would_take(
    draft_length: int, noise: float
) -> None:
    drafter = ModelDrafter(Context(TableModel(noise=noise)), 16)
    n_committed = n_rounds = 0
    for each in held_out():
        decoder = SpeculativeDecoder(Context(TableModel()), [drafter], TOKENIZER)
        request = GenerationRequest(
            each.prompt, SamplingParams(temperature=0), 0, draft_length, max_new_tokens=N_TOKENS
        )
        finished = list(decoder.generate(request, CancelToken()))[-1]
        assert isinstance(finished, GenerationFinished)
        n_committed += finished.stats.n_committed - 1
        n_rounds += finished.stats.n_rounds - 1
    found = block_efficiency(TableModel(noise=noise), TOKENIZER, held_out(), draft_length)
    assert found == pytest.approx(n_committed / n_rounds)
    if noise == 0.0:
        assert found is not None
        assert found > 0.9 * (draft_length + 1)


def test_a_model_that_was_used_before_is_emptied_first() -> None:
    draft = TableModel(noise=1.5)
    fresh = agreement(TableModel(noise=1.5), held_out())
    draft.forward([1, 2, 3, 4], 0)
    assert agreement(draft, held_out()) == fresh
