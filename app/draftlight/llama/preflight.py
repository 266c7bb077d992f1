"""Whether a pair runs here, asked of a child process before this one loads it; and what to fall back on if it does not.

The answers are kept under the cache folder, one JSON file for each state of the files, the library and the settings.
"""

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from draftlight import paths
from draftlight.engine.cancel import CancelToken
from draftlight.errors import UserError
from draftlight.llama.backend import ModelNotLoaded
from draftlight.llama.cache_choice import is_exact_enough
from draftlight.llama.library import build_identity, default_threads
from draftlight.llama.probe import ProcessorTimes, arguments_for
from draftlight.llama.report import Preflight, ProbeReport
from draftlight.llama.trial import PROBE_COMMAND, Failure, FailureKind, Stage, attempt
from draftlight.settings import KvType, PairSettings

_log = logging.getLogger("draftlight.llama.preflight")

_FORMAT = 7  # raise it when what is measured or kept changes
_BASE_LIMIT_SECONDS = 180.0
_SLOWEST_DISK = 50e6  # bytes a second that loading is granted on top of that
_HEADER_BYTES = 65536
BUSY = 0.3  # share of the processors in other hands from which on timings are not trusted for long
_BUSY_KEPT_SECONDS = 60.0
_LOOK_SECONDS = 0.2  # for which the machine is looked at


_KEPT = TypeAdapter(Preflight)


def others_busy() -> float:
    """Return the share of the processors' time that other programs use now, 0 to 1. Takes a fifth of a second."""
    before = ProcessorTimes.now()
    time.sleep(_LOOK_SECONDS)
    return ProcessorTimes.now().others_busy_since(before)


def run(
    settings: PairSettings,
    cancel: CancelToken,
    *,
    command: Sequence[str] = PROBE_COMMAND,
    limit_seconds: float | None = None,
    busy: Callable[[], float] = others_busy,
) -> Iterator[Stage | Preflight]:
    """Yield last what is known of these settings, found out in child processes (`command` plus probe's arguments).

    Before that come the stages of the children, if any are needed. What runs, and how, is kept for good. What was
    measured while other programs were busy is measured again once they are not: `busy` tells their share. Raises
    UserError where nothing works or the time limit has passed (by default 180 s and what a slow disk needs),
    LoadCancelled within about 50 ms of a cancel, ProbeBroken for a bug of the child's.
    """
    place = _place(settings)
    if limit_seconds is None:
        limit_seconds = _BASE_LIMIT_SECONDS + sum(path.stat().st_size for path in _files(settings)) / _SLOWEST_DISK
    known = _recall(place, settings)
    if known is not None:
        if not (known.is_from_a_busy_time and busy() <= BUSY):
            yield known.checked
            return
        as_asked = _open_choices(known.checked.settings, settings)
        again = yield from attempt(as_asked, cancel, command, limit_seconds)
        if isinstance(again, ProbeReport):
            yield _keep(place, Preflight(_resolved(as_asked, again), known.checked.notices, again))
            return
    if exact_anyway := _exact_anyway(settings):
        yield exact_anyway
        return
    found = yield from _Trials(cancel, command, limit_seconds).first_that_works(_as_without_draft(settings))
    if found.settings.draft is not None and not found.notices:
        _keep(_place(_without_draft(settings)), _part_without_draft(found))
    yield _keep(place, found)


def _exact_anyway(settings: PairSettings) -> Preflight | None:
    """Return what was found where nobody insisted on exactness, if that is exact: no need to measure again."""
    if not settings.exact:
        return None
    known = _recall(_place(replace(settings, exact=False)), settings)
    if known is None or known.is_from_a_busy_time or not is_exact_enough(known.checked.report.exactness.widths):
        return None
    return replace(known.checked, settings=replace(known.checked.settings, exact=True))


@dataclass(frozen=True, slots=True)
class _Trials:
    """Tries settings out one after another, each in a child process."""

    cancel: CancelToken
    command: Sequence[str]
    limit_seconds: float

    def first_that_works(self, settings: PairSettings) -> Generator[Stage, None, Preflight]:
        """Return the first of these settings and their fallbacks that works. Raises ModelNotLoaded where none does.

        Where the pair crashes in every way, the target is tried alone, again from the settings that were asked for.
        """
        found = yield from self._with_fallbacks(settings)
        if isinstance(found, Preflight):
            return found
        if found.failure.kind is FailureKind.CRASHED and settings.draft is not None:
            alone = yield from self._with_fallbacks(replace(settings, draft=None))
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

    def _with_fallbacks(self, settings: PairSettings) -> Generator[Stage, None, "Preflight | _NothingWorks"]:
        notices: list[str] = []
        tried: list[str] = []
        while True:
            found = yield from attempt(settings, self.cancel, self.command, self.limit_seconds)
            if isinstance(found, ProbeReport):
                return Preflight(_resolved(settings, found), tuple(notices), found)
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


def _without_draft(settings: PairSettings) -> PairSettings:
    return replace(settings, draft=None, draft_kv_type=KvType.AUTO, draft_n_gpu_layers=0, draft_device="")


def _as_without_draft(settings: PairSettings) -> PairSettings:
    """Return the settings with what the target's cache and threads came to when it was measured without this draft.

    So the text for a seed does not depend on which draft model is loaded.
    """
    if settings.draft is None:
        return settings
    known = _recall(_place(_without_draft(settings)), settings)
    if known is None or known.is_from_a_busy_time:
        return settings
    return replace(settings, n_threads=known.checked.settings.n_threads, kv_type=known.checked.settings.kv_type)


def _part_without_draft(found: Preflight) -> Preflight:
    """Return what was found out about the target: it holds for another draft model, and for none, too."""
    return replace(
        found, settings=_without_draft(found.settings), report=replace(found.report, draft=None, draft_trials=())
    )


def _resolved(settings: PairSettings, report: ProbeReport) -> PairSettings:
    """Return the settings with what was chosen by measurement in them."""
    draft_kv_type = settings.draft_kv_type if report.draft is None else report.draft.kv_type
    return replace(settings, n_threads=report.n_threads, kv_type=report.target.kv_type, draft_kv_type=draft_kv_type)


def _open_choices(worked: PairSettings, asked: PairSettings) -> PairSettings:
    """Return the settings that worked, with the choices open again that were open when they were asked for."""
    return replace(worked, n_threads=asked.n_threads, kv_type=asked.kv_type, draft_kv_type=asked.draft_kv_type)


def _fallback(settings: PairSettings, failure: Failure) -> tuple[PairSettings, str] | None:
    """Return what to try after a failure, and how to say so; None where nothing is left or it would not help."""
    crashed = failure.kind is FailureKind.CRASHED
    if failure.kind is FailureKind.CACHE_REFUSED and settings.kv_type is not KvType.F16:
        return replace(settings, kv_type=KvType.F16, draft_kv_type=KvType.F16), "with a 16-bit cache"
    if crashed and settings.use_extra_buffers:
        return replace(settings, use_extra_buffers=False), "without repacked weights, which is slower,"
    if crashed and KvType.AUTO in {settings.kv_type, settings.draft_kv_type}:
        return replace(settings, kv_type=KvType.Q8_0, draft_kv_type=KvType.Q8_0), "with an 8-bit cache"
    if (settings.n_gpu_layers or settings.draft_n_gpu_layers) and failure.kind is not FailureKind.ENDED:
        return replace(settings, n_gpu_layers=0, draft_n_gpu_layers=0), "on the processor alone"
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
    def is_from_a_busy_time(self) -> bool:
        """Whether other programs disturbed what was measured, unless that was just now."""
        return self.checked.report.others_busy > BUSY and self.age > _BUSY_KEPT_SECONDS


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
