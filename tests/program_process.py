"""Draftlight as a process of its own, with folders of its own."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

DEADLINE_S = 60.0
ONE_THREAD = ("--threads", "1")  # two wait for each other, which takes long where other programs are busy
_Value = TypeVar("_Value")


def wait_until(condition: Callable[[], _Value | None], what: str, seconds: float = DEADLINE_S) -> _Value:
    """Return the condition's first true value; fail after `seconds`, naming what was waited for."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    pytest.fail(f"waited {seconds:.0f} s in vain for {what}")


@dataclass
class Program:
    """Starts Draftlight with its folders below `home`; ends whatever still runs when the test is over."""

    home: Path
    environment: dict[str, str]
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def database(self) -> Path:
        return self.home / "data" / "chats.db"

    def run(
        self, *arguments: str | bytes | Path, text: str = "", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-m", "draftlight", *arguments],
            input=text,
            capture_output=True,
            encoding="utf-8",
            timeout=DEADLINE_S * 2,
            env=self.environment | environment,
            check=False,
        )

    def generate(self, *arguments: str | bytes | Path, text: str = "") -> list[dict[str, Any]]:
        """Run `generate --json` and return its lines."""
        done = self.run("generate", *arguments, *ONE_THREAD, "--json", text=text)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def start(self, *arguments: str | Path, stdout: int | None = None, **environment: str) -> subprocess.Popen[str]:
        """Start a command and let it run; its output goes to a file beside the data, or its stdout elsewhere."""
        output = (self.home / f"output-{len(self.running)}.txt").open("w", encoding="utf-8")
        with output:
            process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-m", "draftlight", *arguments],
                stdin=subprocess.PIPE,
                stdout=output if stdout is None else stdout,
                stderr=output,
                encoding="utf-8",
                env=self.environment | environment,
                start_new_session=True,
            )
        self.running.append(process)
        return process

    def output(self, process: subprocess.Popen[str]) -> str:
        """What a started process has written so far."""
        return (self.home / f"output-{self.running.index(process)}.txt").read_text("utf-8", errors="replace")

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Read from the chats on disk; no rows while there is no database."""
        if not self.database.exists():
            return []
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True, timeout=5)) as connection:
            try:
                return connection.execute(query, values).fetchall()
            except sqlite3.OperationalError:  # it is just being made
                return []

    def leftovers(self, process: subprocess.Popen[str]) -> list[str]:
        """Command lines of what still runs in the session that this process began."""
        alive = []
        for each in psutil.process_iter():
            with suppress(psutil.Error, ProcessLookupError):
                if os.getsid(each.pid) == process.pid and each.status() != psutil.STATUS_ZOMBIE:
                    alive.append(" ".join(each.cmdline()))
        return alive

    def end(self) -> None:
        """Kill what still runs, with its children."""
        for process in self.running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
