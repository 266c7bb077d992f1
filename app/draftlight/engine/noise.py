"""The counter-based noise that draft and target share: g(seed, position, token). Knows no law and no model.

The Gumbel-max trick draws x = argmax(log p + g). Because g depends on the seed, the position and the token alone,
what the target draws at a position is the same whatever was drafted (Daliri, Musco, Suresh 2024, arXiv:2408.07978).
"""

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15  # 2**64 / golden ratio: the increment of SplitMix64
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB

TAIL = 1 << 32  # stands for every token outside the head; no token has this id
INSIDE_TAIL = TAIL + 1


def uniform(seed: int, position: int, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
    """Uniform numbers strictly between 0 and 1, one for each token id, from 53 bits of a 64-bit hash."""
    key = _scrambled(_scrambled(seed & _MASK) + position * _GOLDEN)
    x = tokens.astype(np.uint64)
    x *= np.uint64(_GOLDEN)
    x += np.uint64(key)
    x ^= x >> np.uint64(30)
    x *= np.uint64(_MIX_1)
    x ^= x >> np.uint64(27)
    x *= np.uint64(_MIX_2)
    x ^= x >> np.uint64(31)
    return ((x >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def gumbel(seed: int, position: int, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
    """Standard Gumbel noise for each token id: -log(-log u)."""
    noise: NDArray[np.float64] = -np.log(-np.log(uniform(seed, position, tokens)))
    return noise


def _scrambled(x: int) -> int:
    """SplitMix64's finaliser (Steele, Lea, Flood 2014): every input bit reaches every output bit."""
    x = (x + _GOLDEN) & _MASK
    x = ((x ^ (x >> 30)) * _MIX_1) & _MASK
    x = ((x ^ (x >> 27)) * _MIX_2) & _MASK
    return x ^ (x >> 31)
