"""How answers end: what is not on disk is said, nothing stays undecided, the figures are those of the chat shown."""

from collections.abc import Callable
from dataclasses import replace

from pytestqt.qtbot import QtBot

from draftlight.engine.events import TokenFate
from draftlight.errors import UserError
from draftlight.history.records import Message, Role, Status
from draftlight.ui.chat.shown_messages import closing_notes
from gui.opened import QUESTION, READY, Screen
from gui.scripted import FullDisk, Round, StoryDecoder

FULL = "The end of this answer is not saved: The disk is full. Free some space."


def test_an_answer_whose_last_save_fails_says_so(qtbot: QtBot, build: Callable[..., Screen]) -> None:
    screen = build(stores=FullDisk)
    screen.ask(qtbot)
    assert "Paris" in screen.shown
    assert FULL in screen.shown
    assert screen.told == [FULL]


def test_an_answer_that_fails_and_cannot_be_saved_says_both(qtbot: QtBot, build: Callable[..., Screen]) -> None:
    screen = build(stores=FullDisk)
    screen.decoder.failure = UserError("The model broke.", "Load it again.")
    screen.decoder.fails_in = 2
    screen.ask(qtbot)
    broke = "This answer failed: The model broke. Load it again."
    assert broke in screen.shown
    assert FULL in screen.shown
    assert screen.told == [broke, FULL]


def test_a_stopped_answer_that_cannot_be_saved_says_both(qtbot: QtBot, build: Callable[..., Screen]) -> None:
    screen = build(StoryDecoder(hold_at=2), stores=FullDisk)
    screen.type_and_send(QUESTION)
    qtbot.waitUntil(screen.decoder.holding.is_set)
    screen.controller.stop()
    screen.finish(qtbot)
    assert screen.shown.count("Stopped by you.") == 1
    assert FULL in screen.shown


def test_a_bug_in_mid_answer_is_told_once(qtbot: QtBot, screen: Screen) -> None:
    screen.decoder.failure = ZeroDivisionError("oops")
    screen.decoder.fails_in = 2
    screen.ask(qtbot)
    assert screen.shown.count("A fault in the program ended this answer.") == 1
    assert screen.told == []


def test_an_answer_without_its_end_on_disk_says_so_when_it_is_opened(
    qtbot: QtBot, build: Callable[..., Screen]
) -> None:
    screen = build(stores=FullDisk)
    current = screen.ask(qtbot)
    assert screen.store.messages(current)[-1].status is Status.STREAMING
    screen.open(qtbot, current)
    assert "the end of this answer was not saved" in screen.shown


def test_no_token_is_left_pending_after_a_failure_in_mid_draft(qtbot: QtBot, screen: Screen) -> None:
    screen.decoder.failure = UserError("The model broke.", "Load it again.")
    screen.decoder.fails_in = 2
    current = screen.ask(qtbot)
    live = screen.shown
    assert "a city" not in live
    spans = screen.widgets.transcript.messages[-1].spans
    assert spans
    assert TokenFate.PENDING not in {span.fate for span in spans}
    screen.open(qtbot, current)
    assert screen.shown == live


def test_an_answer_that_ends_while_its_chat_is_read_is_shown_whole(qtbot: QtBot, build: Callable[..., Screen]) -> None:
    screen = build(StoryDecoder(hold_at=2))
    screen.type_and_send(QUESTION)
    qtbot.waitUntil(screen.decoder.holding.is_set)
    current = screen.controller.current
    assert current is not None
    screen.controller.new_chat()
    read_before_the_end(qtbot, screen, current)
    assert "town" in screen.shown
    assert screen.shown.count(QUESTION) == 1
    assert len(screen.widgets.transcript.messages) == 2


def read_before_the_end(qtbot: QtBot, screen: Screen, conversation: int) -> None:
    """Open a chat whose answer ends after the reader has looked at the disk and before the screen hears of it."""
    screen.controller.open_conversation(conversation)
    reading = screen.controller._reading
    assert reading is not None
    early: list[object] = []
    reading.reported.disconnect(screen.controller._on_read)
    reading.reported.connect(early.append)
    qtbot.waitUntil(lambda: bool(early))
    reading.reported.disconnect(early.append)
    reading.reported.connect(screen.controller._on_read)
    screen.decoder.go_on.set()
    qtbot.waitUntil(lambda: not screen.controller.busy)
    reading.reported.emit(early[0])
    screen.finish(qtbot)


def test_a_failure_to_read_a_chat_leaves_the_one_opened_after_it(qtbot: QtBot, build: Callable[..., Screen]) -> None:
    screen = build()
    current = screen.ask(qtbot)
    screen.controller.open_conversation(current + 1000)
    late = screen.controller._reading
    assert late is not None
    screen.controller.open_conversation(current)
    late.failed.emit(UserError("The disk cannot be read."))
    screen.finish(qtbot)
    assert screen.controller.current == current
    assert "Paris" in screen.shown
    assert screen.told == []


def gauge(screen: Screen) -> str:
    return screen.widgets.status._gauge_text.text()


def test_figures_and_gauge_are_those_of_the_chat_on_the_screen(qtbot: QtBot, screen: Screen) -> None:
    first = screen.ask(qtbot)
    figures, used = screen.widgets.status.text, gauge(screen)
    assert "68 % accepted" in figures
    assert used != "context 0 of 2,048"
    screen.controller.new_chat()
    assert gauge(screen) == "context 0 of 2,048"
    assert not any(label.isVisible() for label in screen.widgets.status._figures.values())
    screen.decoder.rounds = [Round((" Yes",), 1, ".")]
    screen.ask(qtbot, "Sure?")
    assert "100 % accepted" in screen.widgets.status.text
    screen.open(qtbot, first)
    assert (screen.widgets.status.text, gauge(screen)) == (figures, used)
    screen.controller.set_pair(READY)
    assert gauge(screen) == used


def test_the_status_of_a_chat_does_not_follow_into_another(qtbot: QtBot, build: Callable[..., Screen]) -> None:
    screen = build(StoryDecoder(hold_at=2))
    screen.type_and_send(QUESTION)
    qtbot.waitUntil(screen.decoder.holding.is_set)
    screen.controller.new_chat()
    screen.controller._show_figures()
    assert "Answering" not in screen.widgets.status.text
    screen.controller.stop()
    screen.finish(qtbot)
    assert "Stopped" not in screen.widgets.status.text


def test_an_answer_of_which_nothing_was_saved_says_so() -> None:
    row = Message(
        id=2,
        conversation_id=1,
        parent_id=1,
        role=Role.ASSISTANT,
        text="",
        status=Status.INTERRUPTED,
        stop_reason="",
        error="",
        settings=None,
        stats="",
        created_at=0.0,
        updated_at=0.0,
    )
    (note,) = closing_notes(row, None)
    assert "before any of this answer was saved" in note
    (note,) = closing_notes(replace(row, text="Half"), None)
    assert "This is what had been saved" in note
