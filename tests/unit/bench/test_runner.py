"""The order of the arms, what is held against what, and how it ends early."""

from collections.abc import Sequence

import pytest

from draftlight.bench.measurement import Answer
from draftlight.bench.prompts import WrittenPrompt
from draftlight.bench.runner import Plan, Progress, run
from draftlight.engine.cancel import CancelToken
from draftlight.errors import UserError


class ScriptedArm:
    """Answers with given tokens; writes down when it was asked, and can cancel or fail at its n-th answer."""

    def __init__(self, name: str, log: list[tuple[str, int, int]], tokens: Sequence[int] = (1, 2, 3)) -> None:
        self.name = name
        self.tokens = [tuple(tokens)]
        self.margins: tuple[float, ...] = (9.0, 0.25, 9.0)
        self.cancel_at = self.fail_at = -1
        self._log = log

    def answer(self, prompt: tuple[int, ...], seed: int, max_tokens: int, cancel: CancelToken) -> Answer | None:
        asked = sum(name == self.name for name, _, _ in self._log)
        self._log.append((self.name, seed, max_tokens))
        if asked == self.fail_at:
            raise UserError("The server has gone.")
        if asked == self.cancel_at:
            cancel.cancel()
            return None
        tokens = self.tokens[max(0, asked - 1) % len(self.tokens)]  # the first answer is the warm-up's
        return Answer(tokens, 2.0 * len(prompt), 0.5, 3.0, 0, 0, margins=self.margins[: len(tokens)])


class Script:
    """Two arms and two prompts."""

    def __init__(self) -> None:
        self.log: list[tuple[str, int, int]] = []
        self.plain = ScriptedArm("plain", self.log)
        self.other = ScriptedArm("k3", self.log)
        self.cancel = CancelToken()
        self.progress: list[Progress] = []

    def run(self, repeats: int = 1, seconds: float = 0.0) -> None:
        prompts = tuple(WrittenPrompt(name, "prose", (1,) * n) for n, name in enumerate("abc", 1))
        plan = Plan(prompts, max_tokens=40, seed=100, repeats=repeats, seconds=seconds)
        arms, n_asked = [self.plain, self.other], lambda: len(self.log)
        self.results = run(plan, arms, self.cancel, self.progress.append, n_asked, n_asked)


@pytest.fixture
def script() -> Script:
    return Script()


def test_the_order_is_reversed_every_other_time_and_the_warm_up_is_short(script: Script) -> None:
    script.run()
    names = [name for name, _, _ in script.log]
    assert names == ["plain", "k3", "plain", "k3", "k3", "plain", "plain", "k3"]
    assert [n for _, _, n in script.log] == [16, 16, *[40] * 6]
    assert len(script.results.measurements) == 6


def test_every_prompt_has_a_seed_of_its_own_which_all_its_repeats_share(script: Script) -> None:
    script.run(repeats=2)
    assert [seed for _, seed, _ in script.log[2:]] == [100] * 4 + [101] * 4 + [102] * 4
    order = [name for name, _, _ in script.log[2:6]]
    assert order == ["plain", "k3", "k3", "plain"]


def test_equal_tokens_are_identical_and_the_first_other_one_is_the_fork(script: Script) -> None:
    script.other.tokens = [(1, 2, 3), (1, 7, 3), (1, 2)]
    script.run()
    forks = [each.fork for each in script.results.measurements if each.arm == "k3"]
    assert forks[0] is None
    assert forks[1] is not None
    assert (forks[1].position, forks[1].plain_token, forks[1].token, forks[1].margin) == (1, 2, 7, 0.25)
    assert forks[2] is not None
    assert (forks[2].position, forks[2].plain_token, forks[2].token) == (2, 3, None)


def test_plain_is_held_against_its_own_first_answer(script: Script) -> None:
    script.plain.tokens = [(1, 2, 3), (1, 2, 4)]
    script.run(repeats=2)
    assert [each.identical for each in script.results.measurements if each.arm == "plain"] == [True, False] * 3


def test_a_cancel_keeps_the_prompts_that_every_arm_has_answered(script: Script) -> None:
    script.other.cancel_at = 2
    script.run()
    assert script.results.interrupted
    assert {each.prompt for each in script.results.measurements} == {"a"}


def test_a_cancel_in_the_warm_up_leaves_nothing(script: Script) -> None:
    script.plain.cancel_at = 0
    script.run()
    assert script.results.interrupted
    assert script.results.measurements == ()


def test_an_arm_that_fails_later_ends_it_with_what_there_is(script: Script) -> None:
    script.other.fail_at = 3
    script.run()
    assert str(script.results.failure) == "The server has gone."
    assert {each.prompt for each in script.results.measurements} == {"a", "b"}
    assert not script.results.interrupted


def test_when_its_time_is_over_no_further_prompt_is_begun(script: Script) -> None:
    script.run(seconds=3)  # an answer takes a second; the warm-up does not count
    assert script.results.out_of_time
    assert {each.prompt for each in script.results.measurements} == {"a", "b"}


def test_an_arm_that_cannot_warm_up_is_an_error(script: Script) -> None:
    script.other.fail_at = 0
    with pytest.raises(UserError):
        script.run()


def test_progress_counts_answers_and_memory_is_looked_at_after_each_prompt(script: Script) -> None:
    script.run()
    assert [step.n_done for step in script.progress] == [0, 0, 0, 1, 2, 3, 4, 5, 6]
    assert script.progress[-1] == Progress(6, 6, "")
    assert "k3" in script.progress[3].now
    assert (script.results.memory.start, script.results.memory.end, script.results.memory.peak) == (2, 8, 8)
