"""A chat service with a scripted engine: real prompts and a real database, no model.

Run as a script with a database's path, this file answers one message and then waits to be killed.
"""

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from draftlight.chat.service import ChatEvent, ChatService, GenerationOptions
from draftlight.chat.trace import Trace
from draftlight.engine.cancel import CancelToken
from draftlight.engine.decoding import GenerationRequest, SpeculativeDecoder
from draftlight.engine.events import (
    Event,
    GenerationFinished,
    ModelLoading,
    PromptEvaluated,
    RoundVerified,
    StopReason,
    TokenDrafted,
    TokenFate,
    TokenReport,
)
from draftlight.engine.metrics import SpeculationStats
from draftlight.history.records import Message
from draftlight.history.store import HistoryStore
from draftlight.llama.threads import ThreadState
from draftlight.settings import PairSettings

PAIR = PairSettings(Path("/models/target.gguf"), Path("/models/draft.gguf"))
CONTROL = {"<|im_start|>": 0x110000, "<|im_end|>": 0x110001}
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
Step: TypeAlias = Event | Exception | Callable[[], object]


@dataclass
class Vocabulary:
    """One token a character."""

    control_tokens: Mapping[str, int] = field(default_factory=lambda: CONTROL)
    add_bos: bool = False
    bos: int | None = None
    bos_text: str = ""
    eos_text: str = "<|im_end|>"
    chat_template: str | None = CHATML

    def encode(self, text: str) -> list[int]:
        return [ord(character) for character in text]


class ScriptedDecoder(SpeculativeDecoder):
    """Reports what it is told, raises what it is told, calls what it is told; keeps the requests."""

    def __init__(self, steps: Iterable[Step], n_ctx: int = 2000) -> None:
        self.steps = list(steps)
        self.requests: list[GenerationRequest] = []
        self._n_ctx = n_ctx
        self.facts = None

    @property
    def n_ctx(self) -> int:
        return self._n_ctx

    def generate(self, request: GenerationRequest, cancel: CancelToken) -> Iterator[Event]:  # noqa: ARG002 - the script ends itself
        self.requests.append(request)
        for step in self.steps:
            if isinstance(step, Exception):
                raise step
            if callable(step):
                step()
            else:
                yield step

    def prompt(self) -> str:
        """The last request's prompt as text."""
        names = {token: name for name, token in CONTROL.items()}
        return "".join(names.get(token) or chr(token) for token in self.requests[-1].prompt)


@dataclass
class Pair:
    decoder: SpeculativeDecoder
    settings: PairSettings = PAIR
    vocabulary: Vocabulary = field(default_factory=Vocabulary)
    notices: tuple[str, ...] = ()
    thread_state: ThreadState = field(default_factory=lambda: ThreadState(2, 2))
    closed: bool = False

    def close(self) -> None:
        self.closed = True


def token(text: str, fate: TokenFate) -> TokenReport:
    return TokenReport(len(text), text, fate)


def round_of(number: int, text: str, total: int) -> RoundVerified:
    """A round that accepts nothing, rejects " no" and commits `text`."""
    return RoundVerified(
        number, number, (token(" no", TokenFate.REJECTED),), token(text, TokenFate.CORRECTION), total, 1, 2, 0.1
    )


def answer(*words: str, reason: StopReason = StopReason.END_TOKEN) -> list[Event]:
    """The events of an answer that says `words`, a round each."""
    events: list[Event] = [PromptEvaluated(9, 9, 0, 0.1)]
    text = ""
    for number, word in enumerate(words):
        text += word
        events.append(TokenDrafted(number, 0, token(" no", TokenFate.PENDING)))
        events.append(round_of(number, word, len(text)))
    stats = SpeculationStats(n_rounds=len(words), n_committed=len(words))
    return [*events, GenerationFinished(reason, tuple(map(len, words)), text, stats)]


class Chat:
    """A service with one loaded, scripted pair, and a store of the test's own to look at the disk."""

    def __init__(self, path: Path, step_seconds: float = 0.0) -> None:
        self.path = path
        self.opened: list[HistoryStore] = []
        ticks = itertools.count()
        self.service = ChatService(self.open_store, lambda *_: iter(self.pairs), lambda: next(ticks) * step_seconds)
        self.pairs: list[ModelLoading | Pair] = []
        self.store = HistoryStore.open(path)
        self.conversation = self.store.create_conversation().id

    def open_store(self) -> HistoryStore:
        self.opened.append(HistoryStore.open(self.path))
        return self.opened[-1]

    def script(self, *steps: Step, n_ctx: int = 2000) -> ScriptedDecoder:
        decoder = ScriptedDecoder(steps, n_ctx)
        self.pairs = [Pair(decoder)]
        list(self.service.load(PAIR, CancelToken()))
        return decoder

    def send(self, text: str = "Why?", options: GenerationOptions | None = None) -> Iterator[ChatEvent]:
        return self.service.send(self.conversation, text, options or GenerationOptions(), CancelToken())

    def regenerate(self, message_id: int, options: GenerationOptions | None = None) -> Iterator[ChatEvent]:
        return self.service.regenerate(message_id, options or GenerationOptions(), CancelToken())

    def messages(self) -> tuple[Message, ...]:
        return self.store.messages(self.conversation)

    def last(self) -> Message:
        return self.messages()[-1]

    def trace(self) -> Trace:
        return Trace.replay(self.store.rounds(self.last().id))


def answer_until_killed(path: Path) -> None:
    """Answer "Half", say so, then wait for ever in the middle of the next token."""
    chat = Chat(path, step_seconds=1.0)

    def wait() -> None:
        sys.stdout.write("saved\n")
        sys.stdout.flush()
        sys.stdin.read()

    chat.script(*answer("Ha", "lf", " never")[:5], wait)
    list(chat.send("Why?"))


if __name__ == "__main__":
    answer_until_killed(Path(sys.argv[1]))
