"""What the terminal needs of the rest: the parts that app.py builds and hands over."""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

from draftlight.chat.service import Loader
from draftlight.engine.cancel import CancelToken
from draftlight.engine.events import ModelLoading
from draftlight.forge.client import Control
from draftlight.forge.reports import Report
from draftlight.forge.request import ForgeRequest
from draftlight.history.store import HistoryStore
from draftlight.llama.report import Preflight
from draftlight.settings import PairSettings


@dataclass(frozen=True, slots=True)
class Parts:
    """The loader, the chats on disk, the probe, the forge, and what llama.cpp was built as.

    `probe` tries a pair out: it yields its steps and, last, what it found. `forge` makes a draft model and yields what
    it reports. `library` tells the version and the processor features.
    """

    load: Loader
    open_store: Callable[[], HistoryStore]
    probe: Callable[[PairSettings, CancelToken], Iterator[ModelLoading | Preflight]]
    forge: Callable[[ForgeRequest, CancelToken, Control], Generator[Report, None, None]]
    library: Callable[[], str]
