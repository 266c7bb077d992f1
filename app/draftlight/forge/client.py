"""Starts the forge's own process, passes on what it reports, and tells it to pause, go on or stop. Knows no torch."""

import contextlib
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence

import psutil

from draftlight import paths
from draftlight.child import Child, Ending, NotStarted, ending, ending_name, running
from draftlight.engine.cancel import CancelToken
from draftlight.errors import UserError
from draftlight.forge.conditions import (
    battery_low,
    folder_bytes,
    out_bytes,
    require_family,
    require_packages,
    require_room,
    require_tunable,
    tuned_bytes,
)
from draftlight.forge.consent import require_consent
from draftlight.forge.lock import only_run
from draftlight.forge.recipe import Recipe, read_recipe
from draftlight.forge.reports import Failed, Forged, Outlook, Report, StageBegun, Tuned, from_line
from draftlight.forge.request import ForgeRequest, as_argument, note, unfinished
from draftlight.forge.run_folder import RunFolder
from draftlight.forge.tuned_files import forget_remains
from draftlight.library.gguf import read_header

_log = logging.getLogger("draftlight.forge.client")

WORKER_COMMAND = (sys.executable, "-P", "-m", "draftlight.forge.worker")
SAVING_SECONDS = 20.0  # that a run has for saving what it has when it is stopped
_ENDING_SECONDS = 5.0  # that it has for ending after its last word
_LOWER_PRIORITY = 10  # of a nice value: the chat and everything else come first
_GIGABYTE = str(2**30)
_ENVIRONMENT = {
    "OMP_WAIT_POLICY": "PASSIVE",  # threads that wait give their core to other programs
    "TOKENIZERS_PARALLELISM": "false",
    "MALLOC_MMAP_THRESHOLD_": _GIGABYTE,  # memory once had is used again: else it goes into page faults
    "MALLOC_TRIM_THRESHOLD_": _GIGABYTE,
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}


def discard(request: ForgeRequest) -> None:
    """Delete what an earlier run has left, so that the next one begins anew. Raises UserError where one is at work."""
    with only_run(request.folder):
        RunFolder(request.folder).delete()


class Control:
    """Pauses a run and lets it go on, from any thread, also before the run has begun."""

    def __init__(self) -> None:
        """Begin running."""
        self._lock = threading.Lock()
        self._paused = False
        self._child: Child | None = None

    @property
    def paused(self) -> bool:
        """Whether the run is to pause."""
        with self._lock:
            return self._paused

    def pause(self) -> None:
        """Let the run pause: it finishes the step that it is in, a second or two, and then takes no processor."""
        self._set(paused=True)

    def go_on(self) -> None:
        """Let the run go on."""
        self._set(paused=False)

    def attach(self, child: Child | None) -> None:
        """Take over the run's child, None at its end; what was asked for before is told to it."""
        with self._lock:
            self._child = child
            if child is not None and self._paused:
                child.tell("pause")

    def _set(self, *, paused: bool) -> None:
        with self._lock:
            if self._child is not None and paused is not self._paused:
                self._child.tell("pause" if paused else "go on")
            self._paused = paused


class ForgeFailed(UserError):
    """A run that ended without a draft model. `resumable`: what it had done is kept, another run can go on from it."""

    def __init__(self, sentence: str, remedy: str = "", *, resumable: bool = False) -> None:
        """Keep the three apart."""
        super().__init__(sentence, remedy)
        self.resumable = resumable


class ForgeBroken(Exception):
    """The run's process ended with an exception of Python's or an unknown status: a bug, whose traceback is a note."""


def forge(
    request: ForgeRequest,
    cancel: CancelToken,
    control: Control,
    command: Sequence[str] = WORKER_COMMAND,
    low_battery: Callable[[], bool] = battery_low,
) -> Generator[Report, None, None]:
    """Make or tune a draft model in a child process (`command` plus the request); yield what it reports, its end last.

    It goes on from what lies in the request's folder, with the wishes that run was begun with, unless it has ended
    well. After a cancel it saves first, which takes a second or two and at most 20, and ends without that unless it was
    just done. Closing the iterator ends the child at once. Of a run that tunes nothing stays but the tuned draft model.

    Raises UserError: before anything is started where something is missing or another run is at work in that folder,
    later as ForgeFailed. Raises ForgeBroken for a bug of the child's.
    """
    if request.tune:
        forget_remains()
    with only_run(request.folder) as lock:
        if request.tune or RunFolder(request.folder).done.exists():
            RunFolder(request.folder).delete()
        is_whole = not (request.only_outlook or request.tune)
        if is_whole:
            request = unfinished(request) or request
        _require(request, low_battery)
        if cancel.cancelled:
            return
        if is_whole:
            note(request)
        try:
            with running(
                [*command, as_argument(request)],
                "forge",
                listens=True,
                environment={**os.environ, **_ENVIRONMENT},
                kept_open=[lock],  # so it is held as long as the child lives, even if this process is killed
            ) as child:
                yield from _Run(request, child).reports(cancel, control)
        except NotStarted as error:
            raise ForgeFailed(
                f"The forge's own process could not be started: {error}.", "Close other programs and try again."
            ) from error
        finally:
            with contextlib.suppress(OSError):  # of a run that was killed while it wrote; it writes it anew
                request.out.with_name(f"{request.out.name}.part").unlink()
            if request.tune:
                RunFolder(request.folder).delete()


def _require(request: ForgeRequest, low_battery: Callable[[], bool]) -> None:
    """Check what can be known before anything is started. Raises UserError."""
    header = read_header(request.target)
    tuned = None if request.tune is None else read_header(request.tune)
    if tuned is None:
        require_family(header)
    else:
        require_consent()
        require_tunable(header, tuned)
    require_packages()
    if low_battery():
        raise UserError("The battery is nearly empty.", "Plug the machine in: making a draft model takes long.")
    recipe = _recipe(request)
    if tuned is not None:
        require_room({request.folder: tuned_bytes(tuned), request.out.parent: tuned_bytes(tuned)})
    elif not request.only_outlook:
        kept = sum(file.stat().st_size for file in request.folder.rglob("*") if file.is_file())
        needed = max(0, folder_bytes(header, request.minutes, recipe) - kept)
        require_room({request.folder: needed, request.out.parent: out_bytes(header)})
    paths.make_folder(request.folder)
    paths.make_folder(request.out.parent)


def _recipe(request: ForgeRequest) -> Recipe | None:
    """Return what decides instead of minutes and size: the run's own recipe, once it has a plan. Raises UserError."""
    if request.recipe is None:
        return None
    plan = None if request.only_outlook else RunFolder(request.folder).plan()
    return read_recipe(request.recipe) if plan is None else plan.recipe


class _Run:
    """One child, from its start to its end: what it has reported, and what that and its status come to."""

    def __init__(self, request: ForgeRequest, child: Child) -> None:
        self._request = request
        self._child = child
        self._doing = ""  # the stage it is in, in its own words
        self._done = False
        self._killed = False

    def reports(self, cancel: CancelToken, control: Control) -> Iterator[Report]:
        """Yield its reports until it has ended, then judge how. Raises ForgeFailed, ForgeBroken."""
        _give_way(self._child)
        control.attach(self._child)
        try:
            for report in self._heard(cancel):
                if isinstance(report, Failed):
                    self._child.wait(_ENDING_SECONDS)
                    resumable = report.resumable and unfinished(self._request) is not None
                    raise ForgeFailed(report.sentence, report.remedy, resumable=resumable)
                if isinstance(report, StageBegun):
                    self._doing = report.sentence
                self._done |= isinstance(report, Outlook if self._request.only_outlook else Forged | Tuned)
                yield report
        finally:
            control.attach(None)
        status = self._child.wait(_ENDING_SECONDS)
        if self._killed or (cancel.cancelled and status is None):
            return
        if status != 0 or not (self._done or cancel.cancelled):
            self._raise(status)

    def _heard(self, cancel: CancelToken) -> Iterator[Report]:
        """Yield what it says; tell it to stop after a cancel, and kill it where it does not."""
        deadline: float | None = None
        for line in self._child.lines():
            if cancel.cancelled and deadline is None:
                self._child.tell("stop")
                deadline = time.monotonic() + SAVING_SECONDS
            if deadline is not None and time.monotonic() >= deadline:
                _log.warning("the forge was killed, because it had not stopped after %.0f s", SAVING_SECONDS)
                self._killed = True
                self._child.kill()
                return
            report = _report(line)
            if report is not None:
                yield report

    def _raise(self, status: int | None) -> None:
        """Say why there is no draft model. Raises ForgeFailed, ForgeBroken."""
        doing_what = "Making" if self._request.tune is None else "Tuning"
        what = f"{doing_what} the draft model of {self._request.target.name}"
        doing = f" ({self._doing})" if self._doing else ""
        how = Ending.BY_ITSELF if status is None else ending(status)
        if status is not None and how is not Ending.BY_ITSELF:
            happened, remedy = {
                Ending.KILLED: (
                    "was ended by the system, probably because memory ran out",
                    "Close other programs and try again, or choose a smaller target.",
                ),
                Ending.CRASHED: (
                    f"crashed with {ending_name(status)}",
                    "Try again; if it crashes at the same place, choose another target.",
                ),
                Ending.STOPPED: (f"was ended from outside with {ending_name(status)}", "Try again."),
            }[how]
            raise ForgeFailed(f"{what} {happened}{doing}.", remedy, resumable=unfinished(self._request) is not None)
        self._child.kill()
        errors = self._child.errors()
        _log.error("the forge ended with status %s%s:\n%s", status, doing, errors)
        broken = ForgeBroken(f"the forge ended with status {status}{doing}")
        broken.add_note(errors)
        raise broken


def _report(line: bytes | None) -> Report | None:
    """Return the report of a line; None for one that a crash cut short, and for what libraries print."""
    if line is None or not line.endswith(b"\n"):
        return None
    try:
        is_report = "event" in json.loads(line)
    except (ValueError, TypeError):
        is_report = False
    if not is_report:
        _log.info("the forge printed: %s", line.decode("utf-8", "replace").rstrip())
        return None
    return from_line(line.decode())


def _give_way(child: Child) -> None:
    """Let everything else on this machine come first."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(child.pid)
        if sys.platform == "win32":
            process.nice(psutil.BELOW_NORMAL_PRIORITY_CLASS)
        else:
            process.nice(max(_LOWER_PRIORITY, process.nice()))
