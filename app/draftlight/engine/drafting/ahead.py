"""Drafts the next round while the target verifies this one: for a draft model that has a device of its own.

It goes on from the whole draft as if all of it were accepted; the token it draws where the bonus will stand is the
target's own bonus as often as any other, since both share their noise. Then the next draft is there for nothing. After
a rejection it is dropped. On one device, or on cores that both models share, the two passes slow each other down.
"""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from draftlight.engine.cancel import CancelToken
from draftlight.engine.costs import DraftTrial
from draftlight.engine.drafting.base import Drafted, Offer
from draftlight.engine.drafting.model import ModelDrafter
from draftlight.engine.events import DraftSource
from draftlight.engine.sampling import Sampler

_LONGEST = 8  # tokens drafted ahead of a verify, the one in the bonus' place included


class AheadDrafter:
    """A draft model that does not wait for the verify. One thread moves it at a time: the loop's, or its own meanwhile.

    Attributes:
        ahead_seconds: time inside the draft model that passed while the target verified, summed over all rounds.

    """

    source = DraftSource.MODEL

    def __init__(self, inner: ModelDrafter) -> None:
        """Move `inner` from now on; close() ends the thread."""
        self._inner = inner
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="draft-ahead")
        self._enough = threading.Event()
        self._sequence: list[int] = []  # what the drafts below continue, each with those before it
        self._ready: list[Drafted] = []
        self.ahead_seconds = 0.0

    @property
    def decode_seconds(self) -> float:
        """Seconds inside the draft model for which the loop waited."""
        return self._inner.decode_seconds - self.ahead_seconds

    def begin(self, prompt: Sequence[int], earlier: Sequence[Sequence[int]] = ()) -> None:
        """Drop what was drafted ahead."""
        self._ready.clear()
        self._inner.begin(prompt, earlier)

    def offer(self, sequence: Sequence[int], n_committed: int) -> Offer:
        """Tell that a token is there already (lag 0), or how far behind the model is."""
        if self._next(sequence) is not None:
            return Offer(ready=True)
        return self._inner.offer(sequence, n_committed)

    def propose(self, sequence: Sequence[int], sampler: Sampler, cancel: CancelToken) -> Drafted | None:
        """Return the token that was drafted ahead, or draft one now."""
        return self._next(sequence) or self._inner.propose(sequence, sampler, cancel)

    def review(self, sequence: Sequence[int], sampler: Sampler, cancel: CancelToken, n_read: int) -> list[DraftTrial]:
        """Compare the text's last tokens with what would have been proposed in their place."""
        return self._inner.review(sequence, sampler, cancel, n_read)

    @contextmanager
    def drafting_ahead(self, sequence: Sequence[int], sampler: Sampler) -> Iterator[None]:
        """Draft on from `sequence`, committed and drafted tokens, while the block runs: the target's verify of them.

        At its end the pass that is running is waited for. Raises what the thread raised.
        """
        offer = self._inner.offer(sequence, len(sequence))
        self._ready.clear()
        self._sequence = list(sequence)
        if offer.ready and offer.lag <= _LONGEST:  # else it is not drafting now, and would only catch up
            self._enough.clear()
            running = self._pool.submit(self._run_ahead, sampler)
            try:
                yield
            finally:
                self._enough.set()
                running.result()
        else:
            yield

    def close(self) -> None:
        """End the thread."""
        self._pool.shutdown()

    def _next(self, sequence: Sequence[int]) -> Drafted | None:
        """Return what was drafted ahead for just this text."""
        n = len(sequence) - len(self._sequence)
        if not 0 <= n < len(self._ready):
            return None
        drafted = [ready.token for ready in self._ready[:n]]
        return self._ready[n] if [*self._sequence, *drafted] == list(sequence) else None

    def _run_ahead(self, sampler: Sampler) -> None:
        """Draft token after token; on the drafter's own thread."""
        sequence = list(self._sequence)
        before = self._inner.decode_seconds
        while len(self._ready) < _LONGEST and not self._enough.is_set():
            if not self._inner.offer(sequence, len(sequence)).ready:
                break
            drafted = self._inner.propose(sequence, sampler, CancelToken())
            if drafted is None:
                break
            self._ready.append(drafted)
            sequence.append(drafted.token)
        self.ahead_seconds += self._inner.decode_seconds - before
