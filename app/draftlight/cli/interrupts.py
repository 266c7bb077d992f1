"""Ctrl-C in two steps: the first stops what is running, the second leaves the program."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from draftlight.engine.cancel import CancelToken


@contextmanager
def cancelled_by_ctrl_c(cancel: CancelToken) -> Iterator[None]:
    """Within this block the first Ctrl-C cancels the work; the next one raises KeyboardInterrupt."""

    def on_interrupt(_number: int, _frame: FrameType | None) -> None:
        if cancel.cancelled:
            raise KeyboardInterrupt
        cancel.cancel()

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
