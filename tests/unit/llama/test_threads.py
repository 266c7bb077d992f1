"""ThreadPolicy on a simulated machine: no clock but the simulation's, no llama.cpp."""

import logging
import random
from collections.abc import Callable

import pytest

from draftlight.engine.costs import StepCosts
from draftlight.llama.threads import ThreadPolicy, ThreadWatch

COSTS = StepCosts((100, 1000), (1, 4), ((0.08, 0.10), (0.10, 0.14)))
DRAFT_COSTS = StepCosts((100, 1000), (1,), ((0.004,), (0.005,)))
# How many times as long as with all threads undisturbed a pass takes, as measured on two cores.
ALONE = {2: 1.0, 1: 1.8}
BESIDE_ONE = {2: 3.5, 1: 1.9}
BESIDE_ONE_SPINNING = {2: 40.0, 1: 1.9}  # a llama.cpp that was built elsewhere

Slowdown = Callable[[int], float]


class Machine:
    """Runs passes: their times follow from the slowdown at this thread count, a little noise added."""

    def __init__(self, policy: ThreadPolicy, seed: int = 0) -> None:
        self.policy = policy
        self.now = 0.0
        self.noise = random.Random(seed)  # noqa: S311 - no secret

    def run(self, watch: ThreadWatch, costs: StepCosts, slowdown: Slowdown, passes: int, width: int = 1) -> float:
        """Return the seconds these passes took."""
        started = self.now
        for n_past in range(100, 100 + passes):
            n_threads = self.policy.begin(self.now)
            seconds = costs.at(width, n_past) * slowdown(n_threads) * self.noise.uniform(1.0, 1.2)
            self.now += seconds
            watch.passed(self.now, width, n_past, seconds)
        return self.now - started


def started(n_threads: int = 2, *, may_change: bool = True) -> tuple[ThreadPolicy, ThreadWatch, Machine]:
    policy = ThreadPolicy(n_threads, may_change=may_change)
    return policy, policy.watch(COSTS), Machine(policy)


@pytest.mark.parametrize("busy", [BESIDE_ONE, BESIDE_ONE_SPINNING], ids=["sleeping", "spinning"])
def test_a_collapse_is_answered_within_ten_passes(busy: dict[int, float]) -> None:
    policy, watch, machine = started()
    machine.run(watch, COSTS, ALONE.__getitem__, 100)
    machine.run(watch, COSTS, busy.__getitem__, 10)
    assert policy.n_threads == 1


@pytest.mark.parametrize("busy", [BESIDE_ONE, BESIDE_ONE_SPINNING], ids=["sleeping", "spinning"])
def test_a_long_disturbance_costs_little_more_than_one_thread_throughout(busy: dict[int, float]) -> None:
    _, watch, machine = started()
    machine.run(watch, COSTS, busy.__getitem__, 20)
    taken = machine.run(watch, COSTS, busy.__getitem__, 2000)
    best = sum(COSTS.at(1, n_past) for n_past in range(100, 2100)) * busy[1] * 1.1
    assert taken < 1.06 * best


def test_all_threads_are_used_again_soon_after_the_disturbance() -> None:
    policy, watch, machine = started()
    machine.run(watch, COSTS, BESIDE_ONE.__getitem__, 300)
    assert policy.state.n_threads == 1
    gone = machine.now
    while policy.state.n_threads == 1:
        machine.run(watch, COSTS, ALONE.__getitem__, 1)
    assert machine.now - gone < 20
    assert policy.state.reason == ""


@pytest.mark.parametrize("every", [20, 50, 97])
def test_hiccups_of_single_passes_cost_two_percent_at_most(every: int) -> None:
    def time_taken(*, may_change: bool) -> float:
        _, watch, machine = started(may_change=may_change)
        ordinal = iter(range(10_000))
        return machine.run(
            watch, COSTS, lambda n_threads: ALONE[n_threads] * (10 if next(ordinal) % every == 0 else 1), 2000
        )

    assert time_taken(may_change=True) < 1.02 * time_taken(may_change=False)


def test_a_machine_that_is_slower_than_measured_keeps_all_threads_and_loses_two_percent_at_most() -> None:
    policy, watch, machine = started()
    taken = machine.run(watch, COSTS, lambda n_threads: 2.5 * ALONE[n_threads], 2000)
    unwatched = Machine(ThreadPolicy(2, may_change=False))
    usual = unwatched.run(unwatched.policy.watch(COSTS), COSTS, lambda _: 2.5, 2000)
    assert taken < 1.02 * usual
    assert policy.state.n_threads == 2


def test_what_is_learnt_from_one_model_holds_for_the_other() -> None:
    policy, target, machine = started()
    draft = policy.watch(DRAFT_COSTS)
    machine.run(draft, DRAFT_COSTS, BESIDE_ONE.__getitem__, 20)
    assert policy.begin(machine.now) == policy.n_threads == 1
    machine.run(target, COSTS, BESIDE_ONE.__getitem__, 1)
    assert policy.state.n_threads == 1


def test_a_trial_is_not_decided_by_the_draft_model_s_short_passes_alone() -> None:
    policy, target, machine = started()
    draft = policy.watch(DRAFT_COSTS)

    def rounds(count: int) -> None:
        for _ in range(count):
            machine.run(draft, DRAFT_COSTS, lambda n_threads: 1.0 if n_threads == 2 else 1.5, 7)
            machine.run(target, COSTS, BESIDE_ONE.__getitem__, 1, width=4)

    machine.run(target, COSTS, BESIDE_ONE.__getitem__, 20)
    assert policy.state.n_threads == 1
    for _ in range(100):
        rounds(1)
        assert policy.state.n_threads == 1


def test_without_measured_costs_a_disturbance_from_the_start_is_found_out_too() -> None:
    policy = ThreadPolicy(2)
    machine = Machine(policy)
    machine.run(policy.watch(), COSTS, BESIDE_ONE.__getitem__, 20)
    assert policy.state.n_threads == 1


def test_without_measured_costs_the_passes_themselves_teach_them() -> None:
    policy = ThreadPolicy(2)
    machine, watch = Machine(policy), policy.watch()
    machine.run(watch, COSTS, ALONE.__getitem__, 60)
    assert policy.state.n_threads == 2
    machine.run(watch, COSTS, BESIDE_ONE.__getitem__, 10)
    assert policy.n_threads == 1


def test_one_busy_program_costs_eight_threads_one_and_seven_busy_ones_more() -> None:
    policy, watch, machine = started(8)
    machine.run(watch, COSTS, lambda n_threads: 6.0 if n_threads == 8 else 8.8 / n_threads, 20)
    assert policy.state.n_threads == 7
    policy, watch, machine = started(8)
    machine.run(watch, COSTS, lambda n_threads: 40.0 if n_threads > 2 else 8.8 / n_threads, 40)
    assert policy.state.n_threads == 2


def test_where_results_depend_on_the_thread_count_it_never_changes() -> None:
    policy, watch, machine = started(may_change=False)
    machine.run(watch, COSTS, BESIDE_ONE_SPINNING.__getitem__, 50)
    assert policy.n_threads == policy.state.n_threads == 2


def test_after_a_pause_all_threads_are_tried_first() -> None:
    policy, watch, machine = started()
    machine.run(watch, COSTS, BESIDE_ONE.__getitem__, 50)
    assert policy.state.n_threads == 1
    assert policy.begin(machine.now + 30) == 2


def test_chunks_of_a_prompt_are_not_judged() -> None:
    policy, watch, machine = started()
    machine.run(watch, COSTS, BESIDE_ONE_SPINNING.__getitem__, 50, width=256)
    assert policy.n_threads == 2


def test_a_change_is_told_in_a_sentence(caplog: pytest.LogCaptureFixture) -> None:
    policy, watch, machine = started()
    with caplog.at_level(logging.INFO, "draftlight.llama.threads"):
        machine.run(watch, COSTS, BESIDE_ONE.__getitem__, 20)
    assert policy.state.reason.startswith("Other programs keep the processor busy: 1 of 2 threads are used, which is ")
    assert policy.state.reason in caplog.messages
