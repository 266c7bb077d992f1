"""Cancelling a piece of work from another thread. A new token for each job, so a late stop cannot hit the next one."""

import threading


class CancelToken:
    """A one-way flag: once cancelled, for good."""

    def __init__(self) -> None:
        """Start uncancelled."""
        self._event = threading.Event()

    def cancel(self) -> None:
        """Ask the work to stop before its next forward pass."""
        self._event.set()

    @property
    def cancelled(self) -> bool:
        """Whether cancel() was called."""
        return self._event.is_set()
