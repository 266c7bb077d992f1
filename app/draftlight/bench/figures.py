"""From measured answers to each arm's figures: medians over prompts, intervals, shares and bounds."""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from draftlight.bench.arms import PLAIN
from draftlight.bench.intervals import Interval, median_ratio, total_ratio
from draftlight.bench.measurement import Tally
from draftlight.bench.runner import Fork, Measurement, Results
from draftlight.engine.metrics import SpeculationStats


@dataclass(frozen=True, slots=True)
class KindFigures:
    """An arm's figures on one kind of prompt; see ArmFigures."""

    n_prompts: int
    tok_s: float | None
    ratio: Interval | None
    identical: float | None
    acceptance_rate: float | None
    block_efficiency: float | None


@dataclass(frozen=True, slots=True)
class RoundCosts:
    """Milliseconds of a mean round; `host_share` of its time is spent outside both models.

    `outside_share` of an answer's whole time lies outside prefill and rounds: what the engine's own times leave out.
    `first_draft_ms` is the draft model's time in the first round it drafted in, on average: it then reads the prompt.
    """

    draft_ms: float
    verify_ms: float
    host_ms: float
    host_share: float
    outside_share: float
    first_draft_ms: float


@dataclass(frozen=True, slots=True)
class Bound:
    """No arm can be faster than E / C: tokens of a round over its cost in plain steps, host time left out.

    `efficiency` is E. `by_this_run` takes C from both models' times here, `by_preflight` from what every width
    cost when it was measured apart, which knows nothing of this run; None where that was never measured.
    """

    efficiency: float
    by_this_run: float
    by_preflight: float | None


@dataclass(frozen=True, slots=True)
class Drafting:
    """What our engine's arm drafted over all answers, and what became of it by place in the draft."""

    tally: Tally
    accepted_at: tuple[int, ...]
    reached_at: tuple[int, ...]
    alpha: float
    n_near_ties: int
    n_audits: int
    n_audit_failures: int
    ledger_saved_ms: float  # what the engine believes to have saved


@dataclass(frozen=True, slots=True)
class ArmFigures:
    """One arm. A ratio is plain's time over this arm's; `over` holds other arms' times over this one's, by name.

    `tok_s` and `ratio` are medians over prompts of the decode rate, `workload_ratio` is time over time for all tokens
    together. `identical` is the share of answers whose token ids are plain's; None where a peer draws its own noise.
    """

    name: str
    is_peer: bool
    n_prompts: int
    n_answers: int
    n_tokens: int
    tok_s: float | None
    ratio: Interval | None
    workload_ratio: Interval | None
    identical: float | None
    acceptance_rate: float | None
    block_efficiency: float | None
    first_token_ms: float | None
    first_token_ratio: Interval | None
    end_to_end_seconds: float | None
    end_to_end_ratio: Interval | None
    by_kind: Mapping[str, KindFigures]
    over: Mapping[str, Interval]
    costs: RoundCosts | None = None
    bound: Bound | None = None
    drafting: Drafting | None = None


@dataclass(frozen=True, slots=True)
class PromptFigures:
    """One prompt: tokens a second and tokens committed, by arm."""

    prompt: str
    kind: str
    tok_s: Mapping[str, float | None]
    n_tokens: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Figures:
    """All of it. `n_too_short` prompts have an answer of a single token, which has no rate."""

    arms: tuple[ArmFigures, ...]
    prompts: tuple[PromptFigures, ...]
    forks: tuple[Fork, ...]
    n_too_short: int = 0
    kinds: tuple[str, ...] = field(default=())


class Measured:
    """The measurements by arm and prompt, each figure the median over the repeats."""

    def __init__(self, results: Results) -> None:
        """Sort the measurements."""
        self._of: dict[str, dict[str, list[Measurement]]] = {}
        self.kind_of: dict[str, str] = {}
        for each in results.measurements:
            self._of.setdefault(each.arm, {}).setdefault(each.prompt, []).append(each)
            self.kind_of.setdefault(each.prompt, each.kind)

    def of(self, arm: str, kind: str | None = None) -> list[Measurement]:
        """Return all measurements of an arm, of one kind of prompt or of all."""
        return [
            each
            for prompt, repeats in self._of.get(arm, {}).items()
            for each in repeats
            if kind is None or self.kind_of[prompt] == kind
        ]

    def median(self, arm: str, read: Callable[[Measurement], float | None]) -> dict[str, float]:
        """Return a figure by prompt, where it has one."""
        medians = {}
        for prompt, repeats in self._of.get(arm, {}).items():
            values = [value for each in repeats if (value := read(each)) is not None]
            if values:
                medians[prompt] = statistics.median(values)
        return medians


def seconds_per_token(measured: Measurement) -> float | None:
    """Decode time of a token."""
    return measured.seconds_per_token


def _first_token(measured: Measurement) -> float | None:
    return measured.answer.first_token_seconds


def _wall(measured: Measurement) -> float | None:
    return measured.answer.wall_seconds


def figures(results: Results, arms: Sequence[str], peers: frozenset[str], *, greedy: bool) -> Figures:
    """Work out everything. `greedy`: temperature 0, where a peer's tokens can be compared with ours."""
    measured = Measured(results)
    kinds = tuple(dict.fromkeys(measured.kind_of.values()))
    prompts = tuple(
        PromptFigures(
            prompt=prompt,
            kind=kind,
            tok_s={arm: _rate(measured.median(arm, seconds_per_token).get(prompt)) for arm in arms},
            n_tokens={
                arm: max((each.n_tokens for each in measured.of(arm) if each.prompt == prompt), default=0)
                for arm in arms
            },
        )
        for prompt, kind in measured.kind_of.items()
    )
    too_short = [prompt for prompt in prompts if 1 in prompt.n_tokens.values()]
    found = tuple(_arm(measured, arm, arms, peers, kinds, greedy=greedy) for arm in arms)
    forks = [each.fork for each in results.measurements if each.fork is not None]
    compared = [fork for fork in forks if greedy or fork.arm not in peers]
    return Figures(found, prompts, tuple(compared), len(too_short), kinds)


def _arm(
    measured: Measured, arm: str, arms: Sequence[str], peers: frozenset[str], kinds: Sequence[str], *, greedy: bool
) -> ArmFigures:
    own = measured.of(arm)
    is_peer = arm in peers
    comparable = greedy or not is_peer
    stats = [each.answer.stats for each in own if each.answer.stats is not None]
    by_kind = {kind: _kind(measured, arm, kind, comparable=comparable) for kind in kinds}
    rivals = [] if is_peer else [other for other in arms if other in peers or (arm == "auto" and other != PLAIN)]
    over = {other: _ratio(measured, arm, other, seconds_per_token) for other in rivals if other != arm}
    return ArmFigures(
        name=arm,
        is_peer=is_peer,
        n_prompts=len({each.prompt for each in own}),
        n_answers=len(own),
        n_tokens=sum(each.n_tokens for each in own),
        tok_s=_rate(_median(measured.median(arm, seconds_per_token).values())),
        ratio=_ratio(measured, arm, PLAIN, seconds_per_token),
        workload_ratio=_workload_ratio(measured, arm),
        identical=_share(each.identical for each in own) if comparable else None,
        acceptance_rate=_acceptance(own),
        block_efficiency=_efficiency(stats),
        first_token_ms=_milliseconds(_median(measured.median(arm, _first_token).values())),
        first_token_ratio=_ratio(measured, arm, PLAIN, _first_token),
        end_to_end_seconds=_median(measured.median(arm, _wall).values()),
        end_to_end_ratio=_ratio(measured, arm, PLAIN, _wall),
        by_kind=by_kind,
        over={other: ratio for other, ratio in over.items() if ratio is not None},
        costs=_costs(own),
        bound=_bound(measured, arm),
        drafting=_drafting(own) if stats else None,
    )


def _kind(measured: Measured, arm: str, kind: str, *, comparable: bool) -> KindFigures:
    own = measured.of(arm, kind)
    ours = {
        prompt: value
        for prompt, value in measured.median(arm, seconds_per_token).items()
        if measured.kind_of[prompt] == kind
    }
    return KindFigures(
        n_prompts=len({each.prompt for each in own}),
        tok_s=_rate(_median(ours.values())),
        ratio=_ratio(measured, arm, PLAIN, seconds_per_token, kind),
        identical=_share(each.identical for each in own) if comparable else None,
        acceptance_rate=_acceptance(own),
        block_efficiency=_efficiency([each.answer.stats for each in own if each.answer.stats is not None]),
    )


def _ratio(
    measured: Measured, arm: str, other: str, read: Callable[[Measurement], float | None], kind: str | None = None
) -> Interval | None:
    """The other's figure over this arm's, over the prompts that both have."""
    ours, theirs = measured.median(arm, read), measured.median(other, read)
    both = [p for p in ours if p in theirs and ours[p] > 0 and (kind is None or measured.kind_of[p] == kind)]
    return median_ratio([ours[prompt] for prompt in both], [theirs[prompt] for prompt in both])


def _workload_ratio(
    measured: Measured, arm: str, read: Callable[[Measurement], float | None] = seconds_per_token
) -> Interval | None:
    """Time over time for as many tokens as plain committed in each prompt."""
    ours, plain = measured.median(arm, read), measured.median(PLAIN, seconds_per_token)
    n_tokens = measured.median(PLAIN, lambda each: each.n_tokens)
    both = [prompt for prompt in ours if prompt in plain]
    return total_ratio([ours[p] * n_tokens[p] for p in both], [plain[p] * n_tokens[p] for p in both])


def _costs(own: Sequence[Measurement]) -> RoundCosts | None:
    """What a mean round costs; None for a peer, which does not tell, and without rounds."""
    told = [(each.answer, each.answer.stats, each.answer.tally) for each in own]
    n_rounds = sum(tally.n_rounds for _, _, tally in told if tally is not None)
    if not n_rounds:
        return None
    stats = [each for _, each, _ in told if each is not None]
    draft, verify, host = (sum(getattr(each, name) for each in stats) for name in ("draft_ms", "verify_ms", "host_ms"))
    wall = sum(answer.wall_seconds for answer, _, _ in told)
    known = sum(answer.first_token_seconds + answer.decode_seconds for answer, _, _ in told)
    whole = draft + verify + host
    return RoundCosts(
        draft_ms=draft / n_rounds,
        verify_ms=verify / n_rounds,
        host_ms=host / n_rounds,
        host_share=host / whole if whole > 0 else 0.0,
        outside_share=(wall - known) / wall if wall > 0 else 0.0,
        first_draft_ms=statistics.fmean(tally.first_draft_ms for _, _, tally in told if tally is not None),
    )


def _bound(measured: Measured, arm: str) -> Bound | None:
    """Return E / C, with C by both sources of costs. By this run's times it is the workload ratio without host time."""
    without_host = _workload_ratio(measured, arm, _model_seconds_per_token)
    told = [(each.n_tokens - 1, each.answer.tally) for each in measured.of(arm) if each.answer.tally is not None]
    n_tokens = sum(n for n, _ in told)
    n_rounds = sum(tally.n_rounds for _, tally in told)
    if without_host is None or not n_rounds:
        return None
    costs = [tally.predicted_cost for _, tally in told if tally.predicted_cost is not None]
    by_preflight = n_tokens / sum(costs) if len(costs) == len(told) and sum(costs) > 0 else None
    return Bound(n_tokens / n_rounds, without_host.value, by_preflight)


def _model_seconds_per_token(measured: Measurement) -> float | None:
    """Decode time of a token inside the two models."""
    stats = measured.answer.stats
    spent = 0.0 if stats is None else (stats.draft_ms + stats.verify_ms) / 1000.0
    return spent / (measured.n_tokens - 1) if spent > 0 and measured.n_tokens > 1 else None


def _drafting(own: Sequence[Measurement]) -> Drafting:
    stats = [each.answer.stats for each in own if each.answer.stats is not None]
    accepted, rejected = sum(each.n_accepted for each in stats), sum(each.n_rejected for each in stats)
    return Drafting(
        tally=_pooled([each.answer.tally for each in own if each.answer.tally is not None]),
        accepted_at=_summed(each.accepted_at for each in stats),
        reached_at=_summed(each.reached_at for each in stats),
        alpha=accepted / (accepted + rejected) if accepted + rejected else 0.0,
        n_near_ties=sum(each.n_near_ties for each in stats),
        n_audits=sum(each.n_audits for each in stats),
        n_audit_failures=sum(each.n_audit_failures for each in stats),
        ledger_saved_ms=sum(each.saved_ms for each in stats),
    )


def _pooled(tallies: Sequence[Tally]) -> Tally:
    """All rounds of an arm together."""
    costs = [tally.predicted_cost for tally in tallies if tally.predicted_cost is not None]
    return Tally(
        n_rounds=sum(tally.n_rounds for tally in tallies),
        drafted_by=dict(sum((Counter(tally.drafted_by) for tally in tallies), Counter())),
        accepted_by=dict(sum((Counter(tally.accepted_by) for tally in tallies), Counter())),
        lengths=dict(sorted(sum((Counter(tally.lengths) for tally in tallies), Counter()).items())),
        reasons=dict(sum((Counter(tally.reasons) for tally in tallies), Counter()).most_common()),
        n_mixed=sum(tally.n_mixed for tally in tallies),
        predicted_cost=sum(costs) if len(costs) == len(tallies) else None,
    )


def _summed(rows: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """Add rows of different lengths up, place by place."""
    return tuple(sum(column) for column in zip_longest(*rows, fillvalue=0))


def _acceptance(own: Sequence[Measurement]) -> float | None:
    drafted = sum(each.answer.n_drafted for each in own)
    return sum(each.answer.n_accepted for each in own) / drafted if drafted else None


def _efficiency(stats: Sequence[SpeculationStats]) -> float | None:
    n_rounds = sum(each.n_rounds for each in stats)
    return sum(each.n_committed for each in stats) / n_rounds if n_rounds else None


def _share(values: Iterable[bool]) -> float | None:
    listed = list(values)
    return sum(listed) / len(listed) if listed else None


def _median(values: Iterable[float]) -> float | None:
    listed = list(values)
    return statistics.median(listed) if listed else None


def _rate(seconds: float | None) -> float | None:
    return None if seconds is None or seconds <= 0 else 1.0 / seconds


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else 1000.0 * seconds
