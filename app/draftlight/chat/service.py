"""One message from the person to the answer on disk.

Knows prompts, the engine's events and the store; no llama.cpp, no Qt.

The engine thread iterates these generators; every value they yield is frozen.
"""

import secrets
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from json import dumps
from typing import Literal, Protocol, TypeAlias

from draftlight.chat.conversation import prompt_of
from draftlight.chat.prompt import ChatVocabulary, clean_text
from draftlight.chat.trace import Trace, dump_event, dump_header, dump_stats
from draftlight.engine.cancel import CancelToken
from draftlight.engine.decoding import GenerationRequest, Mode, SpeculativeDecoder
from draftlight.engine.events import Event, GenerationFinished, ModelLoading, RoundVerified, StopReason
from draftlight.engine.sampling import SamplingParams
from draftlight.errors import UserError
from draftlight.history.records import AnswerSettings, Message, Role, Status
from draftlight.history.store import HistoryStore
from draftlight.llama.threads import ThreadState
from draftlight.settings import NGRAM, NO_DRAFT, PairSettings

AND_NGRAM = f" + {NGRAM}"
_SAVE_SECONDS = 1.0
_EARLIER_TOKENS = 4096  # of texts to draft from beside the prompt: a hundredth of a second to index
_LONGEST_TOKEN = 16  # characters; few are longer, and encoding a megabyte for the first of them would take a second
_SEED_BITS = 31  # fits every spin box; a typed seed may be longer
_LARGEST_SEED = 2**63 - 1


class LoadedPair(Protocol):
    """What a loader hands over: a ready decoder and the target's vocabulary. Made by llama.loader, or by a test."""

    @property
    def settings(self) -> PairSettings:
        """What is loaded."""
        ...

    @property
    def decoder(self) -> SpeculativeDecoder:
        """Both models, ready."""
        ...

    @property
    def vocabulary(self) -> ChatVocabulary:
        """The target's."""
        ...

    @property
    def notices(self) -> tuple[str, ...]:
        """Sentences the person should see: a fallback that was taken, a draft that cannot serve and why."""
        ...

    @property
    def thread_state(self) -> ThreadState:
        """How many threads compute now, and why not all."""
        ...

    def close(self) -> None:
        """Free both models."""
        ...


Loader: TypeAlias = Callable[[PairSettings, CancelToken], Iterator["ModelLoading | LoadedPair"]]
"""Yields ModelLoading steps and, last, the LoadedPair. Raises UserError. Supplied by app.py (llama.loader.load)."""


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """The person's choices for one answer, as GenerationRequest has them. `seed` None draws a fresh one."""

    sampling: SamplingParams = field(default_factory=SamplingParams)
    draft_length: int | None = None
    seed: int | None = None
    max_new_tokens: int = 1024
    mode: Mode | None = None


@dataclass(frozen=True, slots=True)
class PairReady:
    """The models are loaded; the conversation can go on."""

    settings: PairSettings
    n_ctx: int
    best_mode: Mode
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


@dataclass(frozen=True, slots=True)
class ThreadsChanged:
    """From now on so many threads compute: other programs want the processor, or no longer do."""

    state: ThreadState
    event: Literal["threads"] = "threads"


ChatEvent: TypeAlias = Event | ModelLoading | PairReady | MessageSaved | TurnsDropped | SaveFailed | ThreadsChanged


class ChatService:
    """Loads pairs, answers messages, saves them. One thread at a time uses it: the engine thread."""

    def __init__(
        self, open_store: Callable[[], HistoryStore], load: Loader, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Start without models. `open_store` is called on the engine thread; `clock` counts seconds."""
        self._open_store = open_store
        self._load = load
        self._clock = clock
        self._pair: LoadedPair | None = None

    def load(self, settings: PairSettings, cancel: CancelToken) -> Iterator[ChatEvent]:
        """Free the pair that is loaded, then load another. Without PairReady at the end nothing is loaded."""
        self.unload()
        try:
            for step in self._load(settings, cancel):
                if isinstance(step, ModelLoading):
                    yield step
                else:
                    self._pair = step
        except BaseException:
            self.unload()
            raise
        if self._pair is not None:
            decoder = self._pair.decoder
            yield PairReady(self._pair.settings, decoder.n_ctx, decoder.best_mode, self._pair.notices)

    def unload(self) -> None:
        """Free both models."""
        pair, self._pair = self._pair, None
        if pair is not None:
            pair.close()

    def send(
        self, conversation_id: int, text: str, options: GenerationOptions, cancel: CancelToken
    ) -> Iterator[ChatEvent]:
        """Save the person's message, then answer it. Raises UserError; the message stays on disk all the same."""
        text = clean_text(text)
        if not text.strip():
            raise UserError("The message is empty.", "Write something first.")
        with self._open_store() as store:
            message = store.add_message(conversation_id, Role.USER, text)
            yield _saved(message)
            yield from self._answer(store, message, options, cancel)

    def regenerate(self, message_id: int, options: GenerationOptions, cancel: CancelToken) -> Iterator[ChatEvent]:
        """Answer again: the new answer is a branch beside the old one. `message_id`: an answer, or what it answers."""
        with self._open_store() as store:
            message = store.message(message_id)
            if message.role is Role.ASSISTANT:
                if message.parent_id is None:
                    raise UserError("This answer has no question.", "Send a message instead.")
                message = store.message(message.parent_id)
            yield from self._answer(store, message, options, cancel)

    def _answer(
        self, store: HistoryStore, question: Message, options: GenerationOptions, cancel: CancelToken
    ) -> Iterator[ChatEvent]:
        """Generate and save one answer to a message that is on disk."""
        if self._pair is None:
            raise UserError("No model is loaded.", "Choose a target model, then ask for the answer again.")
        decoder, vocabulary = self._pair.decoder, self._pair.vocabulary
        system_prompt = store.conversation(question.conversation_id).system_prompt
        reserve = min(options.max_new_tokens, decoder.n_ctx // 4)
        prompt = prompt_of(vocabulary, system_prompt, store.path_to(question.id), decoder.n_ctx, reserve)
        if prompt.n_dropped_turns:
            yield TurnsDropped(prompt.n_dropped_turns)
        unread = [*(turn.text for turn in prompt.dropped), *(answer.text for answer in store.answers_to(question.id))]
        request = GenerationRequest(
            prompt=tuple(prompt.tokens),
            sampling=options.sampling,
            seed=_seed(options),
            draft_length=options.draft_length,
            max_new_tokens=options.max_new_tokens,
            mode=options.mode,
            earlier=_earlier(vocabulary, unread),
        )
        made = _made_with(self._pair.settings, request, decoder.mode_for(request))
        answer = store.add_message(
            question.conversation_id, Role.ASSISTANT, "", parent_id=question.id, status=Status.STREAMING, settings=made
        )
        recorded = _Recording(store, answer, self._clock).of(decoder.generate(request, cancel))
        yield from _telling_threads(self._pair, recorded)


class _Recording:
    """Writes an answer down while it comes: about once a second, and at the end, however it ends."""

    def __init__(self, store: HistoryStore, answer: Message, clock: Callable[[], float]) -> None:
        self._store = store
        self._answer = answer
        self._clock = clock
        self._saved_at = clock()
        self._trace = Trace()
        self._unsaved = [dump_header()]
        self._failing = False

    def of(self, events: Iterator[Event]) -> Generator[ChatEvent, None, None]:
        """Pass the events on and save them. What `events` raises passes through once the answer is marked."""
        try:
            yield self._report(Status.STREAMING)
            for event in events:
                self._note(event)
                yield event
                yield from self._save_if_due()
        except (GeneratorExit, KeyboardInterrupt) as gone:  # the listener has gone: a stop, unless the end was near
            self._save_and_keep(gone, *self._ending())
            raise
        except UserError as error:
            self._save_and_keep(error, Status.FAILED, error_sentence=str(error))
            yield self._report(Status.FAILED)
            raise
        except Exception as bug:
            self._save_and_keep(bug, Status.FAILED, error_sentence="A fault in the program ended this answer.")
            raise
        status, reason = self._ending()
        self._save(status, stop_reason=reason)
        yield self._report(status)

    def _ending(self) -> tuple[Status, StopReason]:
        """How the answer ended, from its last event; an answer without one was stopped."""
        reason = StopReason.CANCELLED if self._trace.finished is None else self._trace.finished.reason
        return (Status.STOPPED if reason is StopReason.CANCELLED else Status.COMPLETE), reason

    def _note(self, event: Event) -> None:
        """Fold an event in; keep what the trace on disk needs: the prompt's last figures, rounds, the end."""
        first_round = isinstance(event, RoundVerified) and not self._trace.rounds
        self._trace.apply(event)
        if first_round and self._trace.prompt is not None:
            self._unsaved.append(dump_event(self._trace.prompt))
        if isinstance(event, RoundVerified | GenerationFinished):
            self._unsaved.append(dump_event(event))

    def _save_if_due(self) -> Iterator[ChatEvent]:
        """Save once a second. A failure is told once, tried again at each turn, and its end is told too."""
        now = self._clock()
        if now - self._saved_at < _SAVE_SECONDS:
            return
        self._saved_at = now
        try:
            self._save(Status.STREAMING)
        except UserError as error:
            if not self._failing:
                self._failing = True
                yield SaveFailed(str(error))
            return
        if self._failing:
            self._failing = False
            yield self._report(Status.STREAMING)

    def _save(self, status: Status, *, stop_reason: str = "", error: str = "") -> None:
        self._store.update_message(
            self._answer.id,
            text=self._trace.text,
            status=status,
            stop_reason=stop_reason,
            error=error,
            stats=dump_stats(self._trace.stats),
            rounds=self._unsaved,
        )
        self._unsaved.clear()

    def _save_and_keep(
        self, error: BaseException, status: Status, stop_reason: str = "", error_sentence: str = ""
    ) -> None:
        """Save while `error` is on its way up: should saving fail too, the error carries that as a note."""
        try:
            self._save(status, stop_reason=stop_reason, error=error_sentence)
        except UserError as failure:
            error.add_note(str(failure))

    def _report(self, status: Status) -> MessageSaved:
        return replace(_saved(self._answer), status=status)


def _telling_threads(pair: LoadedPair, events: Generator[ChatEvent, None, None]) -> Iterator[ChatEvent]:
    """Pass the events on, and tell when fewer threads compute than could, and when all do again."""
    told = ""
    with closing(events):  # a listener who leaves ends the recording at once, which then saves
        for event in events:
            yield event
            if (state := pair.thread_state).reason != told:
                told = state.reason
                yield ThreadsChanged(state)


def _saved(message: Message) -> MessageSaved:
    return MessageSaved(message.conversation_id, message.id, message.role, message.status)


def _earlier(vocabulary: ChatVocabulary, texts: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Return this conversation's texts that the prompt lacks, oldest first, to draft from; too long, the newest."""
    kept: list[tuple[int, ...]] = []
    room = _EARLIER_TOKENS
    for text in reversed(texts):
        tokens = tuple(vocabulary.encode(text[: room * _LONGEST_TOKEN])[:room])
        if tokens:
            kept.append(tokens)
            room -= len(tokens)
        if not room:
            break
    return tuple(reversed(kept))


def _seed(options: GenerationOptions) -> int:
    if options.seed is None:
        return secrets.randbits(_SEED_BITS)
    if not 0 <= options.seed <= _LARGEST_SEED:
        raise UserError(f"The seed {options.seed} is out of range.", f"Choose one from 0 to {_LARGEST_SEED}.")
    return options.seed


def drafted_by(pair: PairSettings, draft_length: int | None) -> str:
    """Return what may draft: a file's name, NGRAM, NO_DRAFT; under AUTO (None) a file's name and AND_NGRAM as well."""
    if pair.draft is None:
        return NGRAM if pair.ngram else NO_DRAFT
    return f"{pair.draft.name}{AND_NGRAM}" if pair.ngram and draft_length is None else pair.draft.name


def _made_with(pair: PairSettings, request: GenerationRequest, mode: Mode) -> AnswerSettings:
    """What the answer's row remembers, so that it can be made again."""
    return AnswerSettings(
        seed=request.seed,
        target=pair.target.name,
        draft=drafted_by(pair, request.draft_length),
        draft_length=request.draft_length,
        temperature=request.sampling.temperature,
        mode=mode,
        sampling=dumps(asdict(request.sampling)),
    )
