"""Each arm's figures from measured answers, and what is said where they cannot be believed."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from draftlight.bench.doubts import Circumstances, doubts
from draftlight.bench.figures import ArmFigures, Figures, figures
from draftlight.bench.measurement import Answer, Tally
from draftlight.bench.runner import Fork, Measurement, Memory, Results
from draftlight.engine.events import DraftSource
from draftlight.engine.metrics import SpeculationStats

FORK = Fork("a", "k3", 4, 1, 2, 0.01)
STATS = SpeculationStats(
    n_rounds=6,
    n_drafted=15,
    n_accepted=5,
    n_rejected=4,
    n_not_reached=6,
    n_committed=11,
    accepted_at=(4, 1),
    reached_at=(5, 2, 2),
    draft_ms=200.0,
    verify_ms=700.0,
    host_ms=100.0,
)
NOTHING_SPECIAL = Circumstances()
TALLY = Tally(n_rounds=5, drafted_by={DraftSource.MODEL: 15}, accepted_by={DraftSource.MODEL: 5}, lengths={3: 5})


def measured(arm: str, prompt: str, per_token: float, kind: str = "prose", *, fork: Fork | None = None) -> Measurement:
    """An answer of eleven tokens: ten decode steps' worth of `per_token` seconds."""
    answer = Answer((), 10 * per_token, 0.5, 0.5 + 10 * per_token, n_drafted=15, n_accepted=5)
    return Measurement(arm, prompt, kind, answer, n_tokens=11, seconds_per_token=per_token, fork=fork)


def results(*measurements: Measurement, interrupted: bool = False) -> Results:
    return Results(measurements, Memory(1, 2, 3), interrupted=interrupted)


def arm_of(measurements: Sequence[Measurement], name: str = "k3", *, greedy: bool = True) -> ArmFigures:
    found = figures(results(*measurements), ["plain", "k3", "peer"], frozenset({"peer"}), greedy=greedy)
    return next(arm for arm in found.arms if arm.name == name)


def ten_prompts(plain: float = 1.0, k3: float = 0.5) -> list[Measurement]:
    made = []
    for n in range(10):
        kind = "prose" if n < 6 else "code"
        made += [measured("plain", str(n), plain + n, kind), measured("k3", str(n), (plain + n) * k3, kind)]
    return made


def test_a_ratio_is_the_median_over_prompts_of_plain_s_time_over_the_arm_s() -> None:
    made = [measured("plain", p, 1.0) for p in "abc"]
    made += [measured("k3", "a", 1.0), measured("k3", "b", 0.5), measured("k3", "c", 0.1)]
    arm = arm_of(made)
    assert arm.ratio is not None
    assert arm.workload_ratio is not None
    assert (arm.ratio.value, arm.tok_s) == (2.0, 2.0)
    assert arm.workload_ratio.value == pytest.approx(3.0 / 1.6)


def test_of_repeats_the_median_counts() -> None:
    made = [measured("plain", "a", seconds) for seconds in (1.0, 9.0, 1.2)]
    made += [measured("k3", "a", seconds) for seconds in (0.6, 0.1, 0.7)]
    arm = arm_of(made)
    assert arm.ratio is not None
    assert arm.ratio.value == 2.0
    assert (arm.n_prompts, arm.n_answers) == (1, 3)


def test_each_kind_has_its_own_figures() -> None:
    arm = arm_of(ten_prompts())
    assert {kind: each.n_prompts for kind, each in arm.by_kind.items()} == {"prose": 6, "code": 4}
    assert all(each.ratio is not None and each.ratio.value == 2.0 for each in arm.by_kind.values())
    assert arm.by_kind["prose"].acceptance_rate == pytest.approx(1 / 3)


def test_identical_is_the_share_of_answers_and_a_peer_with_noise_of_its_own_has_none() -> None:
    made = [measured(arm, prompt, 1.0) for arm in ("plain", "k3", "peer") for prompt in "abcd"]
    made += [measured("k3", "e", 1.0, fork=FORK), measured("peer", "e", 1.0, fork=replace(FORK, arm="peer"))]
    made.append(measured("plain", "e", 1.0))
    assert arm_of(made).identical == 0.8
    assert arm_of(made, "peer").identical == 0.8
    assert arm_of(made, "peer", greedy=False).identical is None
    found = figures(results(*made), ["plain", "k3", "peer"], frozenset({"peer"}), greedy=False)
    assert found.forks == (FORK,)


def test_our_arms_are_held_against_every_peer() -> None:
    made = [measured("plain", p, 1.0) for p in "abc"] + [measured("peer", p, 0.8) for p in "abc"]
    made += [measured("k3", p, 0.4) for p in "abc"]
    assert {name: ratio.value for name, ratio in arm_of(made).over.items()} == {"peer": 2.0}
    assert arm_of(made, "plain").over["peer"].value == 0.8
    assert arm_of(made, "peer").over == {}


def with_rounds(per_token: float, stats: SpeculationStats = STATS, tally: Tally = TALLY) -> Measurement:
    made = measured("k3", "a", per_token)
    return replace(made, answer=replace(made.answer, stats=stats, tally=tally))


def test_a_round_s_costs_are_told_apart() -> None:
    made = with_rounds(0.1)
    costs = arm_of([measured("plain", "a", 0.2), made]).costs
    assert costs is not None
    assert (costs.draft_ms, costs.verify_ms, costs.host_ms, costs.host_share) == (40.0, 140.0, 20.0, 0.1)
    assert costs.outside_share == pytest.approx(0.0)


def test_the_bound_is_tokens_of_a_round_over_its_cost_in_plain_steps() -> None:
    tally = replace(TALLY, predicted_cost=6.0)
    bound = arm_of([measured("plain", "a", 0.2), with_rounds(0.1, tally=tally)]).bound
    assert bound is not None
    assert bound.efficiency == 2.0  # ten tokens after the first, in five rounds
    assert bound.by_this_run == pytest.approx(2.0 / (0.9 / 5 / 0.2))
    assert bound.by_preflight == pytest.approx(2.0 / (6.0 / 5))


def test_places_in_the_draft_are_added_up_over_answers_of_different_lengths() -> None:
    longer = replace(STATS, accepted_at=(1, 1, 1), reached_at=(1, 1, 1, 1))
    drafting = arm_of([measured("plain", "a", 0.2), with_rounds(0.1), with_rounds(0.1, longer)]).drafting
    assert drafting is not None
    assert (drafting.accepted_at, drafting.reached_at) == ((5, 2, 1), (6, 3, 3, 1))
    assert drafting.tally.drafted_by == {DraftSource.MODEL: 30}
    assert drafting.alpha == pytest.approx(5 / 9)


def said(*measurements: Measurement, how: Circumstances = NOTHING_SPECIAL) -> list[str]:
    found: Figures = figures(results(*measurements), ["plain", "k3", "peer"], frozenset({"peer"}), greedy=True)
    return list(doubts(found, how))


def test_a_clean_run_of_enough_prompts_leaves_no_doubt() -> None:
    assert said(*ten_prompts()) == []


def test_a_ratio_above_its_bound_is_told() -> None:
    lying = with_rounds(0.02)  # the answer's time says ten times plain's rate; its rounds took 0.1 a token
    assert any(
        "above the bound" in doubt and "own times" in doubt for doubt in said(measured("plain", "a", 0.2), lying)
    )
    dear = with_rounds(0.1, tally=replace(TALLY, predicted_cost=15.0))
    assert any("costs measured before" in doubt for doubt in said(measured("plain", "a", 0.2), dear))
    fair = with_rounds(0.1, tally=replace(TALLY, predicted_cost=5.0))
    assert not any("bound" in doubt for doubt in said(measured("plain", "a", 0.2), fair))


def test_an_arm_that_never_drafted_is_told_with_its_reason() -> None:
    silent = with_rounds(0.2, tally=Tally(n_rounds=5, lengths={0: 5}, reasons={"drafting does not pay": 5}))
    (doubt,) = [each for each in said(measured("plain", "a", 0.2), silent) if "never drafted" in each]
    assert "drafting does not pay" in doubt


def test_time_that_the_engine_does_not_tell_of_is_told() -> None:
    made = with_rounds(0.1)
    slow = replace(made, answer=replace(made.answer, wall_seconds=9.0))
    assert any("seen from outside" in doubt for doubt in said(measured("plain", "a", 0.2), slow))


def test_forks_in_exact_mode_failed_audits_and_an_unsteady_plain_are_told() -> None:
    forked = measured("k3", "a", 0.1, fork=FORK)
    assert any(
        "exact mode" in doubt for doubt in said(measured("plain", "a", 0.2), forked, how=Circumstances(exact=True))
    )
    assert not any("exact mode" in doubt for doubt in said(measured("plain", "a", 0.2), forked))
    audited = with_rounds(0.1, replace(STATS, n_audits=4, n_audit_failures=1))
    assert any("1 of 4 audits" in doubt for doubt in said(measured("plain", "a", 0.2), audited))
    unsteady = measured("plain", "a", 0.2, fork=replace(FORK, arm="plain"))
    assert any("not reproducible" in doubt for doubt in said(unsteady))


def test_few_prompts_an_early_end_and_answers_of_one_token_are_told() -> None:
    short = replace(measured("plain", "a", 0.2), seconds_per_token=None, n_tokens=1)
    told = said(short, how=Circumstances(interrupted=True, out_of_time=True))
    for words in ("stopped", "time was over", "only 1 prompts", "single token"):
        assert any(words in doubt for doubt in told)


def test_a_peer_that_should_draft_and_does_not_and_one_beside_warm_caches_are_told() -> None:
    silent = measured("peer", "a", 0.2)
    silent = replace(silent, answer=replace(silent.answer, n_drafted=0, n_accepted=0))
    how = Circumstances(warm=True, drafting_peers=frozenset({"peer"}))
    told = said(measured("plain", "a", 0.2), silent, how=how)
    assert any("peer is set up to draft" in doubt for doubt in told)
    assert any("caches held the prompts" in doubt for doubt in told)
    assert not any("peer is set up" in doubt for doubt in said(measured("plain", "a", 0.2), silent))


def test_nothing_measured_gives_empty_figures() -> None:
    found = figures(results(), ["plain", "k3"], frozenset(), greedy=True)
    assert [(arm.tok_s, arm.ratio, arm.identical, arm.costs, arm.bound) for arm in found.arms] == [(None,) * 5] * 2
