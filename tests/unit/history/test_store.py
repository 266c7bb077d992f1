"""The rules of the chats on disk: what goes in comes out, in order, and nothing but purge() removes it."""

import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from draftlight.errors import UserError
from draftlight.history.database import open_database
from draftlight.history.records import AnswerSettings, Message, Role, Status
from draftlight.history.store import HistoryStore
from draftlight.history.writer import current_writer, is_alive

SETTINGS = AnswerSettings(
    seed=2**31 - 1,
    target="t.gguf",
    draft="ngram",
    draft_length=None,
    temperature=0.8,
    mode="fast",
    sampling='{"top_k": 40}',
)
GONE = "no longer exists"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.db"


@pytest.fixture
def store(path: Path) -> Iterator[HistoryStore]:
    ticks = itertools.count(1_000)
    with HistoryStore(path, open_database(path), now=lambda: float(next(ticks))) as opened:
        yield opened


def ask(store: HistoryStore, conversation_id: int, text: str = "Why?") -> Message:
    return store.add_message(conversation_id, Role.USER, text)


def test_a_message_comes_back_as_it_went_in(path: Path, store: HistoryStore) -> None:
    conversation = store.create_conversation("Be brief.")
    question = ask(store, conversation.id, "漢字 👩‍👩‍👧\r\n\x00tail '; DROP TABLE messages; --")
    answer = store.add_message(
        conversation.id, Role.ASSISTANT, "", parent_id=question.id, status=Status.STREAMING, settings=SETTINGS
    )
    store.update_message(
        answer.id, text="So.", status=Status.STOPPED, stop_reason="cancelled", error="e", stats="{}", rounds=["a", "b"]
    )
    store.update_message(answer.id, rounds=["c"])
    with HistoryStore.open(path) as other:
        read_question, read_answer = other.messages(conversation.id)
        assert other.rounds(answer.id) == ("a", "b", "c")
        assert other.rounds(question.id) == ()
        assert other.conversation(conversation.id).system_prompt == "Be brief."
    assert read_question == question
    assert read_question.text == "漢字 👩‍👩‍👧\r\n\x00tail '; DROP TABLE messages; --"
    assert read_answer.settings == SETTINGS
    assert (read_answer.text, read_answer.status, read_answer.stop_reason) == ("So.", Status.STOPPED, "cancelled")
    assert (read_answer.error, read_answer.stats, read_answer.parent_id) == ("e", "{}", question.id)
    assert read_answer.updated_at > read_answer.created_at > question.created_at


def test_what_is_not_given_does_not_change(store: HistoryStore) -> None:
    message = ask(store, store.create_conversation().id, "text")
    store.update_message(message.id, error="sentence")
    assert store.message(message.id).text == "text"
    store.update_message(message.id, text="")
    assert store.message(message.id).text == ""
    assert store.message(message.id).error == "sentence"


def test_the_list_shows_pinned_conversations_then_the_newest(store: HistoryStore) -> None:
    first, second, third = (store.create_conversation().id for _ in range(3))
    assert [c.id for c in store.conversations()] == [third, second, first]
    ask(store, first)
    assert [c.id for c in store.conversations()] == [first, third, second]
    store._connection.execute("UPDATE conversations SET pinned = 1 WHERE id = ?", (second,))
    assert [c.id for c in store.conversations()] == [second, first, third]


def test_the_first_message_names_the_conversation_and_a_name_given_stays(store: HistoryStore) -> None:
    conversation = store.create_conversation().id
    ask(store, conversation, "\n  Why is   the sky blue?\nReally.")
    ask(store, conversation, "And the sea?")
    assert store.conversation(conversation).title == "Why is the sky blue?"
    store.rename(conversation, " Sky\n")
    ask(store, conversation, "More")
    assert store.conversation(conversation).title == "Sky"


def test_a_deletion_can_be_undone_until_it_is_purged(store: HistoryStore) -> None:
    kept, deleted = store.create_conversation().id, store.create_conversation().id
    message = ask(store, deleted)
    store.update_message(message.id, rounds=["line"])
    message = store.message(message.id)
    store.delete(deleted)
    assert [c.id for c in store.conversations()] == [kept]
    with pytest.raises(UserError, match=GONE):
        store.conversation(deleted)
    assert store.purge(older_than=1e6) == 0
    store.restore(deleted)
    assert store.messages(deleted) == (message,)
    store.delete(deleted)
    assert store.purge() == 1
    assert store.messages(deleted) == ()
    assert store.rounds(message.id) == ()
    with pytest.raises(UserError, match=GONE):
        store.restore(deleted)
    assert store.create_conversation().id > deleted, "an id is never used twice"


def test_a_second_answer_is_a_branch_and_the_newest_one_is_shown(store: HistoryStore) -> None:
    conversation = store.create_conversation().id
    question = ask(store, conversation)
    old = store.add_message(conversation, Role.ASSISTANT, "old", parent_id=question.id)
    follow_up = ask(store, conversation, "And then?")
    assert store.messages(conversation) == (question, old, follow_up)
    new = store.add_message(conversation, Role.ASSISTANT, "new", parent_id=question.id)
    assert store.messages(conversation) == (question, new)
    assert store.path_to(follow_up.id) == (question, old, follow_up), "the old branch stays"


def test_all_answers_to_a_question_are_found_and_nothing_else(store: HistoryStore) -> None:
    conversation = store.create_conversation()
    question = ask(store, conversation.id)
    first, second = (
        store.add_message(conversation.id, Role.ASSISTANT, text, parent_id=question.id) for text in ("So.", "Or so.")
    )
    store.add_message(conversation.id, Role.USER, "And?", parent_id=question.id)
    ask(store, store.create_conversation().id)
    assert store.answers_to(question.id) == (first, second)
    assert store.answers_to(second.id) == ()


@pytest.mark.parametrize("text", ["a\ud800b", "\udfff", "\ud83d\ude00"], ids=["high", "low", "pair"])
def test_lone_surrogates_are_replaced_rather_than_fatal(store: HistoryStore, text: str) -> None:
    conversation = store.create_conversation(text).id
    message = ask(store, conversation, text)
    store.update_message(message.id, error=text, rounds=[text])
    store.rename(conversation, text)
    stored = store.message(message.id).text
    assert stored == ("😀" if len(text) == 2 else text.replace("\ud800", "\ufffd").replace("\udfff", "\ufffd"))


def test_what_is_gone_is_a_sentence(store: HistoryStore) -> None:
    for call in (
        lambda: ask(store, 99),
        lambda: store.message(99),
        lambda: store.rename(99, "x"),
        lambda: store.update_message(99, text="x"),
        lambda: store.add_message(store.create_conversation().id, Role.ASSISTANT, "", parent_id=99),
    ):
        with pytest.raises(UserError, match=GONE):
            call()


def test_a_change_that_fails_in_the_middle_leaves_nothing(store: HistoryStore) -> None:
    message = ask(store, store.create_conversation().id, "before")
    with pytest.raises(AttributeError):
        store.update_message(message.id, text="after", rounds=["fine", 3])  # type: ignore[list-item]
    assert store.message(message.id).text == "before"
    assert store.rounds(message.id) == ()


def test_only_answers_of_dead_processes_count_as_interrupted(path: Path, store: HistoryStore) -> None:
    conversation = store.create_conversation().id
    question = ask(store, conversation)
    mine = store.add_message(conversation, Role.ASSISTANT, "a", parent_id=question.id, status=Status.STREAMING)
    add = (
        "import sys; from pathlib import Path; from draftlight.history.store import *; "
        "from draftlight.history.records import *\n"
        "store = HistoryStore.open(Path(sys.argv[1]))\n"
        "print(store.add_message(int(sys.argv[2]), Role.ASSISTANT, 'b', status=Status.STREAMING).id, flush=True)\n"
        "sys.stdin.read()"
    )
    with subprocess.Popen(  # noqa: S603 - our own code, our own interpreter
        [sys.executable, "-c", add, str(path), str(conversation)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        theirs = int(child.stdout.readline())
        assert store.recover_interrupted() == (), "both processes live"
        child.kill()
    assert store.recover_interrupted() == (theirs,)
    assert store.message(theirs).status is Status.INTERRUPTED
    assert store.message(theirs).text == "b"
    assert store.message(mine.id).status is Status.STREAMING
    assert store.recover_interrupted() == ()


def test_a_process_id_used_again_is_another_process() -> None:
    parent = psutil.Process(os.getppid())
    assert is_alive(current_writer())
    assert is_alive(f"{parent.pid}:{parent.create_time():.2f}")
    assert not is_alive(f"{parent.pid}:{parent.create_time() - 60:.2f}")
    assert not is_alive("")


def test_lists_can_be_read_while_an_answer_is_written(path: Path, store: HistoryStore) -> None:
    conversation = store.create_conversation().id
    answer = store.add_message(conversation, Role.ASSISTANT, "", status=Status.STREAMING)
    started, n_lines = threading.Event(), 200

    def write() -> None:
        with HistoryStore.open(path) as writer:
            for n in range(1, n_lines + 1):
                writer.update_message(answer.id, text="x" * n, rounds=[f"{n}"])
                started.set()

    thread = threading.Thread(target=write)
    thread.start()
    started.wait(30)
    seen: list[int] = []
    while thread.is_alive() or not seen or seen[-1] < n_lines:
        text = store.message(answer.id).text
        assert len(store.rounds(answer.id)) >= len(text), "text and rounds change together"
        store.conversations()
        seen.append(len(text))
    thread.join()
    assert seen == sorted(seen)
    assert store.rounds(answer.id) == tuple(str(n) for n in range(1, n_lines + 1))


def test_a_program_that_leaves_keeps_the_log_of_one_that_stays(path: Path, store: HistoryStore) -> None:
    """SQLite deletes the log with its last user: a second opening here must not hide the first from other programs."""
    HistoryStore.open(path).close()  # as each answer does, on the engine's thread
    other = (
        "import pathlib, sys; from draftlight.history.store import HistoryStore\n"
        "with HistoryStore.open(pathlib.Path(sys.argv[1])) as store: print(len(store.conversations()))"
    )

    def listed_by_another() -> int:
        command = [sys.executable, "-c", other, str(path)]
        return int(subprocess.run(command, check=True, capture_output=True).stdout)  # noqa: S603 - our own program

    assert listed_by_another() == 0
    store.create_conversation()
    assert listed_by_another() == 1


def test_a_store_refuses_another_thread(store: HistoryStore) -> None:
    caught: list[BaseException] = []

    def read() -> None:
        try:
            store.conversations()
        except Exception as error:  # noqa: BLE001 - the thread's edge
            caught.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    assert not isinstance(caught[0], UserError), "a bug, not a sentence"


def test_a_target_s_whole_answers_are_listed_over_all_chats_without_the_deleted_ones(store: HistoryStore) -> None:
    def answered(status: Status, settings: AnswerSettings = SETTINGS) -> int:
        question = store.add_message(store.create_conversation().id, Role.USER, "?")
        return store.add_message(
            question.conversation_id, Role.ASSISTANT, "!", parent_id=question.id, status=status, settings=settings
        ).id

    whole = [answered(Status.COMPLETE), answered(Status.STOPPED)]
    for status in (Status.STREAMING, Status.FAILED, Status.INTERRUPTED):
        answered(status)
    answered(Status.COMPLETE, replace(SETTINGS, target="other.gguf"))
    deleted = answered(Status.COMPLETE)
    store.delete(store.message(deleted).conversation_id)
    assert [message.id for message in store.answers_of("t.gguf")] == whole


def test_the_last_line_of_a_trace_is_read_alone(store: HistoryStore) -> None:
    answer = store.add_message(store.create_conversation().id, Role.ASSISTANT, "")
    assert store.last_round(answer.id) == ""
    store.update_message(answer.id, rounds=["first", "last"])
    assert store.last_round(answer.id) == "last"


def test_chats_opened_to_read_can_be_written_by_others_meanwhile_but_not_here(path: Path, store: HistoryStore) -> None:
    conversation = store.create_conversation()
    reader = HistoryStore.open_to_read(path)
    assert reader is not None
    with reader:
        store.rename(conversation.id, "Renamed")
        assert reader.conversation(conversation.id).title == "Renamed"
        with pytest.raises(UserError, match="reading only"):
            reader.delete(conversation.id)


def test_a_damaged_file_opened_to_read_stays_where_it_is(path: Path) -> None:
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(UserError, match="damaged"):
        HistoryStore.open_to_read(path)
    assert [file.name for file in path.parent.iterdir() if file.name != "chats.db.suspected"] == ["chats.db"]


def test_no_chats_to_read_are_not_made(path: Path) -> None:
    assert HistoryStore.open_to_read(path) is None
    assert not path.exists()
