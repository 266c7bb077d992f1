"""A disk that is soon full, for this process alone."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

SMALL_DISK = 100_000  # bytes


@contextmanager
def small_disk() -> Iterator[None]:
    """Let no file of this process grow beyond SMALL_DISK, as a full disk would not; Python ignores the signal."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL_DISK, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
