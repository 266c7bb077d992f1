"""One message from the person to the answer on disk. Knows prompts, the engine's events and the store; no llama.cpp, no Qt.

The engine thread iterates these generators; every value they yield is frozen.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from draftlight.chat.prompt import ChatVocabulary
from draftlight.engine.cancel import CancelToken
from draftlight.engine.decoding import Mode, SpeculativeDecoder
from draftlight.engine.events import Event, ModelLoading
from draftlight.engine.sampling import SamplingParams
from draftlight.history.store import HistoryStore
from draftlight.settings import PairSettings


class LoadedPair(Protocol):
    """What a loader hands over: a ready decoder and the target's vocabulary. Made by llama.loader, or by a test."""

    @property
    def settings(self) -> PairSettings: ...
    @property
    def decoder(self) -> SpeculativeDecoder: ...
    @property
    def vocabulary(self) -> ChatVocabulary: ...
    @property
    def notices(self) -> tuple[str, ...]:
        """Sentences the person should see: a fallback that was taken, a draft that cannot serve and why."""
        ...
    def close(self) -> None:
        """Free both models."""
        ...


Loader: TypeAlias = Callable[[PairSettings, CancelToken], Iterator["ModelLoading | LoadedPair"]]
"""Yields ModelLoading steps and, last, the LoadedPair. Raises UserError. Supplied by app.py (llama.loader.load)."""


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """The person's choices for one answer. `seed` None draws a fresh one; it is stored with the answer."""

    sampling: SamplingParams = field(default_factory=SamplingParams)
    draft_length: int | None = 3
    seed: int | None = None
    max_new_tokens: int = 1024
    mode: Mode = Mode.FAST


@dataclass(frozen=True, slots=True)
class PairReady:
    """The models are loaded; the conversation can go on."""

    settings: PairSettings
    n_ctx: int
    notices: tuple[str, ...]
    event: Literal["ready"] = "ready"


@dataclass(frozen=True, slots=True)
class MessageSaved:
    """A message is on disk, whole or up to now."""

    conversation_id: int
    message_id: int
    role: str
    status: str
    event: Literal["saved"] = "saved"


@dataclass(frozen=True, slots=True)
class TurnsDropped:
    """The history did not fit: the model does not see its `n_turns` oldest turns."""

    n_turns: int
    event: Literal["dropped"] = "dropped"


@dataclass(frozen=True, slots=True)
class SaveFailed:
    """The answer goes on, but the last save did not work; the sentence says why."""

    sentence: str
    event: Literal["save_failed"] = "save_failed"


ChatEvent: TypeAlias = Event | ModelLoading | PairReady | MessageSaved | TurnsDropped | SaveFailed


class ChatService:
    """Loads pairs, answers messages, saves them. One thread at a time uses it: the engine thread."""

    def __init__(self, open_store: Callable[[], HistoryStore], load: Loader) -> None: ...
    def load(self, settings: PairSettings, cancel: CancelToken) -> Iterator[ChatEvent]: ...
    def unload(self) -> None: ...
    def send(self, conversation_id: int, text: str, options: GenerationOptions, cancel: CancelToken) -> Iterator[ChatEvent]: ...
    def regenerate(self, message_id: int, options: GenerationOptions, cancel: CancelToken) -> Iterator[ChatEvent]: ...
