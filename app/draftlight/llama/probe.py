"""The child process that tries models out: it may crash, hang or run out of memory without taking the program along.

`python -m draftlight.llama.probe --target FILE [--draft FILE] ...` loads the files and decodes 1, 4 and 200 tokens.
Each line it prints is a JSON object: {"stage": ...} before each step, and last {"report": ...} or {"error": ...}.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import psutil

from draftlight.errors import UserError
from draftlight.llama.backend import LlamaModel, ModelNotLoaded, ModelOptions
from draftlight.llama.library import library_version, system_info
from draftlight.settings import KvType, PairSettings

_PROMPT = 200  # tokens
_DEEP = 600  # tokens of context at which prefill is measured again, with a chunk of
_TAIL = 64
_REPEATS = 5
_PREFILL_BUDGET_SECONDS = 2.0
_DRAFT_WIDTH = 4
_TEXT = "A draft model proposes a few tokens, and the target model verifies them in one go. "


@dataclass(frozen=True, slots=True)
class ModelProbe:
    """What was measured of one model.

    Width times are medians at a context of about 200 tokens. Prefill is taken at its fastest, because other programs
    only ever slow it down. A prompt token costs `prefill_seconds` plus `prefill_seconds_per_context` for
    each token before it: attention, which on small models soon costs more than the weights.
    """

    n_ctx: int
    n_ctx_train: int
    n_vocab: int
    load_seconds: float
    width_1_seconds: float
    width_4_seconds: float
    prefill_seconds: float
    prefill_seconds_per_context: float
    memory_bytes: int  # what the process grew by, including the parts of the file that were read


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """What was measured of a pair, by what, and under what load.

    `others_busy` is the share of all processors, 0 to 1, that other programs used meanwhile.
    """

    target: ModelProbe
    draft: ModelProbe | None
    n_threads: int
    library: str
    system: str
    others_busy: float


@dataclass(frozen=True, slots=True)
class ProcessorTimes:
    """Seconds since some start, summed over all processors: passed, not idle, and used by this process."""

    passed: float
    busy: float
    own: float

    @classmethod
    def now(cls) -> Self:
        """Read the system's counters."""
        whole, own = psutil.cpu_times()._asdict(), psutil.Process().cpu_times()
        passed = sum(seconds for name, seconds in whole.items() if not name.startswith("guest"))  # within user and nice
        return cls(passed, passed - whole["idle"] - whole.get("iowait", 0.0), own.user + own.system)

    def others_busy_since(self, before: "ProcessorTimes") -> float:
        """Return the share of the processors' time since `before` that other programs used, 0 to 1."""
        passed = self.passed - before.passed
        others = (self.busy - before.busy) - (self.own - before.own)
        return min(1.0, max(0.0, others / passed)) if passed > 0 else 0.0


@dataclass(frozen=True, slots=True)
class ProbeFailure:
    """A sentence from the child: the model was refused, without a crash."""

    sentence: str
    remedy: str
    about_cache: bool


def arguments_for(settings: PairSettings) -> list[str]:
    """Return the command-line arguments that make main() try out these settings."""
    arguments = ["--target", str(settings.target)]
    if settings.draft is not None:
        arguments += ["--draft", str(settings.draft)]
    arguments += ["--n-ctx", str(settings.n_ctx), "--n-threads", str(settings.n_threads)]
    arguments += ["--n-gpu-layers", str(settings.n_gpu_layers), "--kv-type", settings.kv_type.value]
    return arguments if settings.use_extra_buffers else [*arguments, "--no-extra-buffers"]


def main(argv: Sequence[str] | None = None) -> int:
    """Try the files out and print what was found. Returns 0, or 2 when a model was refused."""
    parser = argparse.ArgumentParser(prog="probe", description="Try model files out and measure them.")
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--n-ctx", type=int, default=0)
    parser.add_argument("--n-threads", type=int, default=0)
    parser.add_argument("--n-gpu-layers", type=int, default=0)
    parser.add_argument("--kv-type", type=KvType, default=KvType.Q8_0)
    parser.add_argument("--no-extra-buffers", action="store_true")
    given = parser.parse_args(argv)
    settings = PairSettings(
        target=given.target,
        draft=given.draft,
        n_ctx=given.n_ctx,
        n_threads=given.n_threads,
        n_gpu_layers=given.n_gpu_layers,
        kv_type=given.kv_type,
        use_extra_buffers=not given.no_extra_buffers,
    )
    try:
        report = probe(settings)
    except UserError as error:
        about_cache = isinstance(error, ModelNotLoaded) and error.about_cache
        _print({"error": asdict(ProbeFailure(error.sentence, error.remedy, about_cache))})
        return 2
    except (OSError, MemoryError) as error:  # the machine's trouble, not a bug of ours
        reason = getattr(error, "strerror", None) or str(error) or "there is not enough memory"
        sentence = f"{settings.target.name} could not be tried out: {reason}."
        _print({"error": asdict(ProbeFailure(sentence, "Mend that, then try again.", about_cache=False))})
        return 2
    _print({"report": asdict(report)})
    return 0


def probe(settings: PairSettings) -> ProbeReport:
    """Load the files, side by side as they will be used, and measure each. Raises UserError; may crash the process."""
    options = ModelOptions.of_pair(settings)
    paths = [settings.target] if settings.draft is None else [settings.target, settings.draft]
    loaded = []
    for path in paths:
        _print({"stage": f"loading {path.name}"})
        before, started = psutil.Process().memory_info().rss, time.perf_counter()
        model = LlamaModel(path, options)
        loaded.append((model, time.perf_counter() - started, before))
    times = ProcessorTimes.now()
    probes = [_measure(model, load_seconds, before) for model, load_seconds, before in loaded]
    others_busy = ProcessorTimes.now().others_busy_since(times)
    report = ProbeReport(
        target=probes[0],
        draft=probes[1] if settings.draft is not None else None,
        n_threads=loaded[0][0].n_threads,
        library=library_version(),
        system=system_info(),
        others_busy=others_busy,
    )
    for model, _, _ in loaded:
        model.close()
    return report


def _measure(model: LlamaModel, load_seconds: float, memory_before: int) -> ModelProbe:
    width = _DRAFT_WIDTH
    n_prompt = min(_PROMPT, model.n_ctx - (_REPEATS + 1) * (width + 1))
    sentence = model.vocabulary.encode(_TEXT) or [0]
    text = (sentence * (n_prompt // len(sentence) + 1))[:n_prompt]
    _print({"stage": f"decoding 1 token with {model.path.name}"})
    model.forward(text[:1], 1)
    _print({"stage": f"decoding {width} tokens with {model.path.name}"})
    model.forward(text[:width], width)
    model.rollback(0)
    _print({"stage": f"decoding {n_prompt} tokens with {model.path.name}"})
    at_start = _fastest_pass(model, text, 0)
    ones = [_decode_seconds(model, text[:1], 1) for _ in range(_REPEATS)]
    wides = [_decode_seconds(model, text[:width], width) for _ in range(_REPEATS)]
    growth = _attention_growth(model, text, at_start / n_prompt)
    return ModelProbe(
        n_ctx=model.n_ctx,
        n_ctx_train=model.n_ctx_train,
        n_vocab=model.n_vocab,
        load_seconds=load_seconds,
        width_1_seconds=statistics.median(ones),
        width_4_seconds=statistics.median(wides),
        prefill_seconds=at_start / n_prompt - growth * n_prompt / 2,
        prefill_seconds_per_context=growth,
        memory_bytes=max(0, psutil.Process().memory_info().rss - memory_before),
    )


def _attention_growth(model: LlamaModel, text: Sequence[int], seconds_per_token: float) -> float:
    """Return what each further token of context adds to a prompt token's time; 0 where it cannot be measured.

    `seconds_per_token` is the mean over `text` read from the start, whose middle token has half of it before it.
    """
    tail = text[:_TAIL]
    if not model.can_roll_back or model.n_ctx < _DEEP + _TAIL or len(text) < _PROMPT:
        return 0.0
    model.rollback(0)
    while model.n_past < _DEEP:
        model.forward(text[: _DEEP - model.n_past], 0)
    deep = _fastest_pass(model, tail, _DEEP) / len(tail)
    return max(0.0, deep - seconds_per_token) / (_DEEP + len(tail) / 2 - len(text) / 2)


def _fastest_pass(model: LlamaModel, tokens: Sequence[int], n_past: int) -> float:
    """Return the fewest seconds that a pass over `tokens` took at this context, of a few."""
    fastest, spent = float("inf"), 0.0
    for _ in range(_REPEATS):
        if spent > _PREFILL_BUDGET_SECONDS:
            break
        model.rollback(n_past)
        seconds = _decode_seconds(model, tokens, 1)
        fastest, spent = min(fastest, seconds), spent + seconds
    return fastest


def _decode_seconds(model: LlamaModel, tokens: Sequence[int], rows: int) -> float:
    before = model.decode_seconds
    model.forward(tokens, rows)
    return model.decode_seconds - before


def _print(line: dict[str, object]) -> None:
    """Print one line at once: after a crash, the last stage that was printed is the one that crashed."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _leave_no_core_file() -> None:
    """A crash here is an answer, not something to debug; it should not fill the disk."""
    if os.name == "posix":
        import resource  # noqa: PLC0415 - does not exist on Windows

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    _leave_no_core_file()
    sys.exit(main())
