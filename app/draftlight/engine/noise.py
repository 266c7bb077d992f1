"""The counter-based noise that draft and target share: g(seed, position, token). Knows no law and no model.

The Gumbel-max trick draws x = argmax(log p + g). Because g depends on the seed, the position and the token alone,
what the target draws at a position is the same whatever was drafted (Daliri, Musco, Suresh 2024, arXiv:2408.07978).
"""

import math
from collections.abc import Sequence

import numpy as np

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15  # 2**64 / golden ratio: the increment of SplitMix64
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB
_FEW = 64  # tokens hashed one by one

TAIL = 1 << 32  # stands for every token outside the head; no token has this id
INSIDE_TAIL = TAIL + 1


def uniform(seed: int, position: int, tokens: Sequence[int]) -> list[float]:
    """Uniform numbers strictly between 0 and 1, one for each token id, from 52 bits of a 64-bit hash.

    (With 53 bits the largest would round to 1.) Few tokens are hashed one by one, many at once: the same bits either
    way. After a forward pass the caches are cold, and a dozen numpy calls then cost more than a short loop.
    """
    key = _scrambled(_scrambled(seed & _MASK) + position * _GOLDEN)
    if len(tokens) <= _FEW:
        return [((_mixed(token * _GOLDEN + key & _MASK) >> 12) + 0.5) * 2.0**-52 for token in tokens]
    x = np.asarray(tokens, np.uint64) * np.uint64(_GOLDEN) + np.uint64(key)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(_MIX_1)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(_MIX_2)
    x ^= x >> np.uint64(31)
    numbers: list[float] = (((x >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52).tolist()
    return numbers


def gumbel(seed: int, position: int, tokens: Sequence[int]) -> list[float]:
    """Standard Gumbel noise for each token id: -log(-log u)."""
    return [-math.log(-math.log(u)) for u in uniform(seed, position, tokens)]


def _scrambled(x: int) -> int:
    """One step of SplitMix64 (Steele, Lea, Flood 2014)."""
    return _mixed((x + _GOLDEN) & _MASK)


def _mixed(x: int) -> int:
    """SplitMix64's finaliser: every input bit reaches every output bit."""
    x = ((x ^ (x >> 30)) * _MIX_1) & _MASK
    x = ((x ^ (x >> 27)) * _MIX_2) & _MASK
    return x ^ (x >> 31)
