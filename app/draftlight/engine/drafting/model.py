"""Drafts from a small model of the same vocabulary, its cache kept in step without evaluating anything twice."""

from collections.abc import Sequence

from draftlight.engine.cancel import CancelToken
from draftlight.engine.context import Context
from draftlight.engine.costs import DraftTrial
from draftlight.engine.drafting.base import Drafted, Offer
from draftlight.engine.events import DraftSource
from draftlight.engine.sampling import Sampler

_TOP = 5
_REVIEWED = 24  # rows of logits looked at in a review; each costs host time


class ModelDrafter:
    """The draft model. After a verify its cache still holds the accepted part of its draft; only the rest is fed.

    While others draft it lags behind: nothing is read until a token is asked of it.
    """

    source = DraftSource.MODEL

    def __init__(self, context: Context, n_vocab: int) -> None:
        """Draft with `context`; propose only ids below `n_vocab`, the target's: vocabularies may differ in padding."""
        self._context = context
        self._n_vocab = min(n_vocab, context.n_vocab)

    @property
    def decode_seconds(self) -> float:
        """Seconds spent so far inside the draft model."""
        return self._context.decode_seconds

    def begin(self, prompt: Sequence[int], earlier: Sequence[Sequence[int]] = ()) -> None:
        """Drop from the cache what the new prompt does not share."""
        del earlier  # a model learns nothing from texts it is not told to continue
        self._context.begin(prompt)

    def offer(self, sequence: Sequence[int], n_committed: int) -> Offer:
        """Tell how far behind the cache is; not ready where its context is full or a token is unknown to it."""
        del n_committed
        context = self._context
        if len(sequence) > context.n_ctx:
            return Offer(ready=False, silence=f"the draft model's context of {context.n_ctx:,} tokens is full")
        held = min(context.shared_prefix(sequence), len(sequence) - 1)
        if max(sequence[held:]) >= context.n_vocab:
            return Offer(ready=False, silence="the text holds a token that the draft model does not know")
        return Offer(ready=True, lag=len(sequence) - held)

    def propose(self, sequence: Sequence[int], sampler: Sampler, cancel: CancelToken) -> Drafted | None:
        """Draw the next token from q with the noise of its position."""
        before = self._context.decode_seconds
        if not self._catch_up(sequence, cancel):
            return None
        logits = self._context.advance(sequence)[0][: self._n_vocab]
        law = sampler.law(logits, sequence)
        token, _, margin = law.choose(sampler.seed, len(sequence))
        return Drafted(
            token=token,
            source=DraftSource.MODEL,
            q=law.probability(token),
            rank=law.rank(token),
            margin=margin,
            top=tuple(law.top(_TOP)),
            decode_seconds=self._context.decode_seconds - before,
        )

    def review(self, sequence: Sequence[int], sampler: Sampler, cancel: CancelToken, n_read: int) -> list[DraftTrial]:
        """Compare the text's last tokens with what this model would have drafted in their place.

        One forward pass tells as much as a dozen rounds of drafting would: the way to see whether drafting pays again.
        Where the cache is further behind than `n_read` tokens the window is read alone and the cache then holds nothing
        else: catching up for good would cost more than a look is worth.
        """
        n_before = 0  # tokens left out in front of the window
        if len(sequence) - self._context.shared_prefix(sequence) > n_read:
            n_before = len(sequence) - n_read
            self._context.begin(())
        window = sequence[n_before:]
        if not self._catch_up(window, cancel):
            return []
        rows = min(_REVIEWED, len(window) - min(self._context.shared_prefix(window), len(window) - 1))
        logits = self._context.advance(window, rows)
        trials = []
        for row, end in zip(logits[:-1], range(len(sequence) - rows + 1, len(sequence)), strict=True):
            law = sampler.law(row[: self._n_vocab], sequence[:end])
            token, _, margin = law.choose(sampler.seed, end)
            trials.append(DraftTrial(margin, token == sequence[end]))
        return trials

    def _catch_up(self, sequence: Sequence[int], cancel: CancelToken) -> bool:
        """Read whole chunks until one is left; False once cancelled."""
        for _ in self._context.prefill(sequence):
            if cancel.cancelled:
                return False
        return not cancel.cancelled
