"""Whether a pair runs here, asked of a child process before this one loads it; and what to fall back on if it does not.

The answers are kept under the cache folder, one JSON file for each state of the files, the library and the settings.
"""

import hashlib
import json
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from draftlight import paths
from draftlight.engine.cancel import CancelToken
from draftlight.errors import UserError
from draftlight.llama.backend import MAX_BATCH, ModelNotLoaded
from draftlight.llama.library import build_identity, default_threads
from draftlight.llama.probe import ModelProbe, ProbeReport, arguments_for
from draftlight.llama.trial import PROBE_COMMAND, Failure, FailureKind, attempt
from draftlight.settings import KvType, PairSettings

_log = logging.getLogger("draftlight.llama.preflight")

_FORMAT = 4  # raise it when what is measured or kept changes
_BASE_LIMIT_SECONDS = 120.0
_SLOWEST_DISK = 50e6  # bytes a second that loading is granted on top of that
_HEADER_BYTES = 65536
_CHUNK_SECONDS = 0.25  # half of what may pass until a stop has freed the engine
_CHUNK_CONTEXT = 4096  # tokens of context at which that holds
_SMALLEST_CHUNK = 16
_BUSY = 0.3  # share of the processors in other hands from which on timings are not trusted for long
_BUSY_KEPT_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Preflight:
    """A pair that runs here: the settings that work, what the person should know, what was measured."""

    settings: PairSettings
    notices: tuple[str, ...]
    report: ProbeReport


_KEPT = TypeAdapter(Preflight)


def run(
    settings: PairSettings,
    cancel: CancelToken,
    *,
    command: Sequence[str] = PROBE_COMMAND,
    limit_seconds: float | None = None,
) -> Preflight:
    """Return what is known of these settings, or find it out in child processes (`command` plus probe's arguments).

    What runs, and how, is kept for good. Timings that were taken while other programs were busy are taken again, at
    most once a day. Raises UserError where nothing works or the time limit has passed (by default 120 s and what a slow
    disk needs), LoadCancelled within about 50 ms of a cancel, ProbeBroken for a bug of the child's.
    """
    place = _place(settings)
    if limit_seconds is None:
        limit_seconds = _BASE_LIMIT_SECONDS + sum(path.stat().st_size for path in _files(settings)) / _SLOWEST_DISK
    known = _recall(place, settings)
    if known is not None:
        if not known.is_due_again:
            return known.checked
        again = attempt(known.checked.settings, cancel, command, limit_seconds)
        if isinstance(again, ProbeReport):
            return _keep(place, replace(known.checked, report=again))
    return _keep(place, _Trials(cancel, command, limit_seconds).first_that_works(settings))


@dataclass(frozen=True, slots=True)
class _Trials:
    """Tries settings out one after another, each in a child process."""

    cancel: CancelToken
    command: Sequence[str]
    limit_seconds: float

    def first_that_works(self, settings: PairSettings) -> Preflight:
        """Return the first of these settings and their fallbacks that works. Raises ModelNotLoaded where none does.

        Where the pair crashes in every way, the target is tried alone, again from the settings that were asked for.
        """
        found = self._with_fallbacks(settings)
        if isinstance(found, Preflight):
            return found
        if found.failure.kind is FailureKind.CRASHED and settings.draft is not None:
            alone = self._with_fallbacks(replace(settings, draft=None))
            if isinstance(alone, Preflight):
                without_draft = (
                    f"{settings.draft.name} cannot draft here: {found.failure.sentence} "
                    "The answer comes without drafting; n-gram drafts, which need no draft model, can be chosen."
                )
                _log.warning("%s", without_draft)
                return replace(alone, notices=(without_draft, *alone.notices))
            found = _NothingWorks(alone.failure, (*found.tried, "without the draft model"))
        in_vain = f" Trying it {' and '.join(found.tried)} did not help." if found.tried else ""
        raise ModelNotLoaded(f"{found.failure.sentence}{in_vain}", found.failure.remedy)

    def _with_fallbacks(self, settings: PairSettings) -> "Preflight | _NothingWorks":
        notices: list[str] = []
        tried: list[str] = []
        while True:
            found = attempt(settings, self.cancel, self.command, self.limit_seconds)
            if isinstance(found, ProbeReport):
                return Preflight(settings, tuple(notices), found)
            fallback = _fallback(settings, found)
            if fallback is None:
                return _NothingWorks(found, tuple(tried))
            settings, change = fallback
            tried.append(change)
            notices.append(f"{found.sentence} It is used {change} instead.")
            _log.warning("%s It is tried %s.", found.sentence, change)


@dataclass(frozen=True, slots=True)
class _NothingWorks:
    """The failure that ended the search, and the changes that were tried, as they read after "Trying it"."""

    failure: Failure
    tried: tuple[str, ...]


def prefill_chunk(probe: ModelProbe) -> int:
    """Return how many prompt tokens to feed at once, so that a stop is obeyed soon: a power of two, 16 to 512."""
    context = min(probe.n_ctx, _CHUNK_CONTEXT)
    seconds_per_token = probe.prefill_seconds + probe.prefill_seconds_per_context * context
    chunk = MAX_BATCH
    while chunk > _SMALLEST_CHUNK and chunk * seconds_per_token > _CHUNK_SECONDS:
        chunk //= 2
    return chunk


def _fallback(settings: PairSettings, failure: Failure) -> tuple[PairSettings, str] | None:
    """Return what to try after a failure, and how to say so; None where nothing is left or it would not help."""
    crashed = failure.kind is FailureKind.CRASHED
    if failure.kind is FailureKind.CACHE_REFUSED and settings.kv_type is not KvType.F16:
        return replace(settings, kv_type=KvType.F16), "with a 16-bit cache"
    if crashed and settings.use_extra_buffers:
        return replace(settings, use_extra_buffers=False), "without repacked weights, which is slower,"
    if settings.n_gpu_layers != 0 and failure.kind is not FailureKind.ENDED:
        return replace(settings, n_gpu_layers=0), "on the processor alone"
    return None


def _files(settings: PairSettings) -> list[Path]:
    return [settings.target] if settings.draft is None else [settings.target, settings.draft]


def _place(settings: PairSettings) -> Path:
    """Return the cache file for this state of the model files, the library and the settings."""
    key = json.dumps(
        [
            _FORMAT,
            build_identity(),
            os.cpu_count(),
            settings.n_threads or default_threads(),
            arguments_for(settings),
            [_state(path) for path in _files(settings)],
        ]
    )
    return paths.cache_dir() / "preflight" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def _state(path: Path) -> tuple[int, int, str]:
    """Return size, modification time and a hash of the header of a file. Raises ModelNotLoaded."""
    try:
        status = path.stat()
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except FileNotFoundError:
        raise ModelNotLoaded(f"There is no file {path}.", "Choose another model file.") from None
    except OSError as error:
        raise ModelNotLoaded(f"{path} cannot be read: {error.strerror}.", "Choose a file that you may read.") from error
    return status.st_size, status.st_mtime_ns, hashlib.sha256(header).hexdigest()


@dataclass(frozen=True, slots=True)
class _Kept:
    """An answer from an earlier time, and how long ago that was, in seconds."""

    checked: Preflight
    age: float

    @property
    def is_due_again(self) -> bool:
        """Whether the timings are from a busy time and old enough to be taken again."""
        return self.checked.report.others_busy > _BUSY and self.age > _BUSY_KEPT_SECONDS


def _recall(place: Path, settings: PairSettings) -> _Kept | None:
    """Return what was kept; None where nothing was, or where it cannot be read: then it is measured again."""
    try:
        kept = _KEPT.validate_json(place.read_bytes())
        age = time.time() - place.stat().st_mtime
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        _log.warning("measured again, because %s cannot be read: %s", place, error)
        return None
    return _Kept(replace(kept, settings=replace(kept.settings, ngram=settings.ngram)), age)


def _keep(place: Path, checked: Preflight) -> Preflight:
    """Write the answer beside its place, then move it there, so that no half is ever read. Return it."""
    part = place.with_name(f"{place.name}.{os.getpid()}.part")
    try:
        paths.make_folder(place.parent)
        try:
            part.write_bytes(_KEPT.dump_json(checked, indent=1))
            part.replace(place)
        finally:
            part.unlink(missing_ok=True)
    except (OSError, UserError) as error:
        _log.warning("not kept, so it will be measured again next time: %s", error)
    return checked
