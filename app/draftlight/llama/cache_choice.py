"""Which type of cache serves a model best, from what was tried: exact before fast, but not at any price. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from draftlight.llama.report import CacheTrial
from draftlight.settings import KvType

BYTES_PER_VALUE = {KvType.Q8_0: 34 / 32, KvType.F16: 2.0, KvType.F32: 4.0}  # Q8_0: a scale for each 32 values
MEMORY_SHARE = 0.25  # of the free memory, for one model's cache
ENOUGH_EXACT_WIDTHS = 3  # of 1 to 8: with fewer, EXACT could hardly draft
_WIDEST = 8
_WORTH_MEMORY = 1.05  # times faster that a larger cache must be
EXACT_PRICE = 1.10  # what exactness may cost, in times of the fastest, where nobody insists on it


class CacheChoice(NamedTuple):
    """The type, and the reason in a sentence."""

    kv_type: KvType
    reason: str


def types_to_try(asked: KvType) -> tuple[KvType, ...]:
    """Return the types worth trying, the smallest first: what was asked for, or those that can be the best.

    An F32 cache takes twice the memory of an F16 one and was nowhere faster.
    """
    return (KvType.Q8_0, KvType.F16) if asked is KvType.AUTO else (asked,)


def bytes_per_token(known: KvType, known_bytes: int, wanted: KvType) -> int:
    """Return what a token takes in a cache of the `wanted` type, from what it takes in one of the `known` type."""
    return round(known_bytes / BYTES_PER_VALUE[known] * BYTES_PER_VALUE[wanted])


def next_to_examine(trials: Sequence[CacheTrial], price: float = EXACT_PRICE) -> KvType | None:
    """Return the type whose exactness would decide the choice: the fastest that nobody looked at and that may win."""
    tried = [(trial, trial.step_seconds) for trial in trials if trial.step_seconds is not None]
    limit = min((seconds for _, seconds in tried), default=0.0) * price
    limit = min([limit, *(seconds for trial, seconds in tried if is_exact_enough(trial.exact_widths))])
    open_ones = [(trial, seconds) for trial, seconds in tried if trial.exact_widths is None and seconds <= limit]
    return min(open_ones, key=lambda each: each[1])[0].kv_type if open_ones else None


def choose_exact(trials: Sequence[CacheTrial], price: float = EXACT_PRICE) -> CacheChoice:
    """Choose for a target: the fastest type with enough exact widths, unless the fastest of all beats it by that price.

    Types without a time were not tried; with none tried at all the first stands.
    """
    tried = [(trial, trial.step_seconds) for trial in trials if trial.step_seconds is not None]
    if not tried:
        return CacheChoice(trials[0].kv_type, "nothing else could be tried")
    fastest, best = min(tried, key=lambda each: each[1])
    exact = [(trial, seconds) for trial, seconds in tried if is_exact_enough(trial.exact_widths)]
    if not exact:
        return CacheChoice(fastest.kv_type, "the fastest; none that is about as fast is exact, so it runs in FAST mode")
    chosen, seconds = min(exact, key=lambda each: each[1])
    if chosen is fastest:
        return CacheChoice(chosen.kv_type, "exact, and the fastest")
    if seconds <= best * price:
        return CacheChoice(chosen.kv_type, f"exact, for {seconds / best - 1:.0%} more time than {fastest.kv_type}")
    return CacheChoice(
        fastest.kv_type,
        f"the fastest; {chosen.kv_type} is exact but takes {seconds / best - 1:.0%} more time, so it runs in FAST mode",
    )


def choose_fast(trials: Sequence[CacheTrial]) -> CacheChoice:
    """Choose for a draft model, whose exactness does not matter: the smallest of the types about as fast as any."""
    tried = [(trial, trial.step_seconds) for trial in trials if trial.step_seconds is not None]
    if not tried:
        return CacheChoice(trials[0].kv_type, "nothing else could be tried")
    best = min(seconds for _, seconds in tried)
    fast = [trial for trial, seconds in tried if seconds <= best * _WORTH_MEMORY]
    return CacheChoice(min(fast, key=lambda each: each.bytes_per_token).kv_type, "the smallest of the fastest")


def is_exact_enough(exact_widths: Sequence[int] | None) -> bool:
    """Whether EXACT mode has enough widths to draft with."""
    return exact_widths is not None and sum(width <= _WIDEST for width in exact_widths) >= ENOUGH_EXACT_WIDTHS
