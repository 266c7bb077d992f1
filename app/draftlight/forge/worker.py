"""The forge's own process: `python -m draftlight.forge.worker REQUEST`. Reports are lines of JSON on its output.

On its input it is told "pause", "go on" and "stop"; where that input ends the program that started it is gone, and it
stops too. What is done by then is kept.
"""

import errno
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence

from draftlight.engine.cancel import CancelToken
from draftlight.errors import UserError
from draftlight.forge.conditions import battery_low
from draftlight.forge.reports import Failed, Held, Report, as_line
from draftlight.forge.request import ForgeRequest, from_argument

FAILED = 3  # exit status after a Failed report
_BATTERY_SECONDS = 60.0
_OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "not enough memory")


class Switch:
    """Whether the run may go on: set by one thread, asked by another."""

    def __init__(self, tell: Callable[[Report], None]) -> None:
        """Start running. A wait and its end are told with `tell`."""
        self.cancel = CancelToken()
        self._tell = tell
        self._running = threading.Event()
        self._running.set()
        self._looked = time.monotonic()
        self._waited = 0.0

    def obey(self, word: str) -> None:
        """Do what a line of the input says; any other line is not for us."""
        if word == "pause" and not self.cancel.cancelled:
            self._running.clear()
        elif word == "go on":
            self._running.set()
        elif word == "stop":
            self.cancel.cancel()
            self._running.set()

    def go_on(self) -> bool:
        """Wait while the run is paused; return whether it goes on. Raises UserError where the battery runs low."""
        if not self._running.is_set():
            began = time.monotonic()
            self._tell(Held(waiting=True))
            self._running.wait()
            self._waited += time.monotonic() - began
            self._tell(Held(waiting=False))
        if time.monotonic() - self._looked > _BATTERY_SECONDS:
            self._looked = time.monotonic()
            if battery_low():
                raise UserError("The battery is low.", "Plug the computer in, then go on with the run.")
        return not self.cancel.cancelled

    def clock(self) -> float:
        """Return seconds that rise while the run is not paused."""
        return time.monotonic() - self._waited


def main(argv: Sequence[str]) -> int:
    """Run, and return the exit status: 0, also where it was stopped, or 3 after a Failed report."""
    request = from_argument(argv[0])
    again = "go on with the run" if request.tune is None else "try again"
    switch = Switch(_tell)
    threading.Thread(target=_listen, args=(switch,), daemon=True, name="listen").start()
    try:
        _run(request, switch)
    except UserError as error:
        _tell(Failed(error.sentence, error.remedy, resumable=True))
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        _tell(Failed("The disk is full.", f"Make room on it, then {again}.", resumable=True))
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not any(words in str(error).lower() for words in _OUT_OF_MEMORY):
            raise
        _tell(Failed("Memory ran out.", f"Close other programs, then {again}.", resumable=True))
    else:
        return 0
    return FAILED


def _run(request: ForgeRequest, switch: Switch) -> None:
    from draftlight.forge import pipeline, tuning  # noqa: PLC0415 - torch takes seconds, and a stop may come before
    from draftlight.forge.workshop import Stopped, Workshop  # noqa: PLC0415 - as above
    from draftlight.llama.backend import LoadCancelled  # noqa: PLC0415 - as above

    run = pipeline.run if request.tune is None else tuning.run
    try:
        run(Workshop(request, _tell, switch.go_on, switch.cancel, switch.clock))
    except (Stopped, LoadCancelled):
        return


def _listen(switch: Switch) -> None:
    """Pass on what the input says, until it ends."""
    for line in sys.stdin:
        switch.obey(line.strip())
    switch.obey("stop")


def _tell(report: Report) -> None:
    """Write a report. Where nobody reads any more the run stops as its input ends."""
    try:
        sys.stdout.write(as_line(report) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
