"""One set-up step: a process whose output goes to a log, with signs of life meanwhile and a remedy when it fails.

Knows nothing of what the steps do. Only the standard library.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, NoReturn, Self

TAIL_LINES = 25
LINE_WIDTH = 300
SAY_AGAIN_S = 30
STEP_OF = re.compile(rb"\[(\d+)/(\d+)\]")
RETRYING = re.compile(rb"Retrying \(Retry\(")

UNREACHABLE = (
    "name resolution",
    "getaddrinfo failed",
    "nodename nor servname",
    "Name or service not known",
    "NewConnectionError",
    "ConnectTimeout",
    "ReadTimeout",
    "Network is unreachable",
    "Connection refused",
    "ProxyError",
    "IncompleteRead",
    "from versions: none",
)
# What a log says -> what happened, what to do. The first that fits is told.
REMEDIES = (
    (
        r"No space left on device|Disk quota exceeded",
        "The disk is full.",
        "Make room on the disk of this folder and of the folder for temporary files, then start again.",
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED|SSLError",
        "The package index could not be trusted: its certificate was refused.",
        "Behind a company proxy, give pip its certificate (pip config set global.cert FILE), then start again.",
    ),
    (
        "|".join(UNREACHABLE),
        "The package index cannot be reached.",
        "Connect this machine to the network, or tell pip of your mirror or proxy (pip config), then start again.",
    ),
    (
        r"Killed signal terminated program|out of memory|virtual memory exhausted|Cannot allocate memory",
        "The compiler ran out of memory.",
        "Close other programs, or compile one file at a time: set CMAKE_BUILD_PARALLEL_LEVEL=1, then start again.",
    ),
    (
        r"No CMAKE_CXX?_COMPILER could be found|is not able to compile a simple test program|cannot execute .?cc1plus",
        "The C++ compiler does not work.",
        "Install a C++ compiler (Debian and Ubuntu: sudo apt-get install g++), then start again.",
    ),
    (
        r"Could not get lock|dpkg was interrupted",
        "Another program is installing system packages.",
        "Wait for it to finish (or run: sudo dpkg --configure -a), then start again.",
    ),
)


class SetupError(Exception):
    """A step that failed for a reason that a person can mend.

    Args:
        sentence: what happened.
        remedy: what to do now.
        log: the step's whole output, if it has one.

    """

    def __init__(self, sentence: str, remedy: str = "", log: Path | None = None) -> None:
        """Keep the parts apart."""
        super().__init__(sentence, remedy, log)
        self.sentence = sentence
        self.remedy = remedy
        self.log = log


def duration(seconds: float) -> str:
    """Write a duration as people say it."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def diagnose(output: str) -> tuple[str, str] | None:
    """Return what happened and what to do, if a failed step's output shows it."""
    for pattern, sentence, remedy in REMEDIES:
        if re.search(pattern, output):
            return sentence, remedy
    return None


def tail(log: Path) -> str:
    """Return the last lines of a log, each cut to a readable width."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 200_000))
        lines = file.read().decode("utf-8", "replace").splitlines()
    return "\n".join(line[:LINE_WIDTH] for line in lines[-TAIL_LINES:])


class Screen:
    """What is said during the set-up: whole lines, and on a terminal one live line below them.

    Args:
        stream: where it is written.

    """

    def __init__(self, stream: IO[str] | None = None) -> None:
        """Look at what kind of screen this is."""
        self.stream = stream or sys.stderr
        self.is_live = self.stream.isatty() and os.environ.get("TERM") != "dumb"
        self._shown = 0
        self._frame = 0
        self._said_at = time.monotonic()

    def say(self, line: str) -> None:
        """Write a line that stays."""
        self._clear()
        print(line, file=self.stream, flush=True)
        self._said_at = time.monotonic()

    def alive(self, line: str) -> None:
        """Show that work goes on: at once on a terminal, now and then elsewhere."""
        if self.is_live:
            self._clear()
            width = shutil.get_terminal_size().columns - 1
            self._frame += 1
            text = f"  {'|/-'[self._frame % 3]} {line}"[:width]
            self.stream.write(text)
            self.stream.flush()
            self._shown = len(text)
        elif time.monotonic() - self._said_at >= SAY_AGAIN_S:
            self.say(f"  ... {line}")

    def _clear(self) -> None:
        if self._shown:
            self.stream.write("\r" + " " * self._shown + "\r")
            self._shown = 0


class Progress:
    """Reads a growing log for signs of progress.

    Args:
        log: the file that the step writes.

    """

    def __init__(self, log: Path) -> None:
        """Start at its beginning."""
        self._file = log.open("rb")
        self._counted = ""
        self._note = ""

    def read(self) -> str:
        """Return the newest `[done/all]` of a compilation and whether the network makes it wait."""
        new = self._file.read()
        counts = STEP_OF.findall(new)
        if counts:
            done, total = counts[-1]
            self._counted = f", {done.decode()} of {total.decode()} files"
            self._note = ""
        if RETRYING.search(new):
            self._note = ", no answer from the package index, trying again"
        return self._counted + self._note

    def close(self) -> None:
        """Close the log."""
        self._file.close()


class StepRunner:
    """Runs steps one after another, each with its own log.

    Args:
        screen: where progress is shown.
        logs: the folder of the logs.
        keep_open: file descriptors that each step's process inherits, so that the set-up's lock lives as long as it.

    """

    def __init__(self, screen: Screen, logs: Path, keep_open: Sequence[int] = ()) -> None:
        """Make the folder."""
        logs.mkdir(parents=True, exist_ok=True)
        self.screen = screen
        self.logs = logs
        self.keep_open = tuple(keep_open)

    def run(self, title: str, name: str, command: Sequence[str], cwd: Path, environ: Mapping[str, str]) -> Path:
        """Run a command to its end and return its log.

        Args:
            title: what is being done, and how long it usually takes.
            name: the log's name.
            command: program and arguments; its input is empty.
            cwd: the folder it runs in.
            environ: its whole environment.

        Raises:
            SetupError: it failed; the sentence and the remedy come from its output where that is clear.

        """
        log = self.logs / f"{name}.log"
        self.screen.say(f"{title} ...")
        started = time.monotonic()
        with log.open("wb") as output:
            process = subprocess.Popen(  # noqa: S603 - commands of our own making
                command,
                cwd=cwd,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=self.keep_open,
                start_new_session=os.name != "nt",  # so that an interrupt ends all that it started
            )
        progress = Progress(log)
        try:
            status = self._wait(process, progress, started)
        finally:
            progress.close()
            stop(process)
        if status:
            happened, remedy = diagnose(log.read_text(encoding="utf-8", errors="replace")) or (
                f"This step failed with status {status}.",
                "Mend what the lines above say, then start again: finished steps are not repeated.",
            )
            raise SetupError(happened, remedy, log)
        self.screen.say(f"  done in {duration(time.monotonic() - started)}")
        return log

    def _wait(self, process: subprocess.Popen[bytes], progress: Progress, started: float) -> int:
        while True:
            try:
                return process.wait(timeout=0.2)
            except subprocess.TimeoutExpired:
                self.screen.alive(duration(time.monotonic() - started) + progress.read())


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process and what it started, first politely; nothing to do if it has ended."""
    if process.poll() is not None:
        return
    if os.name == "nt":
        process.terminate()
    else:
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if os.name != "nt":
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return


class Interrupted(BaseException):
    """Somebody asked the set-up to stop by a signal other than Ctrl-C."""


@contextlib.contextmanager
def stop_on_signals() -> Iterator[None]:
    """Turn a polite request to end into an exception, so that the running step is ended too."""

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        raise Interrupted

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    ours = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]  # under nohup one is ignored
    for number in ours:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


class Lock:
    """At most one set-up in this checkout at a time, across processes; a second one waits and says so.

    Args:
        file: the lock's file; it holds the process number of who has it.
        screen: where waiting is said.

    """

    def __init__(self, file: Path, screen: Screen) -> None:
        """Open the file."""
        file.parent.mkdir(parents=True, exist_ok=True)
        self._stream = file.open("a+", encoding="ascii")
        self.screen = screen

    def fileno(self) -> int:
        """Return the descriptor: who inherits it holds the lock too."""
        return self._stream.fileno()

    def __enter__(self) -> Self:
        """Take the lock; wait as long as another has it."""
        if not self._try():
            self.screen.say(self._holder())
            started = time.monotonic()
            while not self._try():
                time.sleep(0.2)
                self.screen.alive(f"waiting, {duration(time.monotonic() - started)}")
        self._stream.seek(0)
        self._stream.truncate()
        self._stream.write(str(os.getpid()))
        self._stream.flush()
        return self

    def __exit__(self, *_error: object) -> None:
        """Let go; a step's process that is still running keeps it."""
        self._stream.close()

    def _holder(self) -> str:
        self._stream.seek(0)
        holder = self._stream.read().strip()
        if os.name != "nt" and holder.isdigit():
            try:
                os.kill(int(holder), 0)
            except ProcessLookupError:
                return "A set-up was cut off here, and a step of it is still running; waiting for that to end ..."
            except PermissionError:
                pass  # somebody else's, alive
        return f"Another set-up is at work in this folder (process {holder}); waiting for it to end ..."

    def _try(self) -> bool:
        try:
            if sys.platform == "win32":
                import msvcrt  # noqa: PLC0415 - Windows only

                self._stream.seek(1_000_000)  # beyond the text: a locked byte cannot be read
                msvcrt.locking(self.fileno(), msvcrt.LK_NBLCK, 1)
            else:
                import fcntl  # noqa: PLC0415 - not on Windows

                fcntl.flock(self.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True
