"""How often a draft model drafts what its target says, on chats that it has not learned from. Knows no torch.

The target's greedy answers are written once; after that drafting is done for real, by the engine's own loop, with a
target that recites them: what is committed does not depend on the draft, so it comes out as with the target itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from draftlight.engine.cancel import CancelToken
from draftlight.engine.context import Context
from draftlight.engine.decoding import GenerationRequest, SpeculativeDecoder
from draftlight.engine.drafting.model import ModelDrafter
from draftlight.engine.events import GenerationFinished
from draftlight.engine.model import FloatArray, LanguageModel, Tokenizer
from draftlight.engine.sampling import SamplingParams

_ROWS = 32  # logits that one pass returns


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A prompt and what the target itself answers to it, greedily; an end token is the answer's last, if it came."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]


def answered(
    target: LanguageModel,
    tokenizer: Tokenizer,
    prompts: Sequence[Sequence[int]],
    n_tokens: int,
    go_on: Callable[[], bool],
) -> list[HeldOut] | None:
    """Return the target's greedy answers of at most `n_tokens`; None as soon as `go_on` says no."""
    found = []
    context = _fresh(target)
    for prompt in prompts:
        context.begin(prompt)
        text = list(prompt)
        while len(text) < len(prompt) + n_tokens:
            if not go_on():
                return None
            for _ in context.prefill(text):
                pass
            text.append(int(np.argmax(context.advance(text)[0])))
            if tokenizer.is_end(text[-1]):
                break
        found.append(HeldOut(tuple(prompt), tuple(text[len(prompt) :])))
    return found


def agreement(draft: LanguageModel, held_out: Sequence[HeldOut], go_on: Callable[[], bool] = _always) -> float | None:
    """Return the share of the answers' places at which the draft model's likeliest token is the target's, 0 to 1.

    None as soon as `go_on`, asked before each answer, says no.
    """
    n_right = n_places = 0
    context = _fresh(draft)
    for each in held_out:
        if not go_on():
            return None
        context.begin(())
        text = (*each.prompt, *each.answer)
        for _ in context.prefill(each.prompt):
            pass
        for first in range(len(each.prompt), len(text), _ROWS):
            last = min(first + _ROWS, len(text))
            chosen = context.advance(text[: last - 1], last - first).argmax(axis=-1)
            n_right += int((chosen == np.array(text[first:last])).sum())
            n_places += last - first
    return n_right / n_places if n_places else 0.0


def block_efficiency(
    draft: LanguageModel,
    tokenizer: Tokenizer,
    held_out: Sequence[HeldOut],
    draft_length: int,
    go_on: Callable[[], bool] = _always,
) -> float | None:
    """Return the committed tokens per verify when that many tokens are drafted in each round, greedily.

    None as soon as `go_on`, asked before each answer, says no.
    """
    n_committed = n_rounds = 0
    drafter = ModelDrafter(_fresh(draft), draft.n_vocab)
    for each in held_out:
        if not go_on():
            return None
        recital = _Recital(each, draft.n_vocab)
        decoder = SpeculativeDecoder(Context(recital), [drafter], tokenizer)
        request = GenerationRequest(
            each.prompt, SamplingParams(temperature=0.0), 0, draft_length, max_new_tokens=len(each.answer)
        )
        for event in decoder.generate(request, CancelToken()):
            if isinstance(event, GenerationFinished):
                n_committed += event.stats.n_committed - 1  # the first one comes from the prompt's own pass
                n_rounds += event.stats.n_rounds - 1
    return n_committed / n_rounds if n_rounds else 1.0


def _fresh(model: LanguageModel) -> Context:
    """Empty the model, whoever used it before."""
    model.rollback(0)
    return Context(model)


class _Recital:
    """A target that knows its answer by heart: at each place the answer's token has the one large logit."""

    def __init__(self, held_out: HeldOut, n_vocab: int) -> None:
        self._text = (*held_out.prompt, *held_out.answer)
        self.n_ctx = len(self._text) + _ROWS
        self.n_vocab = n_vocab
        self.decode_seconds = 0.0
        self._n_past = 0

    def forward(self, tokens: Sequence[int], rows: int) -> FloatArray:
        self._n_past += len(tokens)
        logits = np.zeros((rows, self.n_vocab), np.float32)
        for row, place in enumerate(range(self._n_past - rows + 1, self._n_past + 1)):
            logits[row, self._text[min(place, len(self._text) - 1)]] = 1.0
        return logits

    def rollback(self, n_past: int) -> None:
        self._n_past = n_past
