"""Which process streams an answer, and whether it still lives.

A process id alone is used again; together with its start time it is not.
"""

import functools
import os

import psutil

_CLOCK_STEP = 1.0  # seconds: the start time is computed from the clock, which may be set while we run


def current_writer() -> str:
    """Return this process as "pid:start time"."""
    return _writer(os.getpid())


def is_alive(writer: str) -> bool:
    """Tell whether the process that wrote `writer` still runs."""
    if writer == current_writer():
        return True
    pid, _, started = writer.partition(":")
    try:
        return abs(psutil.Process(int(pid)).create_time() - float(started)) < _CLOCK_STEP
    except (psutil.Error, ValueError):  # gone, or not ours to look at, or no writer at all
        return False


@functools.cache
def _writer(pid: int) -> str:
    return f"{pid}:{psutil.Process(pid).create_time():.2f}"
