"""The rules of saving an answer: nothing that was generated is lost, however it ends."""

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

import scripted_chat
from draftlight.chat.service import (
    ChatEvent,
    MessageSaved,
    SaveFailed,
)
from draftlight.chat.trace import Trace, load_stats
from draftlight.engine.events import (
    GenerationFinished,
    RoundVerified,
    TokenDrafted,
)
from draftlight.engine.metrics import SpeculationStats
from draftlight.errors import UserError
from draftlight.history.records import Status
from draftlight.history.store import HistoryStore
from scripted_chat import Chat, answer

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


def test_after_a_kill_the_text_and_the_colours_up_to_then_are_there(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    with subprocess.Popen(  # noqa: S603 - our own code, our own interpreter
        [sys.executable, scripted_chat.__file__, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
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
