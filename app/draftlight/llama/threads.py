"""How many threads a pair's models use, decided while running by what their passes take. Pure: calls no llama.cpp.

The threads of a pass wait for each other hundreds of times. Where another program holds one of the cores, all wait for
the thread that has to share it, and fewer threads are faster: on two cores one beats two by far. So each pass is
compared with what it costs undisturbed. When that grows out of proportion, fewer threads are tried for a few passes,
and kept if they are faster; from then on, more are tried now and then, as rarely as what a vain try costs demands.
"""

import logging
import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from draftlight.engine.costs import StepCosts

_log = logging.getLogger("draftlight.llama.threads")

_WINDOW = 8  # passes that say how it goes at present
_COLLAPSED = 1.8  # times as slow as undisturbed with that many threads: fewer are tried
_TRIAL = 4  # passes, at least
_LONGEST_TRIAL = 20
_WORSE = 1.5  # times as slow as when fewer were last tried in vain: they are tried again
_BETTER = 0.85  # a change must make passes at least this much shorter
_HOPELESS = 1.4  # a trial that starts this much slower ends at once
_TRIAL_SHARE = 0.02  # of the time may be lost to trials in vain
_SHORTEST_WAIT = 0.5  # seconds until the next trial, doubled by each one in vain
_DOUBLINGS = 3
_LONGEST_WAIT = 120.0
_PAUSE = 10.0  # seconds without a pass after which what other programs did is forgotten
_WIDEST = 32  # tokens in a pass that is judged: chunks of a prompt cost by other rules
_EPOCH = 256  # passes after which the shortest one seen may be forgotten: contexts grow


@dataclass(frozen=True, slots=True)
class ThreadState:
    """How many threads are used now, out of how many, and why; the sentence is empty where it is all of them."""

    n_threads: int
    n_all: int
    reason: str = ""


@dataclass(slots=True)
class _Trial:
    """A few passes with another number of threads; `before` is the slowness that they are to beat."""

    rung: int
    before: float
    passes: list[tuple[float, float]] = field(default_factory=list)
    lost: float = 0.0  # seconds, over all rungs tried in a row


class ThreadPolicy:
    """The thread count of a pair: what disturbs one of its models disturbs the other. Used by one thread at a time.

    `state` may be read from any thread.

    Attributes:
        n_threads: how many the next pass is to use, out of `n_all`.
        state: the same without trials of a few passes, and why.

    """

    def __init__(self, n_threads: int, *, may_change: bool = True) -> None:
        """Start with all `n_threads`, which is also the most. `may_change` False: where results would depend on it."""
        self.n_threads = self.n_all = n_threads
        self._ladder = _ladder(n_threads) if may_change else (n_threads,)
        self._rung = 0
        self._passes: deque[tuple[float, float]] = deque(maxlen=_WINDOW)  # seconds taken and expected
        self._trial: _Trial | None = None
        self._next_trial = 0.0  # when the next one may start
        self._in_vain = 0  # trials in a row
        self._borne = 0.0  # the slowness at which fewer threads were last tried in vain
        self._last_pass = 0.0
        self._unproven = False  # nothing but the passes themselves says what they cost undisturbed
        self.state = ThreadState(n_threads, n_threads)

    def watch(self, costs: StepCosts | None = None) -> "ThreadWatch":
        """Return the watch for one of the models; `costs` are its passes' with all threads, undisturbed, if known."""
        self._unproven = self._unproven or costs is None
        return ThreadWatch(self, costs)

    def begin(self, now: float) -> int:
        """Return how many threads to use for a pass that starts now (seconds of a clock that never goes back)."""
        if self._rung and now - self._last_pass > _PAUSE:
            self._settle(0, "")
            self._next_trial = now
        self._last_pass = now
        return self.n_threads

    def passed(self, now: float, seconds: float, expected: float) -> None:
        """Take in a pass that ended now, took `seconds`, and takes `expected` with all threads undisturbed."""
        if self._trial is not None:
            self._trial.passes.append((seconds, expected))
            self._judge(self._trial, now)
            return
        self._passes.append((seconds, expected))
        if self._rung or self._unproven or seconds > _COLLAPSED * expected:  # most passes end here
            self._consider(is_due=now >= self._next_trial)

    def _consider(self, *, is_due: bool) -> None:
        """Start a trial where one is due, or where it goes much worse than at the last one."""
        if len(self._ladder) == 1 or len(self._passes) == 1:
            return
        fair = self.n_all / self.n_threads
        slowness = _slowness_without_worst(self._passes)
        collapsed = slowness > _COLLAPSED * fair and (is_due or slowness > _WORSE * self._borne)
        if self._rung + 1 < len(self._ladder) and (collapsed or self._has_to_look()):
            latest = list(self._passes)[-_TRIAL:]  # those before may be from a better time
            self._try(_Trial(self._rung + 1, _slowness_without_worst(latest)))
        elif self._rung and is_due and len(self._passes) >= _TRIAL:
            self._try(_Trial(self._rung - 1, _slowness(self._passes)))

    def _try(self, trial: _Trial | None) -> None:
        """Use the threads of the trial from the next pass on; without one, those that were settled on."""
        self._trial = trial
        self.n_threads = self._ladder[self._rung if trial is None else trial.rung]

    def _has_to_look(self) -> bool:
        """Once, where other programs may have been busy from the start: then nothing looks slow."""
        due = self._unproven and len(self._passes) == _WINDOW
        self._unproven = self._unproven and not due
        return due

    def _judge(self, trial: _Trial, now: float) -> None:
        """End the trial where it has shown enough, go on to fewer threads still, or stay as it was."""
        slowness = _slowness(trial.passes)
        if slowness < _HOPELESS * trial.before and not self._has_shown_enough(trial):
            return
        if slowness < _BETTER * trial.before:
            self._adopt(trial, slowness, now)
            return
        trial.lost += sum(seconds - trial.before * expected for seconds, expected in trial.passes)
        if trial.rung > self._rung and trial.rung + 1 < len(self._ladder):
            trial.rung += 1
            trial.passes.clear()
            self._try(trial)
            return
        self._try(None)
        wait = max(trial.lost / _TRIAL_SHARE, _SHORTEST_WAIT * 2 ** min(self._in_vain, _DOUBLINGS))
        self._next_trial = now + min(wait, _LONGEST_WAIT)
        self._in_vain += 1
        if trial.rung > self._rung:
            self._borne = trial.before

    def _has_shown_enough(self, trial: _Trial) -> bool:
        """Say whether a trial has enough passes, two of them dear: the draft model's say little of the target's."""
        dear = max((expected for _, expected in self._passes), default=0.0) / 2
        n_dear = sum(expected >= dear for _, expected in trial.passes)
        return len(trial.passes) >= _TRIAL and (n_dear > 1 or len(trial.passes) >= _LONGEST_TRIAL)

    def _adopt(self, trial: _Trial, slowness: float, now: float) -> None:
        """Stay with the threads of a trial that went well."""
        reason = ""
        if trial.rung:
            times, n_threads = trial.before / slowness, self._ladder[trial.rung]
            reason = f"Other programs keep the processor busy: {n_threads} of {self.n_all} threads are used"
            reason += f", which is {times:.1f} times as fast." if trial.rung > self._rung else "."
        self._settle(trial.rung, reason)
        self._passes.extend(trial.passes)
        self._next_trial = now + (_SHORTEST_WAIT if trial.rung else 0.0)

    def _settle(self, rung: int, reason: str) -> None:
        self._rung, self._in_vain, self._borne = rung, 0, 0.0
        self._try(None)
        self._passes.clear()
        self.state = ThreadState(self.n_threads, self.n_all, reason)
        _log.info("%s", reason or f"All {self.n_all} threads are used again.")


class ThreadWatch:
    """One model's side of a policy: knows what its passes cost undisturbed, or learns it."""

    def __init__(self, policy: ThreadPolicy, costs: StepCosts | None) -> None:
        """See ThreadPolicy.watch."""
        self.policy = policy
        self._costs = costs
        self._known: dict[tuple[int, int], float] = {}
        self._shortest: dict[int, _Shortest] = {}

    def passed(self, now: float, width: int, n_past: int, seconds: float) -> None:
        """Take in a pass over `width` tokens after `n_past` others that ended now and took `seconds`."""
        if width > _WIDEST:
            return
        key = (width, n_past >> 6)
        undisturbed = self._known.get(key) or self._cost(key)
        by_width = 0 if self._costs else width  # one factor for all widths, where costs say how they compare
        shortest = self._shortest.get(by_width)
        uses_all = self.policy.n_threads == self.policy.n_all
        if shortest is None:
            if self._costs is None and not uses_all:
                return
            shortest = self._shortest[by_width] = _Shortest(1.0 if self._costs else seconds)
        if uses_all:
            shortest.see(seconds / undisturbed)
        self.policy.passed(now, seconds, undisturbed * shortest.known)

    def _cost(self, key: tuple[int, int]) -> float:
        """Look up what the passes of a width take over one stretch of contexts."""
        width, stretch = key
        self._known[key] = 1.0 if self._costs is None else self._costs.at(width, stretch << 6)
        return self._known[key]


class _Shortest:
    """The shortest of the last few hundred passes, and of what was known before them."""

    __slots__ = ("_count", "_latest", "known")

    def __init__(self, first: float) -> None:
        self.known = first
        self._latest = math.inf
        self._count = 0

    def see(self, value: float) -> None:
        self._count += 1
        if self._count % _EPOCH == 0:
            self.known, self._latest = min(self._latest, value), math.inf
        if value < self._latest:
            self._latest = value
            self.known = min(self.known, value)


def _ladder(n_threads: int) -> tuple[int, ...]:
    """Return the thread counts to choose from: all, all but one (for one busy program), and halves down to one."""
    halves = [n_threads >> shift for shift in range(n_threads.bit_length())]
    return tuple(sorted({n_threads, max(1, n_threads - 1), *halves}, reverse=True))


def _slowness(passes: Iterable[tuple[float, float]]) -> float:
    """Return how many times as long as expected the passes took."""
    taken = expected = 0.0
    for each_taken, each_expected in passes:
        taken += each_taken
        expected += each_expected
    return taken / expected


def _slowness_without_worst(passes: Iterable[tuple[float, float]]) -> float:
    """Return the same with the worst pass left out: one that was interrupted says nothing."""
    given = list(passes)
    given.remove(max(given, key=lambda each: each[0] / each[1]))
    return _slowness(given)
