"""The bootstrap: against what is known of it, and what it is used for."""

import numpy as np
import pytest
from scipy.stats import bootstrap

from draftlight.bench.intervals import median_ratio, total_ratio


def test_the_interval_of_the_median_is_the_percentile_bootstrap_s() -> None:
    rng = np.random.default_rng(5)
    plain = rng.uniform(1.0, 3.0, 24)
    ours = plain / rng.normal(2.0, 0.3, 24)
    found = median_ratio(ours.tolist(), plain.tolist())
    expected = bootstrap((plain / ours,), np.median, method="percentile", n_resamples=20_000, rng=rng)
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert found.value == pytest.approx(np.median(plain / ours))
    assert found.low == pytest.approx(expected.confidence_interval.low, abs=0.02)
    assert found.high == pytest.approx(expected.confidence_interval.high, abs=0.02)


def test_prompts_are_drawn_in_pairs_so_that_their_own_differences_do_not_widen_the_interval() -> None:
    plain = [1.0, 10.0, 100.0, 1000.0, 5.0]
    ours = [seconds / 2 for seconds in plain]
    for ratio in (median_ratio(ours, plain), total_ratio(ours, plain)):
        assert ratio is not None
        assert (ratio.value, ratio.low, ratio.high) == pytest.approx((2.0, 2.0, 2.0))


def test_the_total_weighs_prompts_by_their_time_and_the_median_does_not() -> None:
    ours, plain = [1.0, 1.0, 1.0], [1.0, 2.0, 9.0]
    median, total = median_ratio(ours, plain), total_ratio(ours, plain)
    assert median is not None
    assert total is not None
    assert (median.value, total.value) == (2.0, 4.0)


def test_two_prompts_have_a_ratio_but_no_interval_and_none_have_neither() -> None:
    for ratio in (median_ratio([1.0, 1.0], [2.0, 2.0]), total_ratio([1.0, 1.0], [2.0, 2.0])):
        assert ratio is not None
        assert (ratio.value, ratio.low, ratio.high) == (2.0, None, None)
    assert median_ratio([], []) is None
    assert total_ratio([], []) is None


def test_the_same_measurements_give_the_same_interval() -> None:
    ours, plain = [1.0, 1.1, 0.9, 1.3], [2.0, 2.5, 1.5, 2.2]
    assert median_ratio(ours, plain) == median_ratio(ours, plain)
