"""Drafts the next round while the target verifies this one: for a draft model that has a device of its own.

It goes on from the whole draft as if all of it were accepted; the token it draws where the bonus will stand is the
target's own bonus as often as any other, since both share their noise. Then the next draft is there for nothing. After
a rejection it is dropped. On one device, or on cores that both models share, the two passes slow each other down: so
both ways are tried while the answer comes, and the faster one stays.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from draftlight.engine.cancel import CancelToken
from draftlight.engine.costs import DraftTrial
from draftlight.engine.drafting.base import Drafted, Offer
from draftlight.engine.drafting.model import ModelDrafter
from draftlight.engine.events import DraftSource
from draftlight.engine.sampling import Sampler

_LONGEST = 8  # tokens drafted ahead of a verify, the one in the bonus' place included
_BLOCK = 16  # rounds of one way, then as many of the other
_TRIED = 4 * _BLOCK  # rounds until the faster way is known
_HELD = 1024  # rounds that it is kept for
_WORTH = 1.03  # times as fast that drafting ahead must be: it keeps another device busy


class _Turns:
    """Whether to draft ahead: that and waiting are tried in turn, then what commits more tokens a second stays."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.ahead = True
        self._clock = clock
        self._n_rounds = 0
        self._last: tuple[int, float] | None = None  # tokens committed, and the time, when the last round was verified
        self._tokens = {True: 0, False: 0}
        self._seconds = {True: 0.0, False: 0.0}

    def interrupt(self) -> None:
        """Another answer begins, so the time since the last round says nothing."""
        self._last = None

    def next_round(self, n_committed: int) -> bool:
        """Return whether to draft ahead during the verify that begins now."""
        now = self._clock()
        if self._last is not None:
            self._tokens[self.ahead] += n_committed - self._last[0]
            self._seconds[self.ahead] += now - self._last[1]
        self._last = (n_committed, now)
        place = self._n_rounds % (_TRIED + _HELD)
        self._n_rounds += 1
        if place == 0:
            self._tokens, self._seconds = {True: 0, False: 0}, {True: 0.0, False: 0.0}
        if place < _TRIED:
            self.ahead = place // _BLOCK % 2 == 0
        elif place == _TRIED:
            ahead, waiting = (self._tokens[way] / max(self._seconds[way], 1e-9) for way in (True, False))
            self.ahead = ahead > _WORTH * waiting
        return self.ahead


class AheadDrafter:
    """A draft model that does not wait for the verify. One thread moves it at a time: the loop's, or its own meanwhile.

    Attributes:
        ahead_seconds: time inside the draft model that passed while the target verified, summed over all rounds.

    """

    source = DraftSource.MODEL

    def __init__(self, inner: ModelDrafter, clock: Callable[[], float] = time.perf_counter) -> None:
        """Move `inner` from now on; close() ends the thread."""
        self._inner = inner
        self._turns = _Turns(clock)
        self._n_committed = 0
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
        self._turns.interrupt()
        self._inner.begin(prompt, earlier)

    def offer(self, sequence: Sequence[int], n_committed: int) -> Offer:
        """Tell that a token is there already (lag 0), or how far behind the model is."""
        self._n_committed = n_committed
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

        At its end the pass that is running is waited for. Does nothing where that was found to be faster. Raises what
        the thread raised.
        """
        offer = self._inner.offer(sequence, len(sequence))
        self._ready.clear()
        self._sequence = list(sequence)
        is_drafting = offer.ready and offer.lag <= _LONGEST  # else it would only catch up
        if is_drafting and self._turns.next_round(self._n_committed):
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
