"""Ratios paired by prompt, with 95 % intervals by the bootstrap (Efron 1979): prompts drawn anew, with repetition."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_RESAMPLES = 10_000
_SEED = 20_240_611  # any fixed number: the same measurements give the same interval
_BOUNDS = (2.5, 97.5)  # percentiles
_FEWEST = 3  # prompts from which an interval can be told


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure and where it would lie with other prompts of the same sort, in 95 of 100 cases.

    Both ends are None where there are too few prompts to tell.
    """

    value: float
    low: float | None = None
    high: float | None = None


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> Interval | None:
    """Return the median over prompts of theirs / ours: how many times faster ours is. None without prompts."""
    if not ours:
        return None
    ratios = np.array(theirs, np.float64) / np.array(ours, np.float64)
    if ratios.size < _FEWEST:
        return Interval(float(np.median(ratios)))
    return _interval(float(np.median(ratios)), np.median(ratios[_drawn(ratios.size)], axis=1))


def total_ratio(ours: Sequence[float], theirs: Sequence[float]) -> Interval | None:
    """Return the sum of theirs over the sum of ours: how many times sooner ours is through with all of it."""
    if not ours:
        return None
    mine, others = np.array(ours, np.float64), np.array(theirs, np.float64)
    if mine.size < _FEWEST:
        return Interval(float(others.sum() / mine.sum()))
    drawn = _drawn(mine.size)
    return _interval(float(others.sum() / mine.sum()), others[drawn].sum(axis=1) / mine[drawn].sum(axis=1))


def _drawn(n: int) -> NDArray[np.int64]:
    """Places of the prompts of each resample: (_RESAMPLES, n)."""
    return np.random.default_rng(_SEED).integers(0, n, (_RESAMPLES, n))


def _interval(value: float, resampled: NDArray[np.float64]) -> Interval:
    low, high = np.percentile(resampled, _BOUNDS)
    return Interval(value, float(low), float(high))
