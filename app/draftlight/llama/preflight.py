"""Whether a pair runs here, asked of a child process before this one loads it; and what to fall back on if it does not.

The answers are kept under the cache folder, one JSON file for each state of the files, the library and the settings.
"""

import hashlib
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from pydantic import TypeAdapter, ValidationError

from draftlight import paths
from draftlight.engine.cancel import CancelToken
from draftlight.errors import UserError
from draftlight.llama.backend import MAX_BATCH, LoadCancelled, ModelNotLoaded
from draftlight.llama.library import build_identity, default_threads
from draftlight.llama.probe import ModelProbe, ProbeFailure, ProbeReport, arguments_for
from draftlight.settings import KvType, PairSettings

_log = logging.getLogger("draftlight.llama.preflight")

PROBE_COMMAND = (sys.executable, "-P", "-m", "draftlight.llama.probe")
_FORMAT = 3  # raise it when what is measured or kept changes
_BASE_LIMIT_SECONDS = 120.0
_SLOWEST_DISK = 50e6  # bytes a second that loading is granted on top of that
_POLL_SECONDS = 0.05
_HEADER_BYTES = 65536
_CHUNK_SECONDS = 0.25  # half of what may pass until a stop has freed the engine
_CHUNK_CONTEXT = 4096  # tokens of context at which that holds
_SMALLEST_CHUNK = 16


@dataclass(frozen=True, slots=True)
class Preflight:
    """A pair that runs here: the settings that work, what the person should know, what was measured."""

    settings: PairSettings
    notices: tuple[str, ...]
    report: ProbeReport


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why one attempt did not work, and what kind of failure it was."""

    sentence: str
    remedy: str = ""
    crashed: bool = False
    about_cache: bool = False


_KEPT = TypeAdapter(Preflight)
_REPORT = TypeAdapter(ProbeReport)
_REFUSAL = TypeAdapter(ProbeFailure)


def run(
    settings: PairSettings,
    cancel: CancelToken,
    *,
    command: Sequence[str] = PROBE_COMMAND,
    limit_seconds: float | None = None,
) -> Preflight:
    """Return what is known of these settings, or find it out in child processes (`command` plus probe's arguments).

    Raises UserError where nothing works or the time limit has passed (by default 120 s and what a slow disk needs),
    LoadCancelled within about 50 ms of a cancel.
    """
    place = _place(settings)
    known = _recall(place, settings)
    if known is not None:
        return known
    if limit_seconds is None:
        limit_seconds = _BASE_LIMIT_SECONDS + sum(path.stat().st_size for path in _files(settings)) / _SLOWEST_DISK
    tried = settings
    notices: list[str] = []
    while True:
        found = _attempt(tried, cancel, command, limit_seconds)
        if isinstance(found, ProbeReport):
            checked = Preflight(tried, tuple(notices), found)
            _keep(place, checked)
            return checked
        fallback = _fallback(tried, found)
        if fallback is None:
            raise ModelNotLoaded(" ".join([*notices, found.sentence]), found.remedy)
        tried, change = fallback
        notices.append(f"{found.sentence} It is used {change} instead.")
        _log.warning("%s", notices[-1])


def prefill_chunk(probe: ModelProbe) -> int:
    """Return how many prompt tokens to feed at once, so that a stop is obeyed soon: a power of two, 16 to 512."""
    context = min(probe.n_ctx, _CHUNK_CONTEXT)
    seconds_per_token = probe.prefill_seconds + probe.prefill_seconds_per_context * context
    chunk = MAX_BATCH
    while chunk > _SMALLEST_CHUNK and chunk * seconds_per_token > _CHUNK_SECONDS:
        chunk //= 2
    return chunk


def _fallback(settings: PairSettings, failure: _Failure) -> tuple[PairSettings, str] | None:
    """Return what to try after a failure, and how to say so; None where nothing is left."""
    if failure.about_cache and settings.kv_type is not KvType.F16:
        return replace(settings, kv_type=KvType.F16), "with a 16-bit cache"
    if failure.crashed and settings.use_extra_buffers:
        return replace(settings, use_extra_buffers=False), "without repacked weights, which is slower,"
    if settings.n_gpu_layers != 0:
        return replace(settings, n_gpu_layers=0), "on the processor alone"
    return None


def _attempt(
    settings: PairSettings, cancel: CancelToken, command: Sequence[str], limit_seconds: float
) -> ProbeReport | _Failure:
    """Run the child once. Its output goes to files: a pipe that nobody empties could stop it."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(  # noqa: S603 - our own command; the paths are arguments, not shell text
            [*command, *arguments_for(settings)], stdin=subprocess.DEVNULL, stdout=output, stderr=errors
        )
        try:
            finished = _wait(child, cancel, limit_seconds)
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
        lines = _read(output)
        for line in _read(errors):
            _log.debug("probe: %s", line)
    last = json.loads(lines[-1]) if lines else {}
    if not finished:
        return _Failure(
            f"{settings.target.name} was still {last.get('stage', 'starting')} after {limit_seconds:.0f} seconds.",
            "Close other programs and try again, or choose a smaller model.",
        )
    if "report" in last:
        return _REPORT.validate_python(last["report"])
    if "error" in last:
        refusal = _REFUSAL.validate_python(last["error"])
        return _Failure(refusal.sentence, refusal.remedy, about_cache=refusal.about_cache)
    return _Failure(
        f"llama.cpp {_ending(child.returncode)} while {last.get('stage', 'starting')}.",
        "Choose another file; this one may be damaged or need a newer llama.cpp.",
        crashed=True,
    )


def _wait(child: subprocess.Popen[bytes], cancel: CancelToken, limit_seconds: float) -> bool:
    """Wait until the child has ended; False when the limit has passed. Raises LoadCancelled."""
    deadline = time.monotonic() + limit_seconds
    while time.monotonic() < deadline:
        if cancel.cancelled:
            raise LoadCancelled
        try:
            child.wait(_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        return True
    return False


def _read(file: IO[bytes]) -> list[str]:
    file.seek(0)
    return file.read().decode("utf-8", "replace").splitlines()


def _ending(code: int) -> str:
    """Say how a process ended that did not end by itself."""
    if code == -getattr(signal, "SIGKILL", 9):
        return "was ended by the system, probably for want of memory,"
    if code < 0:
        return f"crashed with {signal.Signals(-code).name}"
    return f"ended with code {code}"


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


def _recall(place: Path, settings: PairSettings) -> Preflight | None:
    """Return what was kept; None where nothing was, or where it cannot be read: then it is measured again."""
    try:
        kept = _KEPT.validate_json(place.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        _log.warning("measured again, because %s cannot be read: %s", place, error)
        return None
    return replace(kept, settings=replace(kept.settings, ngram=settings.ngram))


def _keep(place: Path, checked: Preflight) -> None:
    """Write the answer beside its place, then move it there, so that no half is ever read."""
    try:
        paths.make_folder(place.parent)
        with tempfile.NamedTemporaryFile(dir=place.parent, suffix=".part", delete=False) as part:
            part.write(_KEPT.dump_json(checked, indent=1))
        Path(part.name).replace(place)
    except (OSError, UserError) as error:
        _log.warning("not kept, so it will be measured again next time: %s", error)
