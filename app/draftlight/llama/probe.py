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

import psutil

from draftlight.errors import UserError
from draftlight.llama.backend import LlamaModel, ModelNotLoaded, ModelOptions
from draftlight.llama.library import library_version, system_info
from draftlight.settings import KvType, PairSettings

_PROMPT = 200  # tokens
_REPEATS = 5
_PREFILL_BUDGET_SECONDS = 2.0
_DRAFT_WIDTH = 4
_TEXT = "A draft model proposes a few tokens, and the target model verifies them in one go. "


@dataclass(frozen=True, slots=True)
class ModelProbe:
    """What was measured of one model: width times are medians at a context of about 200 tokens, prefill the fastest."""

    n_ctx: int
    n_ctx_train: int
    n_vocab: int
    load_seconds: float
    width_1_seconds: float
    width_4_seconds: float
    prefill_tokens_per_second: float
    memory_bytes: int  # what the process grew by, including the parts of the file that were read


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """What was measured of a pair, and by what."""

    target: ModelProbe
    draft: ModelProbe | None
    n_threads: int
    library: str
    system: str


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
    probes = [_measure(model, load_seconds, before) for model, load_seconds, before in loaded]
    report = ProbeReport(
        target=probes[0],
        draft=probes[1] if settings.draft is not None else None,
        n_threads=loaded[0][0].n_threads,
        library=library_version(),
        system=system_info(),
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
    prefill = _fastest_prefill(model, text)
    ones = [_decode_seconds(model, text[:1], 1) for _ in range(_REPEATS)]
    wides = [_decode_seconds(model, text[:width], width) for _ in range(_REPEATS)]
    return ModelProbe(
        n_ctx=model.n_ctx,
        n_ctx_train=model.n_ctx_train,
        n_vocab=model.n_vocab,
        load_seconds=load_seconds,
        width_1_seconds=statistics.median(ones),
        width_4_seconds=statistics.median(wides),
        prefill_tokens_per_second=n_prompt / prefill,
        memory_bytes=max(0, psutil.Process().memory_info().rss - memory_before),
    )


def _fastest_prefill(model: LlamaModel, text: Sequence[int]) -> float:
    """Return the fewest seconds of a few runs: other programs only ever make it slower, and the answer is kept."""
    fastest, spent = float("inf"), 0.0
    for _ in range(_REPEATS):
        if spent > _PREFILL_BUDGET_SECONDS:
            break
        model.rollback(0)
        seconds = _decode_seconds(model, text, 1)
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
