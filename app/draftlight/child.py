"""A child process: a group of its own, pipes that never fill up, how it ended. Knows nothing of what it does."""

import os
import queue
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from enum import Enum, auto

import psutil

POLL_SECONDS = 0.05  # between two looks at whether to go on waiting
_ERROR_LINES = 2000  # kept of what it writes to its standard error
_CRASHES = {
    number
    for name in ("SIGSEGV", "SIGILL", "SIGBUS", "SIGFPE", "SIGABRT", "SIGTRAP")
    if (number := getattr(signal, name, None)) is not None
}
_WINDOWS_ABORT = 3
_WINDOWS_FIRST_FATAL_STATUS = 0xC0000000  # an access violation is 0xC0000005


class NotStarted(Exception):
    """The process could not be started; the argument is why, as the system says it."""


class Ending(Enum):
    """How a process ended, by its exit status."""

    BY_ITSELF = auto()  # with a status of its own, 0 or not
    CRASHED = auto()  # in native code
    KILLED = auto()  # by the system, mostly for want of memory
    STOPPED = auto()  # by another signal from outside


def ending(status: int) -> Ending:
    """Return how a process ended that left this exit status."""
    if -status in _CRASHES or status == _WINDOWS_ABORT or status >= _WINDOWS_FIRST_FATAL_STATUS:
        return Ending.CRASHED
    if -status == getattr(signal, "SIGKILL", None):
        return Ending.KILLED
    return Ending.STOPPED if status < 0 else Ending.BY_ITSELF


def ending_name(status: int) -> str:
    """Return the signal's name behind an exit status, else the status; the real-time signals have none."""
    if status >= 0:
        return f"status {status:#x}"
    return next((each.name for each in signal.Signals if each == -status), f"signal {-status}")


class Child:
    """A running child. Of its standard error only the end is kept."""

    def __init__(self, process: subprocess.Popen[bytes], readers: ThreadPoolExecutor) -> None:
        """Take a process over, and start the threads that read what it writes."""
        self.pid = process.pid
        self._process = process
        self._output, self._error_output = process.stdout, process.stderr
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        readers.submit(self._read_lines)
        self._errors = readers.submit(self._read_errors)

    def lines(self) -> Iterator[bytes | None]:
        """Yield the lines it prints until it closes its output, and None whenever 50 ms have passed without one."""
        while True:
            try:
                line = self._lines.get(timeout=POLL_SECONDS)
            except queue.Empty:
                yield None
                continue
            if line is None:
                return
            yield line

    def tell(self, line: str) -> None:
        """Write a line to its standard input; one that has ended does not hear it."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError, OSError):  # OSError is what Windows makes of a pipe without a reader
                os.write(self._process.stdin.fileno(), f"{line}\n".encode())

    def wait(self, seconds: float) -> int | None:
        """Return its exit status; None where it still runs after `seconds`."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def errors(self) -> str:
        """Return the end of what it wrote to its standard error; it has ended."""
        return self._errors.result().decode("utf-8", "replace")

    def kill(self) -> None:
        """End it at once, and what it has started."""
        if self._process.poll() is not None:
            return
        below: list[psutil.Process] = []
        with suppress(psutil.Error):
            below = psutil.Process(self.pid).children(recursive=True)
        self._process.kill()
        for each in below:
            with suppress(psutil.Error):
                each.kill()

    def _read_lines(self) -> None:
        try:
            for line in self._output or ():
                self._lines.put(line)
        finally:
            self._lines.put(None)

    def _read_errors(self) -> bytes:
        return b"".join(deque(self._error_output or (), maxlen=_ERROR_LINES))


@contextmanager
def running(
    command: Sequence[str],
    name: str,
    *,
    listens: bool = False,
    environment: Mapping[str, str] | None = None,
    kept_open: Sequence[int] = (),
) -> Iterator[Child]:
    """Run a child; whatever happens, it has ended afterwards. Raises NotStarted.

    `name` is that of the reading threads. One that `listens` has a standard input. It inherits the files `kept_open`
    where that is possible (not on Windows).
    """
    try:
        process = _start(command, subprocess.PIPE if listens else subprocess.DEVNULL, environment, kept_open)
    except OSError as error:
        raise NotStarted(error.strerror or str(error)) from error
    with process, ThreadPoolExecutor(2, thread_name_prefix=name) as readers:
        child = Child(process, readers)
        try:
            yield child
        finally:
            child.kill()


def _start(
    command: Sequence[str], stdin: int, environment: Mapping[str, str] | None, kept_open: Sequence[int]
) -> subprocess.Popen[bytes]:
    """Start the child in a process group of its own: a Ctrl-C in the terminal is for the program, not for it."""
    if sys.platform == "win32":
        flags = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW
        return subprocess.Popen(  # noqa: S603 - our own command; the paths are arguments, not shell text
            command,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            creationflags=flags,
        )
    return subprocess.Popen(  # noqa: S603 - as above
        command,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        pass_fds=kept_open,
        process_group=0,
    )
