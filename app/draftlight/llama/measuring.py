"""What a pass costs, and whether it computes the same bits as passes over one token. Needs a cache to be refilled.

A context is counted in tokens that the cache holds. Every measurement leaves the cache as refill() made it.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from draftlight.engine.costs import StepCosts
from draftlight.engine.model import FloatArray, LanguageModel
from draftlight.llama.report import Exactness

MAX_ROWS = 32
_READ_CHUNK = 64
_ROUNDS = 3


class MeasuredModel(LanguageModel, Protocol):
    """A model whose cache can be kept and put back at any size, without computing it again."""

    @property
    def n_past(self) -> int:
        """The position of the next token."""
        ...

    def keep(self) -> None:
        """Remember what the cache holds."""
        ...

    def refill(self, n_tokens: int) -> None:
        """Make the cache hold `n_tokens` of what was kept: cut short, or the same again and again."""
        ...

    def cache_bits(self) -> bytes:
        """Return all that the cache holds."""
        ...

    def use_threads(self, n_threads: int) -> None:
        """Compute with so many threads from now on."""
        ...


class TimeBox:
    """How much time there is for something."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.perf_counter) -> None:
        """Start now."""
        self._clock = clock
        self._end = clock() + seconds

    @property
    def left(self) -> float:
        """Seconds left, 0 at the least."""
        return max(0.0, self._end - self._clock())

    @property
    def spent(self) -> bool:
        """Whether nothing is left."""
        return self.left <= 0

    def part(self, share: float) -> "TimeBox":
        """Return a box with this share of what is left."""
        return TimeBox(self.left * share, self._clock)


@dataclass(slots=True)
class Times:
    """Seconds that passes took, by context and width."""

    of: dict[int, dict[int, list[float]]] = field(default_factory=dict)

    def add(self, context: int, width: int, seconds: float) -> None:
        """Note one pass."""
        self.of.setdefault(context, {}).setdefault(width, []).append(seconds)

    def median(self, context: int, width: int) -> float:
        """Return the middle one of these passes."""
        return statistics.median(self.of[context][width])

    def least(self, context: int, width: int) -> float:
        """Return the shortest of these passes: other programs only ever slow one down."""
        return min(self.of[context][width])

    def costs(self, contexts: Iterable[int]) -> StepCosts:
        """Return the medians of all widths that were timed at each of these contexts."""
        contexts = tuple(sorted(contexts))
        widths = tuple(sorted(set.intersection(*(set(self.of[context]) for context in contexts))))
        return StepCosts(
            contexts, widths, tuple(tuple(self.median(context, width) for width in widths) for context in contexts)
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """One width beside width 1 at one context: are the logits and the cache bit-equal, and the largest difference."""

    logits_equal: bool
    cache_equal: bool
    difference: float


def read(model: MeasuredModel, text: Sequence[int], n_tokens: int, box: TimeBox) -> None:
    """Read from the start of `text` until `n_tokens` are there or the time is spent; at least one chunk. Keep it."""
    model.rollback(0)
    while model.n_past < n_tokens and (model.n_past == 0 or not box.spent):
        model.forward(text[model.n_past : min(n_tokens, model.n_past + _READ_CHUNK)], 0)
    model.keep()


def timed(model: LanguageModel, tokens: Sequence[int], rows: int) -> tuple[float, FloatArray]:
    """Return the seconds of one pass, and its rows."""
    before = model.decode_seconds
    logits = model.forward(tokens, rows)
    return model.decode_seconds - before, logits


class SingleSteps:
    """What passes over one token make of `tokens` after a context: the standard that other passes are held to.

    Differences are rare: a model rounds its activations so coarsely that most of them vanish, and only now and then one
    survives. So some tens of tokens are looked at, not only a few.
    """

    def __init__(self, model: MeasuredModel, context: int, tokens: Sequence[int], times: Times) -> None:
        """Take the steps, and note their times."""
        model.refill(context)
        self._model, self._tokens, self._start = model, tokens, model.n_past
        self._context, self._times = context, times
        self._rows: list[FloatArray] = []
        for index in range(len(tokens)):
            seconds, logits = timed(model, tokens[index : index + 1], 1)
            times.add(context, 1, seconds)
            self._rows.append(logits[0].copy())
        self._bits = model.cache_bits()

    @property
    def n_tokens(self) -> int:
        """How many tokens were stepped over."""
        return len(self._tokens)

    def compare(self, width: int, n_tokens: int | None = None) -> Comparison:
        """Go over the tokens in passes of this width, until one leaves another cache than single steps do.

        With fewer tokens than all, the cache is compared after a pass whose logits differ and after the last one only.
        """
        model, tokens = self._model, self._tokens[:n_tokens]
        model.rollback(self._start)
        difference, first = 0.0, 0
        for first in range(0, len(tokens) - width + 1, width):
            seconds, logits = timed(model, tokens[first : first + width], width)
            self._times.add(self._context, width, seconds)
            apart = max(_distance(row, self._rows[first + index]) for index, row in enumerate(logits))
            if apart and not difference and not self._leaves_equal_cache(first, width):
                return Comparison(logits_equal=False, cache_equal=False, difference=apart)
            difference = max(difference, apart)
        if len(tokens) < len(self._tokens):
            return Comparison(difference == 0.0, self._leaves_equal_cache(first, width), difference)
        for token in self._tokens[model.n_past - self._start :]:
            model.forward([token], 0)
        return Comparison(difference == 0.0, model.cache_bits() == self._bits, difference)

    def chunk_is_exact(self, chunk: int) -> bool:
        """Whether a prompt's chunk of this size leaves the cache of single steps, as far as their tokens reach."""
        model = self._model
        model.rollback(self._start)
        while (n_done := model.n_past - self._start) < len(self._tokens):
            model.forward(self._following(n_done, chunk), 0)
        model.rollback(self._start + len(self._tokens))
        return model.cache_bits() == self._bits

    def survives_rollback(self, width: int) -> bool:
        """Whether a pass whose second half is wrong and taken back leaves no trace in the step after it."""
        kept = width // 2
        self._model.rollback(self._start)
        self._model.forward([*self._tokens[:kept], *reversed(self._tokens[kept:width])], 0)
        self._model.rollback(self._start + kept)
        return np.array_equal(self._model.forward(self._tokens[kept : kept + 1], 1)[0], self._rows[kept])

    def repeat_equally(self, widths: Sequence[int]) -> bool:
        """Whether a step, and passes of these widths, compute the same again: after a change that should not matter."""
        for width in (1, *widths):
            self._model.rollback(self._start)
            logits = self._model.forward(self._tokens[:width], width)
            if any(_distance(row, single) for row, single in zip(logits, self._rows, strict=False)):
                return False
        return True

    def _leaves_equal_cache(self, first: int, width: int) -> bool:
        """Compare the cache as the last pass left it with single steps' over the same tokens, which stay instead."""
        model = self._model
        bits = model.cache_bits()
        model.rollback(self._start + first)
        for token in self._tokens[first : first + width]:
            model.forward([token], 0)
        return bits == model.cache_bits()

    def _following(self, first: int, count: int) -> Sequence[int]:
        """Return `count` tokens from the first on; beyond the end, where nobody compares, the same again."""
        whole = [*self._tokens] * ((first + count) // len(self._tokens) + 1)
        return whole[first : first + count]


def time_widths(
    model: MeasuredModel,
    text: Sequence[int],
    context: int,
    widths: Sequence[int],
    times: Times,
    box: TimeBox,
    *,
    least: int = 1,
) -> None:
    """Time passes of these widths in turn, thrice or until the time is spent; the `least` first ones in any case."""
    model.refill(context)
    start = model.n_past
    for number in range(_ROUNDS):
        for index, width in enumerate(widths):
            if box.spent and (number or index >= least):
                return
            model.rollback(start)
            seconds, _ = timed(model, text[:width], width if width <= MAX_ROWS else 1)
            times.add(context, width, seconds)


def exactness_of(comparisons: Mapping[int, Mapping[int, Comparison]]) -> Exactness:
    """Sum up what was found by context and width, widths rising.

    A width counts where it was looked at in every context, and where no narrower one left another cache: what makes one
    of them differ makes wider ones differ too, perhaps on other tokens.
    """
    tried = sorted(set.intersection(*(set(found) for found in comparisons.values()))) if comparisons else []
    exact, near = [1], []
    difference = 0.0
    for width in tried:
        each = [found[width] for found in comparisons.values()]
        if not all(one.cache_equal for one in each):
            break
        if all(one.logits_equal for one in each):
            exact.append(width)
        else:
            near.append(width)
            difference = max(difference, *(one.difference for one in each))
    return Exactness(
        tuple(exact), tuple(near), difference, contexts=tuple(sorted(comparisons)), tried_widths=(1, *tried)
    )


def _distance(row: FloatArray, other: FloatArray) -> float:
    """Return the largest difference: 0 for equal bits, infinite where one of them is no number."""
    if np.array_equal(row, other):
        return 0.0
    distance = float(np.max(np.abs(row - other)))
    return distance if math.isfinite(distance) else math.inf
