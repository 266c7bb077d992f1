"""What is learned from the person's own chats: exactly what was asked and chosen there, and nothing that is gone."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import scripted_chat
from draftlight.chat.service import GenerationOptions
from draftlight.engine.events import Event, GenerationFinished, PromptEvaluated, StopReason
from draftlight.engine.metrics import SpeculationStats
from draftlight.errors import UserError
from draftlight.forge.acceptance import HeldOut
from draftlight.forge.own_chats import LONGEST, Answer, answers_on_disk, divided, laws
from draftlight.history.store import HistoryStore
from scripted_chat import CONTROL, PAIR, Chat
from toys import TableModel

END = CONTROL["<|im_end|>"]
N_TOKENS = END + 1
TARGET = PAIR.target.name


@dataclass
class Vocabulary(scripted_chat.Vocabulary):
    """One token a character, and the way back."""

    end_tokens: frozenset[int] = frozenset({END})

    def piece(self, token: int) -> bytes:
        return b"" if token >= min(CONTROL.values()) else chr(token).encode()


@pytest.fixture
def chat(tmp_path: Path) -> Iterator[Chat]:
    made = Chat(tmp_path / "chats.db")
    yield made
    made.store.close()


def answering(text: str, reason: StopReason = StopReason.END_TOKEN, tokens: tuple[int, ...] = ()) -> list[Event]:
    """The events of an answer that is saved with its tokens."""
    end = (END,) if reason is StopReason.END_TOKEN else ()
    spelled = tokens or (*map(ord, text), *end)
    return [PromptEvaluated(9, 9, 0, 0.1), GenerationFinished(reason, spelled, text, SpeculationStats())]


def say(chat: Chat, question: str, text: str, reason: StopReason = StopReason.END_TOKEN) -> Answer:
    """Ask and answer; return what there is to learn from it, by the very request."""
    decoder = chat.script(*answering(text, reason), n_ctx=5000)
    list(chat.send(question))
    finished = decoder.steps[-1]
    assert isinstance(finished, GenerationFinished)
    return Answer(decoder.requests[-1].prompt, finished.tokens)


def found(chat: Chat, target: str = TARGET, go_on: Callable[[], bool] = lambda: True) -> list[Answer] | None:
    with HistoryStore.open_to_read(chat.path) or pytest.fail("there are no chats") as store:
        return answers_on_disk(store, Vocabulary(), target, N_TOKENS, go_on)


def test_what_is_learned_from_is_the_very_prompt_and_the_very_tokens(chat: Chat) -> None:
    first = say(chat, "Why?", "So.")
    second = say(chat, "And then?", "Then", StopReason.CANCELLED)
    chat.conversation = chat.store.create_conversation("Be brief.").id
    third = say(chat, "Who?", "Nobody.", StopReason.LENGTH)
    decoder = chat.script(*answering("Everybody."))
    list(chat.regenerate(chat.last().id, GenerationOptions()))
    again = Answer(decoder.requests[-1].prompt, (*map(ord, "Everybody."), END))
    assert found(chat) == [first, second, third, again]
    assert first.tokens[-1] == END
    assert again.prompt == third.prompt


def test_what_is_gone_failed_or_another_targets_is_not_learned_from(chat: Chat) -> None:
    say(chat, "A secret?", "Never mind.")
    chat.store.delete(chat.conversation)
    chat.conversation = chat.store.create_conversation().id
    chat.script(PromptEvaluated(9, 9, 0, 0.1), UserError("It failed."))
    with pytest.raises(UserError):
        list(chat.send("Why?"))
    kept = say(chat, "Why not?", "So.")
    assert found(chat) == [kept]
    assert found(chat, "another.gguf") == []
    chat.store.delete(chat.conversation)
    assert found(chat) == []


@pytest.mark.parametrize("tokens", [(1, 2, 3, END), (N_TOKENS, N_TOKENS)])
def test_tokens_that_do_not_spell_the_answer_are_of_another_vocabulary(chat: Chat, tokens: tuple[int, ...]) -> None:
    chat.script(*answering("So.", tokens=tokens))
    list(chat.send("Why?"))
    assert found(chat) == []


def test_an_answer_whose_trace_cannot_be_read_is_passed_over(chat: Chat) -> None:
    say(chat, "Why?", "So.")
    chat.store.update_message(chat.last().id, rounds=['{"event":"of the future"}'])
    assert found(chat) == []


def test_a_long_chat_loses_its_oldest_turns_and_a_long_question_its_beginning(chat: Chat) -> None:
    say(chat, "Long ago, " + "a" * 600, "yes.")
    say(chat, "Now " + "b" * 300, "c" * 300)
    say(chat, "d" * 2000 + "?", "No.")
    cut = found(chat)
    assert cut is not None
    assert all(len(answer.prompt) + len(answer.tokens) <= LONGEST for answer in cut)
    _, second, third = cut
    assert "Long ago" not in text(second)
    assert "Now bbb" in text(second)
    assert len(second.prompt) < LONGEST - len(second.tokens)
    assert second.prompt[0] == CONTROL["<|im_start|>"]
    assert len(third.prompt) == LONGEST - len(third.tokens)
    assert text(third).endswith("d?\nassistant\n")


def text(answer: Answer) -> str:
    return b"".join(map(Vocabulary().piece, answer.prompt)).decode()


def test_reading_stops_where_it_is_asked_to_and_changes_nothing(chat: Chat) -> None:
    say(chat, "Why?", "So.")
    assert found(chat, go_on=lambda: False) is None
    store = HistoryStore.open_to_read(chat.path)
    assert store is not None
    with store, pytest.raises(UserError, match="reading only"):
        store.create_conversation()


def test_no_chats_are_no_database(tmp_path: Path) -> None:
    assert HistoryStore.open_to_read(tmp_path / "none.db") is None
    assert list(tmp_path.iterdir()) == []


def some(n: int, n_repeated: int = 0) -> list[Answer]:
    """Answers to different questions, then some to the last one over again."""
    answers = [Answer((1, question), (question, 2)) for question in range(n)]
    return answers + [replace(answers[-1], tokens=(again, 3)) for again in range(n_repeated)]


def test_the_newest_answers_judge_and_the_next_newest_choose() -> None:
    answers = some(40)
    divided_ = divided(answers, TARGET)
    assert divided_.held_out == tuple(HeldOut(each.prompt, each.tokens) for each in answers[-6:])
    assert divided_.choosing == tuple(HeldOut(each.prompt, each.tokens) for each in answers[-12:-6])
    assert divided_.learned == tuple(answers[:-12])


def test_no_prompt_is_both_learned_and_judged_by() -> None:
    old = some(30)
    answers = [*old, *(replace(old[3], tokens=(each, 4)) for each in range(5))]
    found = divided(answers, TARGET)
    learned = {answer.prompt for answer in found.learned}
    choosing, held_out = ({each.prompt for each in part} for part in (found.choosing, found.held_out))
    assert old[3].prompt in held_out
    assert not learned & held_out
    assert not learned & choosing
    assert not choosing & held_out


@pytest.mark.parametrize(("answers", "n_more"), [(some(3), 17), ([], 20), (some(1, 30), 5)])
def test_too_few_answers_are_told_with_how_many_more_it_takes(answers: list[Answer], n_more: int) -> None:
    with pytest.raises(UserError, match=f"{len(answers)} answers of {TARGET} .* {n_more} more are needed"):
        divided(answers, TARGET)


def test_the_laws_are_the_targets_own_at_each_token_of_an_answer() -> None:
    target = TableModel(n_vocab=40)
    answers = [Answer((1, 2, 3), (4, 5, 6)), Answer((1, 2), tuple(range(40)))]
    for answer, chats in zip(answers, laws(answers, target, 30, lambda: True), strict=True):
        text = [*answer.prompt, *answer.tokens]
        assert chats.tokens.tolist() == text
        assert chats.answers.tolist() == [len(answer.prompt)]
        for place in range(len(answer.tokens)):
            logits = target.row(text[: len(answer.prompt) + place])[:30]
            law = logits - np.log(np.exp(logits).sum())
            likeliest = set(np.argsort(law)[-16:].tolist())
            assert set(chats.label_ids[place].tolist()) == likeliest
            assert chats.label_logprobs[place] == pytest.approx(law[chats.label_ids[place]], abs=5e-3)


def test_a_stop_ends_the_laws_between_two_passes() -> None:
    asked = iter([True, False])
    assert list(laws(some(3), TableModel(), 16, lambda: next(asked)))[1:] == []
