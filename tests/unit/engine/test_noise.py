"""The shared noise: a function of seed, position and token alone, and distributed as Gumbel-max needs it."""

import numpy as np
import pytest
from scipy import stats

from draftlight.engine import noise

IDS = range(20_000)


def test_the_noise_of_a_token_does_not_depend_on_which_others_are_asked_about() -> None:
    """Also when many tokens are hashed at once and few one by one: the bits must be the same."""
    whole = noise.gumbel(7, 3, IDS)
    assert [whole[5], whole[19_999], whole[0]] == noise.gumbel(7, 3, [5, 19_999, 0])


def test_seed_position_and_token_each_change_the_noise() -> None:
    base = noise.uniform(7, 3, IDS)
    for other in (noise.uniform(8, 3, IDS), noise.uniform(7, 4, IDS), noise.uniform(7, 3, range(1, 20_001))):
        assert not set(base) & set(other) or other[:-1] == base[1:]
        assert abs(np.corrcoef(base, other)[0, 1]) < 0.03


def test_noise_is_gumbel_and_strictly_finite() -> None:
    for seed, position in ((0, 0), (1, 1), (2**63, 100_000), (-5, 12)):
        sample = noise.gumbel(seed, position, IDS)
        assert np.isfinite(sample).all()
        assert stats.kstest(sample, stats.gumbel_r.cdf).pvalue > 1e-4


def test_no_hash_makes_noise_that_is_not_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    for extreme in (0, 2**64 - 1):
        monkeypatch.setattr(noise, "_mixed", lambda _, extreme=extreme: extreme)
        assert 0.0 < noise.uniform(1, 1, [1])[0] < 1.0
        assert np.isfinite(noise.gumbel(1, 1, [1])).all()


def test_neighbouring_positions_are_independent_for_a_fixed_token() -> None:
    series = np.array([noise.uniform(3, position, [42])[0] for position in range(5_000)])
    assert stats.kstest(series, "uniform").pvalue > 1e-4
    assert abs(np.corrcoef(series[:-1], series[1:])[0, 1]) < 0.05
