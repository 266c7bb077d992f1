"""What the terminal needs of the rest: the parts that app.py builds and hands over."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from draftlight.chat.service import Loader
from draftlight.engine.cancel import CancelToken
from draftlight.history.store import HistoryStore
from draftlight.settings import PairSettings


@dataclass(frozen=True, slots=True)
class Parts:
    """The loader, the chats on disk, the probe, and what llama.cpp was built as.

    `probe` tries a pair out and returns a frozen result; `library` tells the version and the processor features.
    """

    load: Loader
    open_store: Callable[[], HistoryStore]
    probe: Callable[[PairSettings, CancelToken], Any]
    library: Callable[[], str]
