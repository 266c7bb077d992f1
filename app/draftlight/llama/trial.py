"""One run of the probe: starts the child process, passes on what it says, and says in a sentence how it ended."""

import json
import logging
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from draftlight.engine.cancel import CancelToken
from draftlight.llama.backend import LoadCancelled, ModelNotLoaded
from draftlight.llama.probe import ProbeFailure, arguments_for
from draftlight.llama.report import ProbeReport
from draftlight.settings import PairSettings

_log = logging.getLogger("draftlight.llama.trial")

PROBE_COMMAND = (sys.executable, "-P", "-m", "draftlight.llama.probe")
_POLL_SECONDS = 0.05
_CRASHES = {
    number
    for name in ("SIGSEGV", "SIGILL", "SIGBUS", "SIGFPE", "SIGABRT", "SIGTRAP")
    if (number := getattr(signal, name, None)) is not None
}
_WINDOWS_ABORT = 3
_WINDOWS_FIRST_FATAL_STATUS = 0xC0000000  # an access violation is 0xC0000005
_REPORT = TypeAdapter(ProbeReport)
_REFUSAL = TypeAdapter(ProbeFailure)


class FailureKind(Enum):
    """What kept a trial from its report, as far as it decides what to try next."""

    REFUSED = auto()  # a sentence of the child's own
    CACHE_REFUSED = auto()  # the same, about the type of the cache alone
    CRASHED = auto()  # a native crash: other settings may get around it, and it will come again
    ENDED = auto()  # from outside, mostly for want of memory: says nothing about the files
    TOO_SLOW = auto()


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a trial gave no report, in a sentence, and what to do about it."""

    sentence: str
    remedy: str
    kind: FailureKind


class ProbeBroken(Exception):
    """The child ended with an exception of Python's or an unknown status: a bug, whose traceback is a note."""


class Stage(NamedTuple):
    """What the child does next, in words that go on after "while"."""

    doing: str

    @property
    def sentence(self) -> str:
        """The same as a line of its own."""
        return self.doing[:1].upper() + self.doing[1:]


def attempt(
    settings: PairSettings, cancel: CancelToken, command: Sequence[str], limit_seconds: float
) -> Generator[Stage, None, ProbeReport | Failure]:
    """Run the child (`command` plus the probe's arguments) once; yield its stages, return what it found or why not.

    Raises LoadCancelled within about 50 ms of a cancel, ModelNotLoaded where no process can be started, ProbeBroken.
    """
    deadline = time.monotonic() + limit_seconds
    last: dict[str, Any] = {}
    with _running(settings, [*command, *arguments_for(settings)]) as child:
        for line in child.lines(cancel, deadline):
            last = line
            if "stage" in line:
                yield Stage(str(line["stage"]))
        code = child.wait(cancel, deadline)
    errors = child.errors()
    for written in errors.splitlines():
        _log.debug("probe: %s", written)
    if code is None:
        return Failure(
            f"{settings.target.name} was still {last.get('stage', 'starting')} after {limit_seconds:.0f} seconds.",
            "Close other programs and try again, or choose a smaller model.",
            FailureKind.TOO_SLOW,
        )
    return _verdict(settings, last, code, errors)


def _start(command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start the child in a process group of its own: a Ctrl-C in the terminal is for the program, not for it."""
    if sys.platform == "win32":
        flags = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW
        return subprocess.Popen(  # noqa: S603 - our own command; the paths are arguments, not shell text
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            creationflags=flags,
        )
    return subprocess.Popen(  # noqa: S603 - as above
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0
    )


class _Child:
    """A running child, with threads that read what it writes: no pipe may fill up."""

    def __init__(self, process: subprocess.Popen[bytes], readers: ThreadPoolExecutor) -> None:
        self._process = process
        self._output, self._error_output = process.stdout, process.stderr
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        readers.submit(self._read_lines)
        self._errors = readers.submit(self._read_errors)

    def lines(self, cancel: CancelToken, deadline: float) -> Iterator[dict[str, Any]]:
        """Yield the objects it prints, until it ends or the time is over; a line that a crash cut short does not count.

        Raises LoadCancelled.
        """
        while time.monotonic() < deadline:
            if cancel.cancelled:
                raise LoadCancelled
            try:
                line = self._lines.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                continue
            if line is None:
                return
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict):
                yield found

    def wait(self, cancel: CancelToken, deadline: float) -> int | None:
        """Return the exit status; None where it still runs when the time is over. Raises LoadCancelled."""
        while time.monotonic() < deadline:
            if cancel.cancelled:
                raise LoadCancelled
            try:
                return self._process.wait(_POLL_SECONDS)
            except subprocess.TimeoutExpired:
                continue
        return None

    def errors(self) -> str:
        """Return all that it wrote to its standard error; it has ended."""
        return self._errors.result().decode("utf-8", "replace")

    def _read_lines(self) -> None:
        try:
            for line in self._output or ():
                self._lines.put(line)
        finally:
            self._lines.put(None)

    def _read_errors(self) -> bytes:
        return b"" if self._error_output is None else self._error_output.read()


@contextmanager
def _running(settings: PairSettings, command: Sequence[str]) -> Iterator[_Child]:
    """Run the child; whatever happens, it has ended afterwards. Raises ModelNotLoaded where it cannot be started."""
    try:
        process = _start(command)
    except OSError as error:
        raise ModelNotLoaded(
            f"{settings.target.name} could not be tried out, because no process could be started: "
            f"{error.strerror or error}.",
            "Close other programs and try again.",
        ) from error
    with process, ThreadPoolExecutor(2, thread_name_prefix="probe") as readers:
        try:
            yield _Child(process, readers)
        finally:
            if process.poll() is None:
                process.kill()


def _verdict(settings: PairSettings, last: dict[str, Any], code: int, errors: str) -> ProbeReport | Failure:
    """Turn the child's last line and exit status into what was found. Raises ProbeBroken."""
    stage = last.get("stage", f"starting to try {settings.target.name} out")
    if "report" in last:
        return _REPORT.validate_python(last["report"])
    if "error" in last:
        refusal = _REFUSAL.validate_python(last["error"])
        kind = FailureKind.CACHE_REFUSED if refusal.about_cache else FailureKind.REFUSED
        return Failure(refusal.sentence, refusal.remedy, kind)
    if -code in _CRASHES or code == _WINDOWS_ABORT or code >= _WINDOWS_FIRST_FATAL_STATUS:
        return Failure(
            f"llama.cpp crashed with {_signal_name(-code) if code < 0 else f'status {code:#x}'} while {stage}.",
            "Choose another file; this one may be damaged or need a newer llama.cpp.",
            FailureKind.CRASHED,
        )
    if -code == getattr(signal, "SIGKILL", None):
        return Failure(
            f"The system ended the trial while {stage}, probably because memory ran out.",
            "Close other programs and try again, or choose a smaller model or a shorter context.",
            FailureKind.ENDED,
        )
    if code < 0:
        return Failure(
            f"The trial was ended from outside with {_signal_name(-code)} while {stage}.",
            "Try again.",
            FailureKind.ENDED,
        )
    _log.error("the probe ended with status %d while %s:\n%s", code, stage, errors)
    broken = ProbeBroken(f"the probe ended with status {code} while {stage}")
    broken.add_note(errors)
    raise broken


def _signal_name(number: int) -> str:
    """Return a signal's name; the real-time ones have none."""
    return next((each.name for each in signal.Signals if each == number), f"signal {number}")
