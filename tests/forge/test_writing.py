"""Many texts at once are the texts that the model writes one by one."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from draftlight.forge.writing import ATTENTION, Manner, Written, write
from small_torch import small_model

END = 7
PROMPTS = ((1, 2, 3), (4, 5, 6, 8, 9, 10, 11), (12,), (13, 14))


def written_alone(model: PreTrainedModel, prompt: Sequence[int], n_tokens: int) -> list[int]:
    """The plainest way: the whole text anew for each token."""
    text = list(prompt)
    with torch.inference_mode():
        while len(text) < len(prompt) + n_tokens:
            text.append(int(model(torch.tensor([text])).logits[0, -1].argmax()))
            if text[-1] == END:
                break
    return text[len(prompt) :]


def greedy(model: PreTrainedModel, prompts: Sequence[Sequence[int]], n_tokens: int) -> list[Written]:
    found = write(model, prompts, [0.0] * len(prompts), Manner(n_tokens, frozenset({END})), 1, lambda: True)
    assert found is not None
    return found


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma3"])
def test_texts_written_together_are_those_written_alone(family: str) -> None:
    together = greedy(small_model(family, attention=ATTENTION), PROMPTS, 24)
    alone = small_model(family)
    assert [list(each.tokens) for each in together] == [written_alone(alone, prompt, 24) for prompt in PROMPTS]


def test_labels_are_the_law_at_each_place() -> None:
    model = small_model("llama", attention=ATTENTION)
    one = greedy(model, PROMPTS[:2], 12)[1]
    text = torch.tensor([[*PROMPTS[1], *one.tokens]])
    with torch.inference_mode():
        logits = small_model("llama")(text).logits[0, len(PROMPTS[1]) - 1 : -1]
    logprobs, ids = logits.log_softmax(-1).topk(16)
    assert one.label_ids.tolist() == ids.tolist()
    assert np.allclose(one.label_logprobs, logprobs.numpy(), atol=0.01)


def test_an_end_token_ends_a_text_and_is_part_of_it() -> None:
    model = small_model("llama", attention=ATTENTION)
    free = greedy(model, PROMPTS, 30)
    end = free[0].tokens[5]
    found = write(model, PROMPTS, [0.0] * 4, Manner(30, frozenset({end})), 1, lambda: True)
    assert found is not None
    for each, before in zip(found, free, strict=True):
        length = before.tokens.index(end) + 1 if end in before.tokens else 30
        assert each.tokens == before.tokens[:length]
        assert len(each.label_ids) == length


def test_the_same_seed_draws_the_same_texts_and_another_one_others() -> None:
    model = small_model("llama", attention=ATTENTION)
    manner = Manner(20, frozenset())
    first, again, other = (write(model, PROMPTS, [1.0] * 4, manner, seed, lambda: True) for seed in (1, 1, 2))
    assert first is not None
    assert again is not None
    assert other is not None
    assert [each.tokens for each in first] == [each.tokens for each in again]
    assert [each.tokens for each in first] != [each.tokens for each in other]


def test_drawing_follows_the_law() -> None:
    model = small_model("llama", attention=ATTENTION)
    n = 4000
    found = write(model, [PROMPTS[0]] * n, [1.0] * n, Manner(1, frozenset(), top_k=4), 3, lambda: True)
    assert found is not None
    law = np.exp(found[0].label_logprobs[0][:4].astype(float))
    law /= law.sum()
    drawn = [each.tokens[0] for each in found]
    shares = [drawn.count(int(token)) / n for token in found[0].label_ids[0][:4]]
    assert np.abs(shares - law).max() < 4 * np.sqrt(0.25 / n)


def test_a_stop_leaves_nothing() -> None:
    asked = iter([True, True, False])
    model = small_model("llama", attention=ATTENTION)
    assert write(model, PROMPTS, [0.0] * 4, Manner(9, frozenset()), 1, lambda: next(asked)) is None
