"""Runs the arms over the prompts, interleaved and in alternating order, and says what came of each answer.

The order is A B C, then C B A: what drifts, such as heat or other programs, then hits all arms alike. Every arm
answers once before, which is not counted.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import psutil

from draftlight.bench.arms import PLAIN
from draftlight.bench.measurement import Answer, Answerer
from draftlight.bench.prompts import WrittenPrompt
from draftlight.engine.cancel import CancelToken
from draftlight.errors import UserError

_WARM_UP_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run: every prompt `repeats` times. The seed of a prompt is `seed` plus its place, in every repeat.

    After `seconds` no further prompt is begun; 0 sets no limit.
    """

    prompts: tuple[WrittenPrompt, ...]
    max_tokens: int
    seed: int
    repeats: int = 1
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Fork:
    """Where an answer left plain's: the first token that differs, and plain's lead there (None where unknown)."""

    prompt: str
    arm: str
    position: int
    plain_token: int | None
    token: int | None
    margin: float | None


@dataclass(frozen=True, slots=True)
class Measurement:
    """One answer of one arm beside plain's answer to the same prompt with the same seed.

    `answer` holds no tokens any more, only their number counts: `n_tokens`. Of plain's own answers `fork` tells where a
    repeat left the first one.
    """

    arm: str
    prompt: str
    kind: str
    answer: Answer
    n_tokens: int
    seconds_per_token: float | None
    fork: Fork | None

    @property
    def identical(self) -> bool:
        """Whether its token ids are plain's."""
        return self.fork is None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is: `n_done` of `n_total` answers, and what comes now."""

    n_done: int
    n_total: int
    now: str


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes this process held in memory after the warm-up, at the end, and at most at any answer's end."""

    start: int
    end: int
    peak: int


@dataclass(frozen=True, slots=True)
class Results:
    """Everything that was measured. The last three tell why it ended early, if it did."""

    measurements: tuple[Measurement, ...]
    memory: Memory
    interrupted: bool = False
    failure: UserError | None = None
    out_of_time: bool = False


def memory_used() -> int:
    """Return the bytes of this process that are in memory."""
    return psutil.Process().memory_info().rss


def run(
    plan: Plan,
    arms: Sequence[Answerer],
    cancel: CancelToken,
    report: Callable[[Progress], None],
    memory: Callable[[], int] = memory_used,
    clock: Callable[[], float] = time.monotonic,
) -> Results:
    """Measure every arm on every prompt. `clock` counts seconds, the warm-up's not included.

    A cancel ends it, and so does an arm that fails after the warm-up; prompts that not all arms have answered are then
    left out. Raises UserError where an arm cannot even warm up.
    """
    n_total = len(arms) * len(plan.prompts) * plan.repeats
    if not _warmed_up(plan, arms, cancel, lambda arm: report(Progress(0, n_total, f"warming up, {arm}"))):
        return Results((), Memory(memory(), memory(), memory()), interrupted=True)
    measurements: list[Measurement] = []
    first_plain: dict[str, Answer] = {}
    held = [memory()]

    started = clock()

    def results(*, interrupted: bool = False, failure: UserError | None = None, out_of_time: bool = False) -> Results:
        return Results(tuple(measurements), Memory(held[0], memory(), max(held)), interrupted, failure, out_of_time)

    try:
        for n, now in enumerate(comparisons(plan, arms)):
            if plan.seconds and clock() - started > plan.seconds:
                return results(out_of_time=True)
            answers: dict[str, Answer] = {}
            for arm in now.arms:
                n_done = n * len(arms) + len(answers)
                report(Progress(n_done, n_total, f"{now.prompt.kind} {now.prompt.id}, {arm.name}"))
                answer = arm.answer(now.prompt.tokens, now.seed, plan.max_tokens, cancel)
                if answer is None or cancel.cancelled:
                    return results(interrupted=True)
                answers[arm.name] = answer
            measurements += _compared(now.prompt, answers, first_plain.setdefault(now.prompt.id, answers[PLAIN]))
            held.append(memory())
    except UserError as error:
        return results(failure=error)
    report(Progress(n_total, n_total, ""))
    return results()


@dataclass(frozen=True, slots=True)
class Comparison:
    """One prompt, once: the arms in the order in which they answer."""

    prompt: WrittenPrompt
    seed: int
    arms: tuple[Answerer, ...]


def comparisons(plan: Plan, arms: Sequence[Answerer]) -> Iterator[Comparison]:
    """Yield what is to be run, the order of the arms reversed at every other time."""
    n = 0
    for place, prompt in enumerate(plan.prompts):
        for _ in range(plan.repeats):
            yield Comparison(prompt, plan.seed + place, tuple(arms if n % 2 == 0 else reversed(arms)))
            n += 1


def _warmed_up(plan: Plan, arms: Sequence[Answerer], cancel: CancelToken, say: Callable[[str], None]) -> bool:
    """Have every arm answer once, uncounted; False after a cancel."""
    for arm in arms:
        say(arm.name)
        n_tokens = min(plan.max_tokens, _WARM_UP_TOKENS)
        if arm.answer(plan.prompts[0].tokens, plan.seed, n_tokens, cancel) is None or cancel.cancelled:
            return False
    return True


def _compared(prompt: WrittenPrompt, answers: Mapping[str, Answer], first_plain: Answer) -> Iterator[Measurement]:
    """Hold every answer against plain's of this turn, and plain's against the first there was."""
    for arm, answer in answers.items():
        beside = first_plain if arm == PLAIN else answers[PLAIN]
        yield Measurement(
            arm=arm,
            prompt=prompt.id,
            kind=prompt.kind,
            answer=replace(answer, tokens=(), margins=()),
            n_tokens=len(answer.tokens),
            seconds_per_token=answer.seconds_per_token,
            fork=_fork(prompt.id, arm, beside, answer),
        )


def _fork(prompt: str, arm: str, plain: Answer, answer: Answer) -> Fork | None:
    """Return the first difference; None where the token ids are the same."""
    if plain.tokens == answer.tokens:
        return None
    ours, theirs = plain.tokens, answer.tokens
    n_shared = min(len(ours), len(theirs))
    position = next((i for i in range(n_shared) if ours[i] != theirs[i]), n_shared)
    margin = plain.margins[position] if position < len(plain.margins) else math.nan
    return Fork(
        prompt=prompt,
        arm=arm,
        position=position,
        plain_token=ours[position] if position < len(ours) else None,
        token=theirs[position] if position < len(theirs) else None,
        margin=None if math.isnan(margin) else margin,
    )
