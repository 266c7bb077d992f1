"""The rules of sending a message: the person's text is on disk first, and nothing that was generated is lost.

Run as a script with a database's path, this file answers one message and then waits to be killed.
"""

import itertools
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import pytest

from draftlight.chat.prompt import PromptTooLong
from draftlight.chat.service import (
    ChatEvent,
    ChatService,
    GenerationOptions,
    MessageSaved,
    PairReady,
    SaveFailed,
    TurnsDropped,
)
from draftlight.chat.trace import Trace, load_stats
from draftlight.engine.cancel import CancelToken
from draftlight.engine.decoding import GenerationRequest, Mode, SpeculativeDecoder
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
from draftlight.engine.sampling import SamplingParams
from draftlight.errors import UserError
from draftlight.history.records import Message, Role, Status
from draftlight.history.store import HistoryStore
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


@pytest.fixture
def chat(tmp_path: Path) -> Iterator[Chat]:
    made = Chat(tmp_path / "chats.db")
    yield made
    made.store.close()


@pytest.fixture
def saving(tmp_path: Path) -> Iterator[Chat]:
    """A chat whose clock makes a save due after each event."""
    made = Chat(tmp_path / "chats.db", step_seconds=1.0)
    yield made
    made.store.close()


# the usual way


def test_a_message_is_saved_then_answered_then_the_answer_is_saved(chat: Chat) -> None:
    events = answer("So", " so.")
    chat.script(*events)
    reported = list(chat.send())
    question, reply = chat.messages()
    assert reported == [
        MessageSaved(chat.conversation, question.id, "user", "complete"),
        MessageSaved(chat.conversation, reply.id, "assistant", "streaming"),
        *events,
        MessageSaved(chat.conversation, reply.id, "assistant", "complete"),
    ]
    assert (question.role, question.text) == (Role.USER, "Why?")
    assert (reply.role, reply.text, reply.status, reply.stop_reason) == ("assistant", "So so.", "complete", "end_token")
    assert reply.parent_id == question.id
    assert load_stats(reply.stats) == SpeculationStats(n_rounds=2, n_committed=2)
    assert chat.store.conversation(chat.conversation).title == "Why?"


def test_the_stored_trace_shows_what_was_seen(chat: Chat) -> None:
    chat.script(*answer("So", " so."))
    seen = Trace()
    for event in chat.send():
        if isinstance(event, PromptEvaluated | TokenDrafted | RoundVerified | GenerationFinished):
            seen.apply(event)
    assert list(chat.trace().spans) == list(seen.spans)
    assert chat.trace().text == seen.text == chat.last().text == "So so."
    assert chat.trace().prompt == seen.prompt
    assert [span.text for span in chat.trace().spans if span.fate is TokenFate.REJECTED] == [" no", " no"]


def test_the_persons_message_is_on_disk_before_the_model_is_called(chat: Chat) -> None:
    on_disk: list[str] = []
    chat.script(lambda: on_disk.extend(message.text for message in chat.messages()), *answer("So."))
    list(chat.send("Why?"))
    assert on_disk == ["Why?", ""]


def test_what_an_answer_was_made_with_is_stored(chat: Chat) -> None:
    decoder = chat.script(*answer("So."))
    options = GenerationOptions(SamplingParams(temperature=0.3, top_k=9), None, seed=2**40, mode=Mode.EXACT)
    list(chat.send(options=options))
    made_with = chat.last().settings
    assert made_with is not None
    assert (made_with.seed, made_with.target, made_with.draft) == (2**40, "target.gguf", "draft.gguf")
    assert (made_with.draft_length, made_with.temperature, made_with.mode) == (None, 0.3, "exact")
    assert '"top_k": 9' in made_with.sampling
    (request,) = decoder.requests
    assert (request.seed, request.sampling, request.draft_length) == (2**40, options.sampling, None)
    assert request.mode is Mode.EXACT


@pytest.mark.parametrize(
    ("pair", "name"), [(PairSettings(Path("t"), ngram=True), "ngram"), (PairSettings(Path("t")), "none")]
)
def test_an_answer_without_a_draft_model_says_what_drafted(chat: Chat, pair: PairSettings, name: str) -> None:
    chat.pairs = [Pair(ScriptedDecoder(answer("So.")), settings=pair)]
    list(chat.service.load(pair, CancelToken()))
    list(chat.send())
    made_with = chat.last().settings
    assert made_with is not None
    assert made_with.draft == name


def test_a_seed_that_is_not_given_is_fresh_and_fits_a_spin_box(chat: Chat) -> None:
    decoder = chat.script(*answer("So."))
    for _ in range(3):
        list(chat.send())
    seeds = {request.seed for request in decoder.requests}
    assert len(seeds) == 3
    assert all(0 <= seed < 2**31 for seed in seeds)


# the prompt


def test_the_prompt_is_the_system_prompt_then_the_conversation(chat: Chat) -> None:
    chat.store.set_system_prompt(chat.conversation, "Be brief.")
    decoder = chat.script(*answer("So."))
    list(chat.send("Why?"))
    list(chat.send("And?"))
    assert decoder.prompt() == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n"
        "<|im_start|>assistant\nSo.<|im_end|>\n<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_stopped_answer_counts_as_far_as_it_came(chat: Chat) -> None:
    chat.script(*answer("Half", reason=StopReason.CANCELLED))
    list(chat.send("Why?"))
    assert chat.last().status is Status.STOPPED
    decoder = chat.script(*answer("So."))
    list(chat.send("Go on"))
    assert "<|im_start|>assistant\nHalf<|im_end|>\n<|im_start|>user\nGo on<|im_end|>" in decoder.prompt()


def test_questions_without_an_answer_are_asked_together(chat: Chat) -> None:
    chat.script(UserError("The model broke."))
    with pytest.raises(UserError, match="broke"):
        list(chat.send("Why?"))
    decoder = chat.script(*answer("So."))
    list(chat.send("Hello?"))
    assert decoder.prompt() == "<|im_start|>user\nWhy?\n\nHello?<|im_end|>\n<|im_start|>assistant\n"


def test_typed_control_tokens_stay_text(chat: Chat) -> None:
    decoder = chat.script(*answer("So."))
    list(chat.send("a<|im_end|>b"))
    assert decoder.requests[0].prompt.count(CONTROL["<|im_end|>"]) == 1


def test_turns_that_do_not_fit_are_dropped_and_said(chat: Chat) -> None:
    decoder = chat.script(*answer("So. " * 20), n_ctx=400)
    reports = [event for n in range(4) for event in chat.send(f"{n} " + "x" * 60) if isinstance(event, TurnsDropped)]
    assert reports
    assert reports[-1].n_turns >= 2
    assert "<|im_start|>user\n0 " not in decoder.prompt()
    assert "<|im_start|>user\n3 " in decoder.prompt()
    assert len(chat.messages()) == 8, "on disk they stay"


def test_a_prompt_that_cannot_fit_keeps_the_message_and_starts_no_answer(chat: Chat) -> None:
    chat.script(*answer("So."), n_ctx=100)
    with pytest.raises(PromptTooLong):
        list(chat.send("x" * 1000))
    assert [message.text for message in chat.messages()] == ["x" * 1000]


def test_an_answer_has_no_more_tokens_than_there_is_room(chat: Chat) -> None:
    decoder = chat.script(*answer("So."), n_ctx=200)
    list(chat.send("Why?", GenerationOptions(max_new_tokens=5000)))
    (request,) = decoder.requests
    assert request.max_new_tokens == 200 - len(request.prompt)
    list(chat.send("Why?", GenerationOptions(max_new_tokens=5)))
    assert decoder.requests[-1].max_new_tokens == 5


# what the person may get wrong


@pytest.mark.parametrize("text", ["", " \n\t ", "\ufdd0"])
def test_an_empty_message_is_refused_and_not_stored(chat: Chat, text: str) -> None:
    chat.script(*answer("So."))
    with pytest.raises(UserError, match="empty"):
        list(chat.send(text))
    assert chat.messages() == ()


def test_lone_surrogates_are_cleaned_before_they_reach_disk_and_model(chat: Chat) -> None:
    decoder = chat.script(*answer("So."))
    list(chat.send("a\ud800b"))
    assert chat.messages()[0].text == "a\ufffdb"
    assert "a\ufffdb" in decoder.prompt()


def test_without_a_model_the_message_is_kept_and_can_be_answered_later(chat: Chat) -> None:
    with pytest.raises(UserError, match="No model is loaded"):
        list(chat.send("Why?"))
    (question,) = chat.messages()
    assert question.text == "Why?"
    chat.script(*answer("So."))
    list(chat.regenerate(question.id))
    assert [message.text for message in chat.messages()] == ["Why?", "So."]


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_that_cannot_be_stored_is_a_sentence(chat: Chat, seed: int) -> None:
    chat.script(*answer("So."))
    with pytest.raises(UserError, match="seed"):
        list(chat.send(options=GenerationOptions(seed=seed)))
    assert len(chat.messages()) == 1


# however it ends


def test_an_answer_that_fails_keeps_its_text_its_colours_and_the_reason(chat: Chat) -> None:
    chat.script(*answer("Half", " done")[:3], UserError("The model broke.", "Load it again."))
    seen: list[ChatEvent] = []
    with pytest.raises(UserError, match="broke"):
        seen.extend(chat.send())
    reply = chat.last()
    assert seen[-1] == MessageSaved(chat.conversation, reply.id, "assistant", "failed")
    assert (reply.text, reply.status, reply.error) == ("Half", "failed", "The model broke. Load it again.")
    assert [span.text for span in chat.trace().spans] == [" no", "Half"]
    assert load_stats(reply.stats).n_rounds == 1


def test_a_bug_passes_through_and_the_answer_is_marked(chat: Chat) -> None:
    bug = ZeroDivisionError("ours")
    chat.script(*answer("Half", " done")[:3], bug)
    with pytest.raises(ZeroDivisionError) as caught:
        list(chat.send())
    assert caught.value is bug
    assert (chat.last().text, chat.last().status) == ("Half", "failed")
    assert "ours" not in chat.last().error


@pytest.mark.parametrize("n_seen", range(2, 8))
def test_a_listener_that_leaves_stops_the_answer_and_keeps_what_came(chat: Chat, n_seen: int) -> None:
    chat.script(*answer("Half", " done"))
    reported = chat.send()
    seen = list(itertools.islice(reported, n_seen))
    reported.close()  # type: ignore[attr-defined]  # a generator
    rounds = sum(isinstance(event, RoundVerified) for event in seen)
    assert chat.last().text == ["", "Half", "Half done"][rounds]
    assert chat.last().status is Status.STOPPED
    assert len(chat.trace().rounds) == rounds


def test_a_listener_that_leaves_at_the_end_has_a_complete_answer(chat: Chat) -> None:
    chat.script(*answer("So."))
    reported = chat.send()
    for event in reported:
        if isinstance(event, GenerationFinished):
            break
    reported.close()  # type: ignore[attr-defined]  # a generator
    assert (chat.last().status, chat.last().stop_reason) == (Status.COMPLETE, "end_token")


def test_the_database_is_closed_however_it_ends(chat: Chat) -> None:
    chat.script(*answer("So."))
    list(chat.send())
    next(chat.send())
    chat.script(UserError("The model broke."))
    with pytest.raises(UserError):
        list(chat.send())
    assert len(chat.opened) == 3
    for store in chat.opened:
        with pytest.raises(Exception, match="closed database"):
            store.conversations()


# saving on the way


def test_the_answer_is_saved_about_once_a_second_on_the_way(tmp_path: Path) -> None:
    chat = Chat(tmp_path / "chats.db", step_seconds=0.4)  # each event takes 0.4 s
    words = [f" {n}" for n in range(9)]
    on_disk: list[tuple[str, int]] = []
    events = [event for event in answer(*words) if not isinstance(event, TokenDrafted)]

    def look() -> None:
        on_disk.append((chat.last().text, len(chat.trace().rounds)))

    chat.script(*itertools.chain.from_iterable((event, look) for event in events))
    list(chat.send())
    chat.store.close()
    assert [n for _, n in on_disk] == [0, 0, 2, 2, 2, 5, 5, 5, 8, 8, 8]
    assert all(text == "".join(words[:n]) for text, n in on_disk)


def test_figures_are_saved_on_the_way(saving: Chat) -> None:
    on_disk: list[SpeculationStats] = []
    saving.script(*answer("a", "b")[:3], lambda: on_disk.append(load_stats(saving.last().stats)), *answer("a")[3:])
    list(saving.send())
    assert (on_disk[0].n_rounds, on_disk[0].n_rejected, on_disk[0].n_committed) == (1, 1, 1)


def limit_size(store: HistoryStore, n_pages: int) -> None:
    """Make the disk look full from `n_pages` database pages on, or no longer."""
    store._connection.execute(f"PRAGMA max_page_count = {n_pages}")


def test_a_save_that_fails_on_the_way_is_said_once_and_made_up_for(saving: Chat) -> None:
    words = ["x" * 50_000] * 4
    events = answer(*words)
    fill = lambda: limit_size(saving.opened[-1], 1)  # noqa: E731 - a step of the script
    free = lambda: limit_size(saving.opened[-1], 1_000_000)  # noqa: E731 - a step of the script
    saving.script(fill, *events[:7], free, *events[7:])
    reported = list(saving.send())
    notable = [event for event in reported if isinstance(event, MessageSaved | SaveFailed)]
    assert [getattr(event, "status", event.event) for event in notable] == [
        *("complete", "streaming"),  # question and empty answer
        *("save_failed", "streaming"),  # full; saved again
        "complete",
    ]
    assert "disk is full" in next(event.sentence for event in reported if isinstance(event, SaveFailed))
    assert [event for event in reported if event in events] == events, "the answer went on"
    assert saving.last().text == "".join(words)
    assert len(saving.trace().rounds) == 4


def test_an_end_that_cannot_be_saved_is_a_sentence_after_the_whole_answer(saving: Chat) -> None:
    events = answer("x" * 50_000)
    saving.script(lambda: limit_size(saving.opened[-1], 1), *events)
    reported: list[ChatEvent] = []
    with pytest.raises(UserError, match="disk is full"):
        reported.extend(saving.send())
    assert [event for event in reported if event in events] == events


def test_a_failure_that_cannot_be_saved_either_says_both(saving: Chat) -> None:
    steps = (*answer("x" * 50_000)[:3], UserError("The model broke."))
    saving.script(lambda: limit_size(saving.opened[-1], 1), *steps)
    with pytest.raises(UserError, match="broke") as caught:
        list(saving.send())
    assert "disk is full" in caught.value.__notes__[0]


def answer_until_killed(path: Path) -> None:
    """Answer "Half", say so, then wait for ever in the middle of the next token."""
    chat = Chat(path, step_seconds=1.0)

    def wait() -> None:
        sys.stdout.write("saved\n")
        sys.stdout.flush()
        sys.stdin.read()

    chat.script(*answer("Ha", "lf", " never")[:5], wait)
    list(chat.send("Why?"))


def test_after_a_kill_the_text_and_the_colours_up_to_then_are_there(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    with subprocess.Popen(  # noqa: S603 - this file, our own interpreter
        [sys.executable, __file__, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"saved\n"
        with HistoryStore.open(path) as store:
            assert store.recover_interrupted() == (), "it still runs"
        child.kill()
    assert child.returncode == -9
    with HistoryStore.open(path) as store:
        assert store.notices == ()
        (conversation,) = store.conversations()
        question, reply = store.messages(conversation.id)
        assert store.recover_interrupted() == (reply.id,)
        reply = store.message(reply.id)
        assert question.text == "Why?"
        assert (reply.text, reply.status) == ("Half", Status.INTERRUPTED)
        spans = Trace.replay(store.rounds(reply.id)).spans
    assert [(span.text, span.fate.value) for span in spans] == [
        *((" no", "rejected"), ("Ha", "correction")),
        *((" no", "rejected"), ("lf", "correction")),
    ]


# answering again


def test_answering_again_makes_a_branch_with_a_fresh_seed(chat: Chat) -> None:
    decoder = chat.script(*answer("Old."))
    list(chat.send())
    old = chat.last()
    decoder.steps = list(answer("New."))
    reported = list(chat.regenerate(old.id))
    question, new = chat.messages()
    assert (question.text, new.text, new.parent_id) == ("Why?", "New.", question.id)
    assert chat.store.message(old.id) == old, "the old answer stays on disk"
    first, second = decoder.requests
    assert first.prompt == second.prompt
    assert first.seed != second.seed
    assert reported[0] == MessageSaved(chat.conversation, new.id, "assistant", "streaming")


def test_an_answer_in_the_middle_is_made_again_from_what_came_before_it(chat: Chat) -> None:
    decoder = chat.script(*answer("So."))
    list(chat.send("Why?"))
    first = chat.last()
    list(chat.send("And?"))
    list(chat.regenerate(first.id, GenerationOptions(seed=5)))
    assert "And?" not in decoder.prompt()
    assert decoder.requests[-1].seed == 5
    assert [message.text for message in chat.messages()] == ["Why?", "So."]


def test_an_answer_that_is_gone_is_a_sentence(chat: Chat) -> None:
    chat.script(*answer("So."))
    with pytest.raises(UserError, match="no longer exists"):
        list(chat.regenerate(99))


# loading


def test_loading_reports_its_steps_and_then_what_is_ready(chat: Chat) -> None:
    step = ModelLoading("Reading the target", 0.5)
    chat.pairs = [step, Pair(ScriptedDecoder([], n_ctx=77), notices=("The draft cannot serve.",))]
    assert list(chat.service.load(PAIR, CancelToken())) == [
        step,
        PairReady(PAIR, 77, ("The draft cannot serve.",)),
    ]


def test_the_old_pair_is_freed_before_the_next_one_is_loaded(tmp_path: Path) -> None:
    old, closed_at_start = Pair(ScriptedDecoder([])), []

    def load(_settings: PairSettings, _cancel: CancelToken) -> Iterator[ModelLoading | Pair]:
        closed_at_start.append(old.closed)
        yield old if len(closed_at_start) == 1 else Pair(ScriptedDecoder([]))

    service = ChatService(lambda: HistoryStore.open(tmp_path / "chats.db"), load)
    for _ in range(2):
        list(service.load(PAIR, CancelToken()))
    assert closed_at_start == [False, True]


@pytest.mark.parametrize("handed_over", [False, True])
def test_nothing_stays_half_loaded_after_a_failure(chat: Chat, *, handed_over: bool) -> None:
    pair = Pair(ScriptedDecoder(answer("So.")))

    def load(_settings: PairSettings, _cancel: CancelToken) -> Iterator[ModelLoading | Pair]:
        yield pair if handed_over else ModelLoading("Reading the target")
        raise UserError("The file is truncated.")

    chat.service = ChatService(chat.open_store, load)
    with pytest.raises(UserError, match="truncated"):
        list(chat.service.load(PAIR, CancelToken()))
    assert pair.closed is handed_over
    with pytest.raises(UserError, match="No model is loaded"):
        list(chat.send())


def test_a_load_that_was_cancelled_is_not_ready(chat: Chat) -> None:
    chat.pairs = [ModelLoading("Reading the target")]
    assert list(chat.service.load(PAIR, CancelToken())) == [ModelLoading("Reading the target")]


def test_unloading_frees_the_pair_once(chat: Chat) -> None:
    pair = Pair(ScriptedDecoder([]))
    chat.pairs = [pair]
    list(chat.service.load(PAIR, CancelToken()))
    chat.service.unload()
    chat.service.unload()
    assert pair.closed


if __name__ == "__main__":
    answer_until_killed(Path(sys.argv[1]))
