"""One run of the probe: starts the child process, passes on what it says, and says in a sentence how it ended."""

import json
import logging
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from draftlight.child import POLL_SECONDS, Child, Ending, NotStarted, ending, ending_name, running
from draftlight.engine.cancel import CancelToken
from draftlight.llama.backend import LoadCancelled, ModelNotLoaded
from draftlight.llama.probe import ProbeFailure, arguments_for
from draftlight.llama.report import ProbeReport
from draftlight.settings import PairSettings

_log = logging.getLogger("draftlight.llama.trial")

PROBE_COMMAND = (sys.executable, "-P", "-m", "draftlight.llama.probe")
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
    try:
        with running([*command, *arguments_for(settings)], "probe") as child:
            for found in _objects(child, cancel, deadline):
                last = found
                if "stage" in found:
                    yield Stage(str(found["stage"]))
            code = _status(child, cancel, deadline)
    except NotStarted as error:
        raise ModelNotLoaded(
            f"{settings.target.name} could not be tried out, because no process could be started: {error}.",
            "Close other programs and try again.",
        ) from error
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


def _objects(child: Child, cancel: CancelToken, deadline: float) -> Iterator[dict[str, Any]]:
    """Yield the objects it prints, until it ends or the time is over; a line that a crash cut short does not count.

    Raises LoadCancelled.
    """
    for line in child.lines():
        if cancel.cancelled:
            raise LoadCancelled
        if time.monotonic() >= deadline:
            return
        try:
            found = json.loads(line or b"")
        except ValueError:
            continue
        if isinstance(found, dict):
            yield found


def _status(child: Child, cancel: CancelToken, deadline: float) -> int | None:
    """Return its exit status; None where it still runs when the time is over. Raises LoadCancelled."""
    while time.monotonic() < deadline:
        if cancel.cancelled:
            raise LoadCancelled
        status = child.wait(POLL_SECONDS)
        if status is not None:
            return status
    return None


def _verdict(settings: PairSettings, last: dict[str, Any], code: int, errors: str) -> ProbeReport | Failure:
    """Turn the child's last line and exit status into what was found. Raises ProbeBroken."""
    stage = last.get("stage", f"starting to try {settings.target.name} out")
    if "report" in last:
        return _REPORT.validate_python(last["report"])
    if "error" in last:
        refusal = _REFUSAL.validate_python(last["error"])
        kind = FailureKind.CACHE_REFUSED if refusal.about_cache else FailureKind.REFUSED
        return Failure(refusal.sentence, refusal.remedy, kind)
    how = ending(code)
    if how is Ending.CRASHED:
        return Failure(
            f"llama.cpp crashed with {ending_name(code)} while {stage}.",
            "Choose another file; this one may be damaged or need a newer llama.cpp.",
            FailureKind.CRASHED,
        )
    if how is Ending.KILLED:
        return Failure(
            f"The system ended the trial while {stage}, probably because memory ran out.",
            "Close other programs and try again, or choose a smaller model or a shorter context.",
            FailureKind.ENDED,
        )
    if how is Ending.STOPPED:
        return Failure(
            f"The trial was ended from outside with {ending_name(code)} while {stage}.",
            "Try again.",
            FailureKind.ENDED,
        )
    _log.error("the probe ended with status %d while %s:\n%s", code, stage, errors)
    broken = ProbeBroken(f"the probe ended with status {code} while {stage}")
    broken.add_note(errors)
    raise broken
