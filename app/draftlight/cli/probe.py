"""`probe`: has a pair tried out in a child process, as the loader does, and says what it found."""

import sys
from collections.abc import Iterable

from draftlight.cli.arguments import Arguments
from draftlight.cli.choices import pair_settings
from draftlight.cli.interrupts import cancelled_by_ctrl_c
from draftlight.cli.json_lines import write_line
from draftlight.cli.parts import Parts
from draftlight.cli.rendering import say_step
from draftlight.engine.cancel import CancelToken
from draftlight.engine.costs import StepCosts
from draftlight.engine.events import ModelLoading
from draftlight.llama.report import CacheTrial, Device, Exactness, ModelProbe, Preflight, ProbeReport

_LABEL = 10  # columns
_MENTIONED = 0.2  # share of the processors in other hands


def run(arguments: Arguments, parts: Parts) -> int:
    """Probe the pair and write the result, as one line of JSON or laid out for reading; return the exit status."""
    cancel = CancelToken()
    with cancelled_by_ctrl_c(cancel):
        for found in parts.probe(pair_settings(arguments), cancel):
            if isinstance(found, ModelLoading):
                say_step(found)
                continue
            say_step(None)
            if arguments.json:
                write_line(sys.stdout, found)
            else:
                sys.stdout.write("\n".join(_lines(found)) + "\n")
            return 0
    raise KeyboardInterrupt  # cancelled before anything was found


def _lines(found: Preflight) -> Iterable[str]:
    report, settings = found.report, found.settings
    yield f"{settings.target.name}{f' with {settings.draft.name}' if settings.draft else ''}"
    yield f"llama-cpp-python {report.library}, {report.seconds:.0f} s of measuring"
    if report.others_busy >= _MENTIONED:
        yield f"Other programs used {report.others_busy:.0%} of the processors meanwhile, so times are uncertain."
    yield from (*found.notices, *report.left_out)
    yield ""
    for name, model in _models(report):
        yield _labelled("Cache", f"{name}: {model.kv_type}, {model.cache_choice}")
        for trial in model.cache_trials:
            yield _labelled("", f"  {_trial(trial)}")
    yield _labelled("Exact", _exactness(report.exactness))
    yield _labelled("Threads", _threads(report))
    if report.draft_trials:
        accepted = sum(trial.accepted for trial in report.draft_trials)
        share = accepted / len(report.draft_trials)
        yield _labelled("Draft", f"would have been accepted at {share:.0%} of {len(report.draft_trials)} places")
    yield _labelled(
        "Memory", ", ".join(f"{name} {model.memory_bytes / 1e6:,.0f} MB" for name, model in _models(report))
    )
    for label, device in zip(("Devices", *[""] * len(report.devices)), report.devices, strict=False):
        yield _labelled(label, _device(device))
    yield _labelled("Weights", ", ".join(f"{name} in {_buffers(model)}" for name, model in _models(report)))
    for name, model in _models(report):
        yield ""
        yield f"Milliseconds of one pass of the {name}, by the tokens it is over"
        yield from _table(model.costs)


def _labelled(label: str, text: str) -> str:
    return f"{label:<{_LABEL}}{text}"


def _models(report: ProbeReport) -> Iterable[tuple[str, ModelProbe]]:
    yield "target", report.target
    if report.draft is not None:
        yield "draft model", report.draft


def _device(device: Device) -> str:
    memory = f"{device.memory_free / 1e9:,.1f} of {device.memory_total / 1e9:,.1f} GB free when measured"
    return f"{device.name}: {device.description}, {memory}"


def _trial(trial: CacheTrial) -> str:
    if trial.step_seconds is None:
        return f"{trial.kv_type}: {trial.why_not}"
    exact = (
        ""
        if trial.exact_widths is None
        else f", exact at width{'s' if trial.exact_widths != (1,) else ''} {_numbers(trial.exact_widths)}"
    )
    return f"{trial.kv_type}: {trial.step_seconds * 1e3:.1f} ms, {trial.bytes_per_token / 1e3:.1f} kB a token{exact}"


def _exactness(found: Exactness) -> str:
    if len(found.widths) + len(found.near_widths) == 1:
        return "no pass over several tokens gives the same bits as single tokens"
    parts = [f"passes over {_numbers(found.widths)} tokens give the same bits as single tokens"]
    if found.near_widths:
        parts.append(f"over {_numbers(found.near_widths)} up to {found.logit_difference:.1g} in the logits alone")
    parts.append(f"prompts in chunks of up to {found.prefill}" if found.prefill else "prompts in no chunks")
    if found.threads is not None:
        parts.append("one thread gives them, too" if found.threads else "one thread gives others")
    return f"{'; '.join(parts)} (at {_numbers(found.contexts)} tokens of context)"


def _threads(report: ProbeReport) -> str:
    trials = "; ".join(
        f"{trial.n_threads}: {trial.one_seconds * 1e3:.1f} and {trial.four_seconds * 1e3:.1f} ms for 1 and 4 tokens"
        for trial in report.thread_trials
    )
    return f"{report.n_threads}{f' ({trials})' if trials else ''}"


def _buffers(model: ModelProbe) -> str:
    return " + ".join(model.weight_buffers) or "unnamed buffers"


def _numbers(numbers: Iterable[int]) -> str:
    *rest, last = [f"{number:,}" for number in numbers]
    return f"{', '.join(rest)} and {last}" if rest else last


def _table(costs: StepCosts) -> Iterable[str]:
    yield _labelled("  context", "".join(f"{width:>8}" for width in costs.widths))
    for context, row in zip(costs.contexts, costs.seconds, strict=True):
        yield _labelled(f"{context:>9,}", "".join(f"{seconds * 1e3:>8.1f}" for seconds in row))
