"""How well a draft model foretells its target, before any answer: AUTO starts from this instead of from nothing."""

from collections.abc import Sequence

import numpy as np

from draftlight.engine.costs import DraftTrial
from draftlight.engine.model import LanguageModel, Tokenizer
from draftlight.llama.measuring import MAX_ROWS, TimeBox

_N_TOKENS = 48  # written by the target after each prompt
_PROMPTS = (
    "Question: Why does the moon seem to change its shape over a month?\nAnswer: ",
    "def mean(numbers: list[float]) -> float:\n    '''Return the arithmetic mean of the numbers.'''\n",
    "The old lighthouse keeper climbed the stairs every evening. One night, when the lamp would not burn, he",
)
N_TRIALS = _N_TOKENS * len(_PROMPTS)


def try_drafting(
    target: LanguageModel, draft: LanguageModel, tokenizer: Tokenizer, start: Sequence[int], box: TimeBox
) -> tuple[DraftTrial, ...]:
    """Let the target write a little after each of a few prompts, and ask the draft model at each of these positions.

    Greedy on both sides; the draft model is told what the target wrote. `start` comes before each prompt. Each prompt
    gets at least one token, and its part of the time that is left.
    """
    trials: list[DraftTrial] = []
    for number, prompt in enumerate(_PROMPTS):
        tokens = [*start, *tokenizer.encode(prompt)]
        n_tokens = min(_N_TOKENS, min(target.n_ctx, draft.n_ctx) - len(tokens))
        if n_tokens < 1 or max(tokens) >= draft.n_vocab:
            continue
        written = _written(target, tokens, n_tokens, tokenizer, box.part(1 / (len(_PROMPTS) - number)))
        if max(written) < draft.n_vocab:
            trials += _foretold(draft, tokens, written, target.n_vocab)
    return tuple(trials)


def _written(
    target: LanguageModel, prompt: Sequence[int], n_tokens: int, tokenizer: Tokenizer, box: TimeBox
) -> list[int]:
    """Return what the target writes, an end token included."""
    target.rollback(0)
    written = [int(np.argmax(target.forward(prompt, 1)[0]))]
    while len(written) < n_tokens and not tokenizer.is_end(written[-1]) and not box.spent:
        written.append(int(np.argmax(target.forward(written[-1:], 1)[0])))
    return written


def _foretold(draft: LanguageModel, prompt: Sequence[int], written: Sequence[int], n_vocab: int) -> list[DraftTrial]:
    """Return what the draft model made of each token that was written, with ids below `n_vocab` only."""
    draft.rollback(0)
    if len(prompt) > 1:
        draft.forward(prompt[:-1], 0)
    trials = []
    before = [prompt[-1], *written[:-1]]
    for first in range(0, len(before), MAX_ROWS):
        tokens = before[first : first + MAX_ROWS]
        for row, token in zip(draft.forward(tokens, len(tokens)), written[first:], strict=False):
            row = row[:n_vocab]  # noqa: PLW2901 - the same row
            second, largest = np.partition(row, -2)[-2:]
            trials.append(DraftTrial(margin=float(largest - second), accepted=int(np.argmax(row)) == token))
    return trials
