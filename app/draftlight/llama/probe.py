"""The child process that tries models out: it may crash, hang or run out of memory without taking the program along.

`python -m draftlight.llama.probe --target FILE [--draft FILE] ...` loads the files and measures them. Each line it
prints is a JSON object: {"stage": ...} before each step, and last {"report": ...} or {"error": ...}.
"""

import argparse
import json
import logging
import math
import os
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

import psutil

from draftlight.engine.costs import DraftTrial
from draftlight.errors import UserError
from draftlight.llama.backend import ModelNotLoaded, ModelOptions
from draftlight.llama.cache_choice import EXACT_PRICE, types_to_try
from draftlight.llama.devices import devices
from draftlight.llama.draft_trials import N_TRIALS, try_drafting
from draftlight.llama.library import default_threads, library_version, system_info
from draftlight.llama.measuring import TimeBox
from draftlight.llama.probed import ProbedModel
from draftlight.llama.report import ModelProbe, ProbeReport, ThreadTrial
from draftlight.llama.survey import Survey, Surveyor
from draftlight.settings import KvType, PairSettings

_SECONDS = 100.0  # for all that is measured, where the machine is too slow to do all of it sooner
_THREADS_SHARE = 0.1
_TARGET_SHARE = 0.75  # of what is left then
_DRAFT_SHARE = 0.5
_TRIALS_SECONDS = 5.0
_TEXT_TOKENS = 1000
_TEXT = (
    "A draft model proposes a few tokens, and the target model verifies them in one go. Where both agree, several "
    "tokens are gained for the price of one; where they do not, the target's own token replaces the first wrong one. "
    "On Tuesday 14 March the ferry left at 06:45 with 212 passengers, 31 cars and a crate of lemons; nobody knew why "
    "it had turned back after 3.5 miles. for index in range(len(rows)): total += rows[index] * weights[index % 4] "
    '{"name": "Ada", "age": 36, "languages": ["English", "French"]} '
    "She asked whether the garden, which had belonged to her grandfather, could still be saved. It could, he said, if "
    "the roses were cut before the frost and the old wall was mended with lime instead of cement. "
)
_BUFFER = re.compile(r"(\S+) model buffer size")


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
        arguments += ["--draft", str(settings.draft), "--draft-n-gpu-layers", str(settings.draft_n_gpu_layers)]
        arguments += ["--draft-device", settings.draft_device, "--draft-kv-type", settings.draft_kv_type.value]
    arguments += ["--n-ctx", str(settings.n_ctx), "--n-threads", str(settings.n_threads)]
    arguments += ["--n-gpu-layers", str(settings.n_gpu_layers), "--device", settings.device]
    arguments += ["--kv-type", settings.kv_type.value]
    arguments += ["--exact"] if settings.exact else []
    return arguments if settings.use_extra_buffers else [*arguments, "--no-extra-buffers"]


def main(argv: Sequence[str] | None = None) -> int:
    """Try the files out and print what was found. Returns 0, or 2 when a model was refused."""
    parser = argparse.ArgumentParser(prog="probe", description="Try model files out and measure them.")
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--n-ctx", type=int, default=0)
    parser.add_argument("--n-threads", type=int, default=0)
    parser.add_argument("--n-gpu-layers", type=int, default=0)
    parser.add_argument("--draft-n-gpu-layers", type=int, default=0)
    parser.add_argument("--device", default="")
    parser.add_argument("--draft-device", default="")
    parser.add_argument("--kv-type", type=KvType, default=KvType.AUTO)
    parser.add_argument("--draft-kv-type", type=KvType, default=KvType.AUTO)
    parser.add_argument("--no-extra-buffers", action="store_true")
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--seconds", type=float, default=os.environ.get("DRAFTLIGHT_PROBE_SECONDS", _SECONDS))
    given = parser.parse_args(argv)
    settings = PairSettings(
        target=given.target,
        draft=given.draft,
        n_ctx=given.n_ctx,
        n_threads=given.n_threads,
        n_gpu_layers=given.n_gpu_layers,
        draft_n_gpu_layers=given.draft_n_gpu_layers,
        device=given.device,
        draft_device=given.draft_device,
        kv_type=given.kv_type,
        draft_kv_type=given.draft_kv_type,
        use_extra_buffers=not given.no_extra_buffers,
        exact=given.exact,
    )
    try:
        report = probe(settings, given.seconds)
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


def probe(settings: PairSettings, seconds: float = _SECONDS) -> ProbeReport:
    """Load the files, side by side as they will be used, and measure each. Raises UserError; may crash the process.

    `seconds` is what measuring may take beyond the least that has to be known.
    """
    started = time.perf_counter()
    target = _Tried.load(settings.target, ModelOptions.of_target(settings))
    draft = None if settings.draft is None else _Tried.load(settings.draft, ModelOptions.of_draft(settings))
    times, box = ProcessorTimes.now(), TimeBox(seconds)
    for tried in (target, draft):
        if tried is not None:
            tried.decode_a_little()
    thread_trials: tuple[ThreadTrial, ...] = ()
    if not settings.n_threads and target.model.can_roll_back:
        thread_trials = target.surveyor.try_threads(thread_counts(default_threads()), box.part(_THREADS_SHARE))
    free_memory = psutil.virtual_memory().available
    types = types_to_try(settings.kv_type)
    part = box.part(1.0 if draft is None else _TARGET_SHARE)
    found = target.surveyor.survey_target(types, free_memory, part, math.inf if settings.exact else EXACT_PRICE)
    target_probe, draft_probe = target.probe(found), None
    draft_trials: tuple[DraftTrial, ...] = ()
    if draft is not None:
        draft.model.use_threads(target.model.n_threads)
        types = types_to_try(settings.draft_kv_type)
        draft_probe = draft.probe(draft.surveyor.survey_draft(types, free_memory, box.part(_DRAFT_SHARE)))
        draft_trials = _try_drafting(target, draft)
    report = ProbeReport(
        target=target_probe,
        draft=draft_probe,
        exactness=found.exactness,
        n_threads=target.model.n_threads,
        thread_trials=thread_trials,
        draft_trials=draft_trials,
        left_out=(*target.surveyor.left_out, *(() if draft is None else draft.surveyor.left_out)),
        devices=devices(),
        seconds=time.perf_counter() - started,
        library=library_version(),
        system=system_info(),
        others_busy=ProcessorTimes.now().others_busy_since(times),
    )
    for tried in (draft, target):
        if tried is not None:
            tried.model.close()
    return report


def thread_counts(most: int) -> list[int]:
    """Return the thread counts worth trying, rising: the powers of two, and the most."""
    return [*(1 << bits for bits in range(most.bit_length()) if 1 << bits < most), most]


@dataclass(slots=True)
class _Tried:
    """A loaded model, with what loading it took."""

    model: ProbedModel
    surveyor: Surveyor
    loaded_with: KvType
    load_seconds: float
    weight_buffers: tuple[str, ...]
    memory_bytes: int

    @classmethod
    def load(cls, path: Path, options: ModelOptions) -> Self:
        """Load the file with the first type of cache that is not refused. Raises UserError."""
        say(f"loading {path.name}")
        before, started = psutil.Process().memory_info().rss, time.perf_counter()
        types = types_to_try(options.kv_type)
        for index, each in enumerate(types):
            try:
                with _WeightBuffers() as buffers:
                    model = ProbedModel(path, replace(options, kv_type=each))
                break
            except ModelNotLoaded as refused:
                if not refused.about_cache or index + 1 == len(types):
                    raise
        text = model.vocabulary.encode(_TEXT) or [0]
        surveyor = Surveyor(model, path.name, text * (_TEXT_TOKENS // len(text) + 1), say)
        grown = psutil.Process().memory_info().rss - before
        return cls(model, surveyor, each, time.perf_counter() - started, tuple(buffers.names), grown)

    def decode_a_little(self) -> None:
        """Try the passes that crash where llama.cpp's kernels do not fit the processor: the stage says which did."""
        n_threads = self.model.n_threads
        self.model.use_threads(1)
        say(f"decoding 1 token with {self.model.path.name}")
        self.model.forward(self.surveyor.text[:1], 1)
        say(f"decoding 4 tokens with {self.model.path.name}")
        self.model.forward(self.surveyor.text[:4], 4)
        self.model.rollback(0)
        self.model.use_threads(n_threads)

    def probe(self, found: Survey) -> ModelProbe:
        """Put together what is known of the model, and leave it with the cache that was chosen, empty."""
        model = self.model
        model.renew_cache(found.cache.kv_type)
        return ModelProbe(
            n_ctx=model.n_ctx,
            n_ctx_train=model.n_ctx_train,
            n_vocab=model.n_vocab,
            load_seconds=self.load_seconds,
            kv_type=found.cache.kv_type,
            cache_choice=found.cache.reason,
            cache_trials=found.cache_trials,
            costs=found.costs,
            weight_buffers=self.weight_buffers,
            memory_bytes=max(0, self.memory_bytes + self._cache_growth(found)),
        )

    def _cache_growth(self, found: Survey) -> int:
        """Return how many bytes the chosen cache takes beyond the one that the model was loaded with."""
        needs = {trial.kv_type: trial.bytes_per_token for trial in found.cache_trials}
        return (needs.get(found.cache.kv_type, 0) - needs.get(self.loaded_with, 0)) * self.model.n_ctx


class _WeightBuffers(logging.Handler):
    """Listens to what llama.cpp says while it loads, and notes in what kinds of buffers the weights lie."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.names: list[str] = []
        self._log = logging.getLogger("draftlight.llama")
        self._level = self._log.level

    def emit(self, record: logging.LogRecord) -> None:
        self.names += _BUFFER.findall(record.getMessage())

    def __enter__(self) -> Self:
        self._log.setLevel(logging.DEBUG)
        self._log.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._log.removeHandler(self)
        self._log.setLevel(self._level)


def _try_drafting(target: _Tried, draft: _Tried) -> tuple[DraftTrial, ...]:
    """Try the draft model out on texts of the target's, and note where there was no time for all of them."""
    say(f"asking {draft.model.path.name} for what {target.model.path.name} writes")
    vocabulary = target.model.vocabulary
    start = [] if vocabulary.bos is None or not vocabulary.add_bos else [vocabulary.bos]
    trials = try_drafting(target.model, draft.model, vocabulary, start, TimeBox(_TRIALS_SECONDS))
    if len(trials) < N_TRIALS:
        target.surveyor.left_out.append(f"{draft.model.path.name} was asked for {len(trials)} tokens of {N_TRIALS}.")
    return trials


def say(stage: str) -> None:
    """Tell what comes next, in words that go on after "while"."""
    _print({"stage": stage})


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
