"""What the target's file itself thinks at each place of chats that torch has written: its quantised arithmetic's law.

llama.cpp rounds the inputs of quantised products, so its choice differs from torch's at about one place in twenty-five.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from draftlight.engine.context import Context
from draftlight.engine.model import FloatArray, LanguageModel
from draftlight.forge.chats import Chats

_ROWS = 32  # logits that one pass returns


def labelled_by(
    target: LanguageModel, chats: Chats, n_labels: int, go_on: Callable[[], bool], n_vocab: int | None = None
) -> Chats | None:
    """Return the chats with this model's likeliest tokens and their log-probabilities at temperature 1 as labels.

    Of its vocabulary only the first `n_vocab` tokens count, where the draft model knows fewer. None as soon as `go_on`
    says no.
    """
    target.rollback(0)
    context = Context(target)
    ids = np.empty((chats.n_answer_tokens, n_labels), np.int32)
    logprobs = np.empty((chats.n_answer_tokens, n_labels), np.float16)
    n_done = 0
    for number in range(chats.n_chats):
        text = chats.tokens[chats.starts[number] : chats.starts[number + 1]].tolist()
        prompt = int(chats.answers[number])
        context.begin(())
        for _ in context.prefill(text[:prompt]):
            pass
        for first in range(prompt, len(text), _ROWS):
            if not go_on():
                return None
            last = min(first + _ROWS, len(text))
            rows = slice(n_done, n_done + last - first)
            ids[rows], logprobs[rows] = _likeliest(
                context.advance(text[: last - 1], last - first)[:, :n_vocab], n_labels
            )
            n_done += last - first
    return replace(chats, label_ids=ids, label_logprobs=logprobs)


def _likeliest(logits: FloatArray, n: int) -> tuple[NDArray[np.int64], FloatArray]:
    """Return the ids of the `n` largest of each row, the largest first, and their log-probabilities."""
    some = np.argpartition(logits, -n, axis=-1)[:, -n:]
    largest = np.take_along_axis(logits, some, -1)
    order = np.argsort(-largest, axis=-1, kind="stable")
    top = logits.max(axis=-1, keepdims=True)
    total = top + np.log(np.exp(logits - top).sum(axis=-1, keepdims=True))
    return np.take_along_axis(some, order, -1), np.take_along_axis(largest, order, -1) - total
