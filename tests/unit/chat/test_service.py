"""The rules of sending a message: the person's text is on disk first, then the model is asked."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from draftlight.chat.prompt import PromptTooLong
from draftlight.chat.service import (
    ChatService,
    GenerationOptions,
    MessageSaved,
    PairReady,
    ThreadsChanged,
    TurnsDropped,
    drafted_by,
)
from draftlight.chat.trace import Trace, load_stats
from draftlight.engine.cancel import CancelToken
from draftlight.engine.costs import PairFacts, StepCosts
from draftlight.engine.decoding import Mode
from draftlight.engine.events import (
    GenerationFinished,
    ModelLoading,
    PromptEvaluated,
    RoundVerified,
    StopReason,
    TokenDrafted,
    TokenFate,
)
from draftlight.engine.metrics import SpeculationStats
from draftlight.engine.sampling import SamplingParams
from draftlight.errors import UserError
from draftlight.history.records import Role, Status
from draftlight.history.store import HistoryStore
from draftlight.llama.threads import ThreadState
from draftlight.settings import PairSettings
from scripted_chat import CONTROL, PAIR, Chat, Pair, ScriptedDecoder, answer

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
    ("pair", "name"),
    [
        (PairSettings(Path("t"), ngram=True), "ngram"),
        (PairSettings(Path("t")), "none"),
        (PairSettings(Path("t"), Path("d.gguf"), ngram=True), "d.gguf + ngram"),
    ],
)
def test_an_answer_says_what_may_have_drafted_it(chat: Chat, pair: PairSettings, name: str) -> None:
    chat.pairs = [Pair(ScriptedDecoder(answer("So.")), settings=pair)]
    list(chat.service.load(pair, CancelToken()))
    list(chat.send())
    made_with = chat.last().settings
    assert made_with is not None
    assert made_with.draft == name


def test_at_a_fixed_length_n_grams_do_not_draft_beside_a_model() -> None:
    assert drafted_by(PairSettings(Path("t"), Path("d.gguf"), ngram=True), 3) == "d.gguf"


def test_the_mode_that_was_left_to_the_pair_is_stored_as_the_one_it_took(chat: Chat) -> None:
    decoder = chat.script(*answer("So."))
    decoder.facts = PairFacts(StepCosts((1,), (1,), ((0.01,),)), exact_widths=frozenset({1, 2, 3, 4}))
    list(chat.send(options=GenerationOptions()))
    assert decoder.requests[0].mode is None
    assert chat.last().settings is not None
    assert chat.last().settings.mode == "exact"  # type: ignore[union-attr]  # as asserted


def test_a_seed_that_is_not_given_is_fresh_and_fits_a_spin_box(chat: Chat) -> None:
    decoder = chat.script(*answer("So."))
    for _ in range(3):
        list(chat.send())
    seeds = {request.seed for request in decoder.requests}
    assert len(seeds) == 3
    assert all(0 <= seed < 2**31 for seed in seeds)


# the prompt


def test_the_prompt_is_the_system_prompt_then_the_conversation(chat: Chat) -> None:
    chat.conversation = chat.store.create_conversation("Be brief.").id
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


def test_a_question_that_was_too_long_does_not_stand_in_the_way_of_the_next(chat: Chat) -> None:
    decoder = chat.script(*answer("So."), n_ctx=200)
    with pytest.raises(PromptTooLong):
        list(chat.send("x" * 1000))
    events = list(chat.send("Shorter?"))
    assert TurnsDropped(1) in events, "what the model does not see is said"
    assert decoder.prompt() == "<|im_start|>user\nShorter?<|im_end|>\n<|im_start|>assistant\n"


def test_the_persons_limit_reaches_the_engine_which_knows_a_full_context_from_a_long_answer(chat: Chat) -> None:
    decoder = chat.script(*answer("So."), n_ctx=200)
    for limit in (5, 5000):
        list(chat.send("Why?", GenerationOptions(max_new_tokens=limit)))
        assert decoder.requests[-1].max_new_tokens == limit


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


def test_that_fewer_threads_compute_is_told_when_it_begins_and_when_it_ends(chat: Chat) -> None:
    fewer, whole = ThreadState(1, 2, "Other programs keep the processor busy."), ThreadState(2, 2)
    pair = Pair(ScriptedDecoder(answer("So", " it", " is.")))
    chat.pairs = [pair]
    list(chat.service.load(PAIR, CancelToken()))
    told = []
    for event in chat.service.send(chat.conversation, "Is it?", GenerationOptions(), CancelToken()):
        if isinstance(event, ThreadsChanged):
            told.append((pair.thread_state, event.state))
        elif isinstance(event, RoundVerified):
            pair.thread_state = {0: fewer, 1: fewer, 2: whole}[event.round]
    assert told == [(fewer, fewer), (whole, whole)]


# loading


def test_loading_reports_its_steps_and_then_what_is_ready(chat: Chat) -> None:
    step = ModelLoading("Reading the target", 0.5)
    chat.pairs = [step, Pair(ScriptedDecoder([], n_ctx=77), notices=("The draft cannot serve.",))]
    assert list(chat.service.load(PAIR, CancelToken())) == [
        step,
        PairReady(PAIR, 77, Mode.FAST, ("The draft cannot serve.",)),
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
