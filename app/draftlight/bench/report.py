"""The report as JSON and as Markdown: the same figures for programs and for people, with every setting."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from draftlight.bench.arms import PLAIN
from draftlight.bench.doubts import Circumstances, doubts
from draftlight.bench.figures import ArmFigures, Figures
from draftlight.bench.intervals import Interval
from draftlight.bench.runner import Memory
from draftlight.engine.costs import PairFacts

BY_KIND = "Speed-up by kind"  # the heading after which the details come
_SHOWN_FORKS = 12
_MEGABYTE = 1e6
METHOD = (
    "Arms answer each prompt one after another, in an order that is reversed every other time; one answer of each arm "
    "before that is not counted. Every answer starts from empty caches; where warm is set, those of our engine hold "
    "the prompt. Rates are of decoding alone, by the engine's or the server's own times, from the first token on; the "
    "prompt's time is apart, but for what the draft model needs to read it: with our engine that is part of decoding. "
    "A ratio is plain's time per token over the arm's on the same prompt with the same seed; shown are medians over "
    "prompts, with 95 % intervals by a bootstrap paired by prompt. E / C is the most that an arm could gain: tokens of "
    "a round over its cost in plain steps, without host time."
)


@dataclass(frozen=True, slots=True)
class BenchReport:
    """Everything there is to tell. `settings` hold only what JSON can."""

    figures: Figures
    settings: Mapping[str, object]
    memory: Memory
    how: Circumstances
    facts: PairFacts | None = None
    notices: tuple[str, ...] = ()
    doubts: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Look for what makes the figures doubtful."""
        found = doubts(self.figures, self.how)
        object.__setattr__(self, "doubts", found)


def as_json(report: BenchReport, *, prompts: bool = False) -> dict[str, Any]:
    """Return the report as JSON can hold it: `arms` by name; each prompt's figures too where they are wanted."""
    table = {
        "event": "bench",
        "arms": {arm.name: _arm_as_json(arm) for arm in report.figures.arms},
        "n_prompts": len(report.figures.prompts),
        "kinds": list(report.figures.kinds),
        "interrupted": report.how.interrupted,
        "doubts": list(report.doubts),
        "notices": list(report.notices),
        "forks": _plain(report.figures.forks),
        "memory": _plain(report.memory),
        "facts": _plain(report.facts),
        "settings": _plain(report.settings),
    }
    if prompts:
        table["prompts"] = _plain(report.figures.prompts)
    return table


def _arm_as_json(arm: ArmFigures) -> dict[str, Any]:
    table: dict[str, Any] = {
        **{name: getattr(arm, name) for name in ("is_peer", "n_prompts", "n_answers", "n_tokens", "tok_s")},
        **_spread("ratio", arm.ratio),
        **_spread("workload_ratio", arm.workload_ratio),
        "identical": arm.identical,
        "acceptance_rate": arm.acceptance_rate,
        "block_efficiency": arm.block_efficiency,
        "host_share": None if arm.costs is None else arm.costs.host_share,
        "first_token_ms": arm.first_token_ms,
        **_spread("first_token_ratio", arm.first_token_ratio),
        "end_to_end_seconds": arm.end_to_end_seconds,
        **_spread("end_to_end_ratio", arm.end_to_end_ratio),
        "bound": _plain(arm.bound),
        "round": _plain(arm.costs),
        "drafting": _plain(arm.drafting),
        "over": {other: _spread("ratio", ratio) for other, ratio in arm.over.items()},
    }
    table["by_kind"] = {
        kind: {
            "n_prompts": figures.n_prompts,
            "tok_s": figures.tok_s,
            **_spread("ratio", figures.ratio),
            "identical": figures.identical,
            "acceptance_rate": figures.acceptance_rate,
            "block_efficiency": figures.block_efficiency,
        }
        for kind, figures in arm.by_kind.items()
    }
    return table


def _spread(name: str, interval: Interval | None) -> dict[str, float | None]:
    value, low, high = (None, None, None) if interval is None else (interval.value, interval.low, interval.high)
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def _plain(value: Any) -> Any:  # noqa: ANN401 - turns any frozen value into what JSON can hold
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, frozenset | set):
        return sorted(_plain(each) for each in value)
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Path):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_markdown(report: BenchReport) -> str:
    """Return the report for reading."""
    found = report.figures
    ours = [arm for arm in found.arms if not arm.is_peer]
    sections: list[tuple[str, Sequence[str]]] = [
        ("", _main_table(found)),
        ("Before you believe it", [f"- {doubt}" for doubt in report.doubts]),
        (BY_KIND, _kind_table(found)),
        ("Over each other", _over_table(found)),
        ("First token and whole answer", _whole_table(found)),
        ("Where the time of a round goes", _cost_table(ours)),
        ("Acceptance by position", _position_table(ours)),
        ("What was drafted", _drafting_table(ours)),
        ("Forks from plain", _fork_table(report)),
        ("Memory", [_memory_line(report.memory)]),
        ("Settings", [f"- {name}: {value}" for name, value in _flat(_plain(report.settings))]),
        ("How it was measured", [METHOD]),
    ]
    lines = [f"# Benchmark of {_file_name(report.settings, 'target')}", ""]
    for title, body in sections:
        if body:
            lines += [f"## {title}", ""] if title else []
            lines += [*body, ""]
    return "\n".join(lines)


def _main_table(found: Figures) -> list[str]:
    rows = [
        (
            arm.name,
            number(arm.tok_s, 1),
            interval_text(arm.ratio),
            interval_text(arm.workload_ratio),
            _bounds(arm),
            _percent(arm.identical),
            _percent(arm.acceptance_rate),
            number(arm.block_efficiency),
            _percent(None if arm.costs is None else arm.costs.host_share, 1),
        )
        for arm in found.arms
    ]
    heads = (
        "arm",
        "tok/s",
        "times plain",
        "whole workload",
        "bound E/C",
        "identical",
        "accepted",
        "tokens a round",
        "host",
    )
    return table(heads, rows)


def _bounds(arm: ArmFigures) -> str:
    if arm.bound is None or arm.name == PLAIN:
        return ""
    measured = number(arm.bound.by_this_run)
    return measured if arm.bound.by_preflight is None else f"{measured} (costs: {number(arm.bound.by_preflight)})"


def _kind_table(found: Figures) -> list[str]:
    arms = [arm for arm in found.arms if arm.name != PLAIN]
    if not arms:
        return []
    rows = []
    for kind in found.kinds:
        cells = [interval_text(arm.by_kind[kind].ratio) for arm in arms]
        rows.append((kind, str(arms[0].by_kind[kind].n_prompts), *cells))
    return table(("kind", "prompts", *(arm.name for arm in arms)), rows)


def _over_table(found: Figures) -> list[str]:
    rows = [(arm.name, other, interval_text(ratio)) for arm in found.arms for other, ratio in arm.over.items()]
    return table(("arm", "over", "times as fast"), rows) if rows else []


def _whole_table(found: Figures) -> list[str]:
    rows = [
        (
            arm.name,
            number(arm.first_token_ms, 0),
            interval_text(arm.first_token_ratio, 3),
            number(arm.end_to_end_seconds),
            interval_text(arm.end_to_end_ratio),
        )
        for arm in found.arms
    ]
    return table(("arm", "first token (ms)", "plain's over it", "whole answer (s)", "plain's over it"), rows)


def _cost_table(ours: Sequence[ArmFigures]) -> list[str]:
    rows = [
        (
            arm.name,
            *(number(value) for value in (arm.costs.draft_ms, arm.costs.verify_ms, arm.costs.host_ms)),
            _percent(arm.costs.host_share, 1),
            _percent(arm.costs.outside_share, 1),
            number(arm.costs.first_draft_ms, 0),
        )
        for arm in ours
        if arm.costs is not None
    ]
    return table(
        ("arm", "draft (ms)", "verify (ms)", "host (ms)", "host", "outside the rounds", "first draft (ms)"), rows
    )


def _position_table(ours: Sequence[ArmFigures]) -> list[str]:
    drafting = {arm.name: arm.drafting for arm in ours if arm.drafting is not None and arm.drafting.reached_at}
    longest = max((len(each.reached_at) for each in drafting.values()), default=0)
    rows = []
    for name, each in drafting.items():
        pairs = list(zip(each.accepted_at, each.reached_at, strict=True))
        cells = [f"{accepted / reached:.2f}" if reached else "" for accepted, reached in pairs]
        rows.append((name, *cells, *[""] * (longest - len(cells))))
    return table(("arm", *(str(place) for place in range(1, longest + 1))), rows) if rows else []


def _drafting_table(ours: Sequence[ArmFigures]) -> list[str]:
    rows = []
    for arm in ours:
        if arm.drafting is None or arm.name == PLAIN:
            continue
        tally = arm.drafting.tally
        by_source = ", ".join(
            f"{source}: {tally.accepted_by.get(source, 0)} of {n}" for source, n in sorted(tally.drafted_by.items())
        )
        reasons = ", ".join(f"{reason or 'no reason given'}: {n}" for reason, n in list(tally.reasons.items())[:2])
        rows.append(
            (
                arm.name,
                by_source or "nothing",
                str(tally.n_mixed),
                ", ".join(f"{length}: {n}" for length, n in tally.lengths.items()),
                number(arm.drafting.alpha),
                reasons,
                str(arm.drafting.n_near_ties),
                f"{arm.drafting.n_audits} ({arm.drafting.n_audit_failures} failed)",
            )
        )
    heads = (
        "arm",
        "accepted of drafted",
        "mixed drafts",
        "rounds by length",
        "alpha",
        "rounds without, why",
        "near-ties",
    )
    return table((*heads, "audits"), rows) if rows else []


def _fork_table(report: BenchReport) -> list[str]:
    forks = report.figures.forks
    if not forks:
        return []
    rows = [
        (fork.arm, fork.prompt, str(fork.position), str(fork.plain_token), str(fork.token), number(fork.margin, 4))
        for fork in forks[:_SHOWN_FORKS]
    ]
    more = [f"\n{len(forks) - _SHOWN_FORKS} more are in the JSON."] if len(forks) > _SHOWN_FORKS else []
    return [*table(("arm", "prompt", "at token", "plain's", "its own", "plain's lead there"), rows), *more]


def _memory_line(memory: Memory) -> str:
    start, end, peak = (value / _MEGABYTE for value in (memory.start, memory.end, memory.peak))
    return f"{start:,.1f} MB after the warm-up, {end:,.1f} MB at the end ({end - start:+,.1f}), at most {peak:,.1f} MB."


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


def number(value: float | None, digits: int = 2) -> str:
    """Return a figure, or nothing where there is none."""
    return "" if value is None else f"{value:,.{digits}f}"


def interval_text(interval: Interval | None, digits: int = 2) -> str:
    """Return a figure with its interval in brackets."""
    if interval is None:
        return ""
    if interval.low is None or interval.high is None:
        return number(interval.value, digits)
    return f"{interval.value:.{digits}f} [{interval.low:.{digits}f}, {interval.high:.{digits}f}]"


def _percent(value: float | None, digits: int = 0) -> str:
    return "" if value is None else f"{value:.{digits}%}"


def _flat(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    """Yield the settings one by one, nested ones with a dotted name."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _flat(each, f"{name}.{key}" if name else key)
    else:
        yield name, value


def _file_name(settings: Mapping[str, object], key: str) -> str:
    pair = settings.get("pair")
    value = pair.get(key) if isinstance(pair, Mapping) else None
    return Path(str(value)).name if value else "a pair"
