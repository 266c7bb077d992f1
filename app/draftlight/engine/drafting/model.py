"""Drafts from a small model of the same vocabulary, its cache kept in step without evaluating anything twice."""

from collections.abc import Iterator, Sequence

from draftlight.engine.cancel import CancelToken
from draftlight.engine.context import Context
from draftlight.engine.drafting.base import Drafted
from draftlight.engine.events import DraftSource
from draftlight.engine.model import Tokenizer
from draftlight.engine.sampling import Sampler

_TOP = 5


class ModelDrafter:
    """The draft model. After a verify its cache still holds the accepted part of its draft; only the rest is fed."""

    def __init__(self, context: Context, tokenizer: Tokenizer, n_vocab: int) -> None:
        """Draft with `context`; propose only ids below `n_vocab`, the target's: vocabularies may differ in padding."""
        self._context = context
        self._tokenizer = tokenizer
        self._n_vocab = min(n_vocab, context.n_vocab)
        self._silence = ""

    @property
    def decode_seconds(self) -> float:
        """Seconds spent so far inside the draft model."""
        return self._context.decode_seconds

    @property
    def silence(self) -> str:
        """Why the last draft was empty, in words."""
        return self._silence

    def draft(self, history: Sequence[int], limit: int, sampler: Sampler, cancel: CancelToken) -> Iterator[Drafted]:
        """Propose at most `limit` tokens, each drawn from q with the noise of its position."""
        limit = min(limit, self._context.n_ctx - len(history) + 1)
        if limit <= 0:
            self._silence = f"the draft model's context of {self._context.n_ctx:,} tokens is full"
            return
        held = self._context.shared_prefix(history)
        if any(token >= self._context.n_vocab for token in history[held:]):
            self._silence = "the text holds a token that the draft model does not know"
            return
        self._silence = "stopped"
        for _ in self._context.prefill(history):
            if cancel.cancelled:
                return
        sequence = list(history)
        for _ in range(limit):
            if cancel.cancelled:
                return
            drafted = self._next(sequence, sampler)
            yield drafted
            sequence.append(drafted.token)
            if self._tokenizer.is_end(drafted.token):
                return

    def _next(self, sequence: Sequence[int], sampler: Sampler) -> Drafted:
        before = self._context.decode_seconds
        logits = self._context.advance(sequence)[0][: self._n_vocab]
        seconds = self._context.decode_seconds - before
        law = sampler.law(logits, sequence)
        token, _, margin = law.choose(sampler.seed, len(sequence))
        return Drafted(
            token=token,
            source=DraftSource.MODEL,
            q=law.probability(token),
            rank=law.rank(token),
            margin=margin,
            top=tuple(law.top(_TOP)),
            decode_seconds=seconds,
        )
