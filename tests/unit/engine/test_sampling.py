"""Logits to laws: against a slow, plain re-telling of llama.cpp's order of transforms."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from draftlight.engine.sampling import SamplingParams, law

N = 400


def row(seed: int, n: int = N) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(n) * 3).astype(np.float32)


def reference(logits: np.ndarray, params: SamplingParams, recent: list[int]) -> np.ndarray:
    """The law by the book: p over the whole vocabulary, float64, no tricks."""
    x = logits.astype(np.float64).copy()
    for token, bias in params.logit_bias.items():
        x[token] += bias
    window = recent[-params.penalty_last_n :] if params.penalty_last_n else []
    for token in sorted(set(window)):
        x[token] = x[token] / params.repeat_penalty if x[token] > 0 else x[token] * params.repeat_penalty
        x[token] -= window.count(token) * params.frequency_penalty + params.presence_penalty
    order = sorted(range(x.size), key=lambda i: (-x[i], i))
    if params.top_k:
        order = order[: params.top_k]
    share = np.exp(x[order] - max(x))
    share /= share.sum()
    if params.top_p < 1:
        reached = np.flatnonzero(share.cumsum() >= params.top_p)
        keep = reached[0] + 1 if reached.size else len(order)
        order, share = order[:keep], share[:keep]
    if params.min_p > 0:
        order = [token for token, part in zip(order, share, strict=True) if part >= params.min_p * share[0]]
    p = np.zeros(x.size)
    p[order] = np.exp((x[order] - max(x)) / params.temperature)
    law_by_the_book: np.ndarray = p / p.sum()
    return law_by_the_book


PARAMS = st.builds(
    SamplingParams,
    temperature=st.floats(0.2, 2.0),
    top_k=st.sampled_from([0, 1, 5, 40, 1000]),
    top_p=st.sampled_from([1.0, 0.95, 0.5]),
    min_p=st.sampled_from([0.0, 0.05, 0.3]),
    repeat_penalty=st.sampled_from([1.0, 1.3]),
    frequency_penalty=st.sampled_from([0.0, 0.4]),
    presence_penalty=st.sampled_from([0.0, 0.7]),
    penalty_last_n=st.sampled_from([0, 3, 64]),
    logit_bias=st.dictionaries(st.integers(0, N - 1), st.floats(-4, 4), max_size=3),
)


@given(seed=st.integers(0, 1000), params=PARAMS, recent=st.lists(st.integers(0, N - 1), max_size=20))
@settings(max_examples=150, deadline=None)
def test_the_law_equals_the_book(seed: int, params: SamplingParams, recent: list[int]) -> None:
    expected = reference(row(seed), params, recent)
    made = law(row(seed), params, recent)
    actual = np.array([made.probability(token) for token in range(N)])
    np.testing.assert_allclose(actual, expected, atol=2e-6)


def test_temperature_0_chooses_the_largest_logit_and_the_lowest_id_among_equals() -> None:
    logits = row(1)
    logits[[30, 7, 200]] = 99.0
    choice = law(logits, SamplingParams(temperature=0), ()).choose(seed=1, position=1)
    assert (choice.token, choice.margin) == (7, 0.0)


def test_temperature_0_still_obeys_bias_and_penalties() -> None:
    logits = row(2)
    favourite = int(logits.argmax())
    params = SamplingParams(temperature=0, logit_bias={favourite: -50.0})
    assert law(logits, params, ()).choose(1, 1).token != favourite
    assert logits[favourite] == row(2)[favourite], "the caller's logits must not change"


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0),
        SamplingParams(temperature=0.7, top_k=0, top_p=1.0, min_p=0.0),
        SamplingParams(temperature=0.8),
    ],
    ids=["untruncated", "cool", "default"],
)
def test_choices_follow_the_law_also_in_the_tail(params: SamplingParams) -> None:
    """The untruncated law has a head of 256 and a tail; 20,000 draws must fill both as the law says."""
    logits = (row(3) / 6).astype(np.float32)  # flat, so that the tail matters
    expected = reference(logits, params, [])
    made = law(logits, params, ())
    counts = np.bincount([made.choose(11, position).token for position in range(20_000)], minlength=N)
    assert counts[expected == 0].sum() == 0
    likely = expected > 3e-4
    observed = [*counts[likely], counts[~likely].sum()]
    law_counts = [*(expected[likely] * 20_000), expected[~likely].sum() * 20_000]
    if law_counts[-1] < 1:
        observed, law_counts = observed[:-1], law_counts[:-1]
    scale = sum(observed) / sum(law_counts)
    assert stats.chisquare(observed, np.array(law_counts) * scale).pvalue > 1e-4


def test_the_score_of_the_chosen_token_is_the_winning_score() -> None:
    for params in (SamplingParams(), SamplingParams(temperature=0)):
        made = law(row(4), params, ())
        choice = made.choose(5, 9)
        assert made.score(choice.token, 5, 9) == pytest.approx(choice.score)
        others = [made.score(token, 5, 9) for token, _ in made.top(8) if token != choice.token]
        assert max(score for score in others if score is not None) <= choice.score


def test_ranks_count_larger_logits() -> None:
    logits = row(6)
    made = law(logits, SamplingParams(), ())
    assert [made.rank(token) for token, _ in made.top(5)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("shift", [-300.0, 0.0, 300.0])
def test_a_law_does_not_depend_on_where_its_logits_lie(shift: float) -> None:
    logits = row(8)
    for params in (SamplingParams(temperature=0), SamplingParams(top_k=0, top_p=1.0, min_p=0.0), SamplingParams()):
        home, away = law(logits, params, ()), law(logits + np.float32(shift), params, ())
        assert home.ids == away.ids
        assert [p for _, p in home.top(5)] == pytest.approx([p for _, p in away.top(5)], rel=1e-4)
