"""One run at a time in a run's folder, by a lock of the operating system's, which no crash leaves behind."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from draftlight import paths
from draftlight.errors import UserError


class RunAtWork(UserError):
    """Another process, or thread, has the run's folder."""


@contextmanager
def only_run(folder: Path) -> Iterator[int]:
    """Hold the lock of a run's folder, which the system lets go of with the processes that have it; yield its number.

    It lies beside the folder, so that the folder can be deleted. Raises RunAtWork where another run has it, UserError.
    """
    file = paths.make_folder(folder.parent) / f"{folder.name}.lock"
    try:
        number = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}.", "Allow writing there.") from error
    try:
        if not _locked(number):
            raise RunAtWork(
                "A draft model is being made for this target already.", "Wait for that run to end, or stop it first."
            )
        yield number
    finally:
        os.close(number)


def _locked(number: int) -> bool:
    """Lock an open file, without waiting; False where another process or thread has it."""
    try:
        if sys.platform == "win32":
            import msvcrt  # noqa: PLC0415 - Windows only

            msvcrt.locking(number, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl  # noqa: PLC0415 - not on Windows

            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
