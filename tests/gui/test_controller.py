"""The rules of a conversation on the screen: what is typed is never lost, Stop shows at once, disk and screen agree."""

import threading
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLabel, QPlainTextEdit
from pytestqt.qtbot import QtBot

from draftlight.chat.figures import AUDIT_FAILED
from draftlight.engine.events import TokenFate
from draftlight.errors import UserError
from draftlight.history.records import Role, Status
from draftlight.history.store import HistoryStore
from draftlight.ui.chat.composer import Composer
from gui.opened import QUESTION, READY, Screen
from gui.scripted import STORY, Round, StoryDecoder


def test_a_sent_message_is_answered_saved_and_coloured(qtbot: QtBot, screen: Screen) -> None:
    screen.type_and_send(QUESTION)
    assert screen.widgets.composer.text == ""
    assert QUESTION in screen.shown
    screen.finish(qtbot)
    saved = screen.store.messages(screen.controller.current or 0)
    assert [message.role for message in saved] == [Role.USER, Role.ASSISTANT]
    assert saved[1].status is Status.COMPLETE
    answer = screen.widgets.transcript.messages[-1]
    assert answer.trace is not None
    assert answer.trace.text == saved[1].text
    assert {span.fate for span in answer.spans} >= {TokenFate.ACCEPTED, TokenFate.REJECTED}
    assert "seed 7" in screen.shown
    assert "big-target, drafted by small-draft, K = 3" in screen.shown
    assert screen.widgets.conversations.titles == [QUESTION]
    assert "68 % accepted" in screen.widgets.status.text
    assert "speed-up not measured yet" in screen.widgets.status.text


def test_opening_a_chat_again_shows_the_same_text_and_fates(qtbot: QtBot, screen: Screen) -> None:
    screen.type_and_send(QUESTION)
    screen.finish(qtbot)
    before, spans = screen.shown, list(screen.widgets.transcript.messages[-1].spans)
    current = screen.controller.current
    assert current is not None
    screen.controller.new_chat()
    assert screen.shown == ""
    screen.controller.open_conversation(current)
    qtbot.waitUntil(lambda: bool(screen.widgets.transcript.messages))
    assert screen.shown == before
    assert [(span.text, span.fate) for span in screen.widgets.transcript.messages[-1].spans] == [
        (span.text, span.fate) for span in spans
    ]


def test_stop_shows_at_once_however_long_the_engine_takes(qtbot: QtBot, build: Callable[..., Screen]) -> None:
    screen = build(StoryDecoder(hold_at=3))
    screen.decoder.slow_to_stop.clear()
    screen.type_and_send(QUESTION)
    qtbot.waitUntil(screen.decoder.holding.is_set)
    screen.controller.stop()
    assert "Stopped by you." in screen.shown
    assert "Stopped" in screen.widgets.status.text
    assert screen.controller.busy
    assert screen.button.text() == "Send"
    assert not screen.button.isEnabled()
    screen.decoder.slow_to_stop.set()
    screen.finish(qtbot)
    assert screen.shown.count("Stopped by you.") == 1
    saved = screen.store.messages(screen.controller.current or 0)[-1]
    assert saved.status is Status.STOPPED
    assert saved.text
    assert saved.text == screen.widgets.transcript.messages[-1].trace.text  # type: ignore[union-attr]


def test_stop_shows_at_once_while_the_prompt_is_read(qtbot: QtBot, build: Callable[..., Screen]) -> None:
    screen = build(StoryDecoder(hold_at=0))
    screen.type_and_send(QUESTION)
    qtbot.waitUntil(lambda: "Reading the prompt" in screen.shown)
    screen.controller.stop()
    assert "Stopped by you." in screen.shown
    screen.finish(qtbot)
    assert "Reading the prompt" not in screen.shown


def test_a_message_that_cannot_be_stored_goes_back_to_where_it_was_typed(
    qtbot: QtBot, screen: Screen, tmp_path: Path
) -> None:
    blocker = HistoryStore.open(tmp_path / "chats.db")
    current = screen.store.create_conversation()
    screen.controller.open_conversation(current.id)
    qtbot.waitUntil(lambda: screen.button.text() == "Send" and screen.controller._reading is None)
    blocker._connection.execute("DELETE FROM conversations")
    screen.type_and_send("A long thought")
    screen.finish(qtbot)
    assert screen.widgets.composer.text == "A long thought"
    assert screen.widgets.transcript.messages == []
    assert any("no longer exists" in failure for failure in screen.told)
    blocker.close()


def test_what_was_typed_meanwhile_is_kept_behind_a_restored_text(qtbot: QtBot) -> None:
    composer = Composer()
    qtbot.addWidget(composer)
    composer.restore("first")
    composer.restore("zeroth")
    assert composer.text == "zeroth\nfirst"


def test_while_an_answer_comes_no_hint_says_that_enter_sends(qtbot: QtBot) -> None:
    composer = Composer()
    qtbot.addWidget(composer)
    shown = composer.findChild(QLabel)
    assert isinstance(shown, QLabel)
    assert "Enter sends" in shown.text()
    composer.set_answering(answering=True)
    assert "Enter sends" not in shown.text()
    assert "Esc" in shown.text()


def test_a_failed_answer_says_why_and_keeps_the_question(qtbot: QtBot, screen: Screen) -> None:
    screen.decoder.failure = UserError("The model broke.", "Load it again.")
    screen.type_and_send(QUESTION)
    screen.finish(qtbot)
    assert QUESTION in screen.shown
    assert "The model broke. Load it again." in screen.shown
    screen.decoder.failure = None
    screen.controller.regenerate()
    screen.finish(qtbot)
    assert "The model broke" not in screen.shown
    assert "Paris" in screen.shown


def test_a_question_whose_answer_never_began_can_be_answered_again(qtbot: QtBot, build: Callable[..., Screen]) -> None:
    screen = build(StoryDecoder(n_ctx=300))
    screen.type_and_send("x" * 400)
    screen.finish(qtbot)
    assert "No answer: " in screen.shown
    screen.decoder._n_ctx = 3000
    screen.controller.regenerate()
    screen.finish(qtbot)
    assert "No answer: " not in screen.shown
    assert "Paris" in screen.shown
    assert len(screen.widgets.transcript.messages) == 2


def test_a_text_that_waits_for_the_models_is_kept_by_escape(qtbot: QtBot, screen: Screen) -> None:
    screen.controller.set_pair(None)
    screen.type_and_send(QUESTION)
    screen.controller.stop()
    screen.controller.set_pair(READY)
    assert screen.widgets.composer.text == QUESTION
    assert not screen.controller.busy
    QTest.mouseClick(screen.button, Qt.MouseButton.LeftButton)
    screen.finish(qtbot)
    assert "Paris" in screen.shown


def test_a_bug_in_the_engine_does_not_take_the_window_with_it(qtbot: QtBot, screen: Screen) -> None:
    screen.decoder.failure = ZeroDivisionError("oops")
    screen.type_and_send(QUESTION)
    screen.finish(qtbot)
    assert "A fault in the program ended this answer." in screen.shown
    assert screen.button.text() == "Send"


def test_answering_again_replaces_the_answer_and_keeps_the_old_one_on_disk(qtbot: QtBot, screen: Screen) -> None:
    screen.type_and_send(QUESTION)
    screen.finish(qtbot)
    first = screen.widgets.transcript.messages[-1].message_id
    screen.controller.regenerate()
    screen.finish(qtbot)
    second = screen.widgets.transcript.messages[-1].message_id
    assert len(screen.widgets.transcript.messages) == 2
    assert first is not None
    assert first != second
    assert screen.store.message(first).text


def test_another_chat_can_be_read_while_an_answer_comes(qtbot: QtBot, build: Callable[..., Screen]) -> None:
    screen = build(StoryDecoder(hold_at=2))
    screen.type_and_send(QUESTION)
    qtbot.waitUntil(screen.decoder.holding.is_set)
    running = screen.controller.current
    assert running is not None
    screen.controller.new_chat()
    assert screen.shown == ""
    assert screen.controller.busy
    screen.controller.open_conversation(running)
    qtbot.waitUntil(lambda: "capital of France" in screen.shown)
    assert screen.shown.count(QUESTION) == 1
    screen.decoder.go_on.set()
    screen.finish(qtbot)
    assert screen.shown.count(QUESTION) == 1
    assert "town" in screen.shown
    assert len(screen.widgets.transcript.messages) == 2


def test_a_round_without_a_draft_says_why(qtbot: QtBot, build: Callable[..., Screen]) -> None:
    why = "the draft length is 0."
    screen = build(StoryDecoder([Round((), 0, " Yes", why), Round((), 0, ".", why)]))
    screen.type_and_send("Well?")
    screen.finish(qtbot)
    assert f"Nothing was drafted: {why}" in screen.shown


def test_turns_that_do_not_fit_are_told_above_the_answer(qtbot: QtBot, build: Callable[..., Screen]) -> None:
    screen = build(StoryDecoder(STORY[:2], n_ctx=600))
    for _ in range(4):
        screen.type_and_send("x" * 150)
        screen.finish(qtbot)
    assert "no longer fit" in screen.shown
    assert screen.shown.index("no longer fit") > screen.shown.index("x" * 150)


def test_nothing_is_sent_without_models(qtbot: QtBot, screen: Screen) -> None:
    screen.controller.set_pair(None, "No model is loaded")
    screen.type_and_send(QUESTION)
    assert screen.widgets.composer.text == QUESTION
    assert not screen.engine.busy
    screen.controller.set_pair(READY)
    QTest.mouseClick(screen.button, Qt.MouseButton.LeftButton)
    screen.finish(qtbot)
    assert "Paris" in screen.shown


def test_odd_characters_and_a_megabyte_can_be_typed(qtbot: QtBot, screen: Screen) -> None:
    screen.type_and_send("a\ud800b\0c 漢字 \U0001f600")
    screen.finish(qtbot)
    assert "Paris" in screen.shown
    screen.controller.new_chat()
    screen.type_and_send("x" * 1_000_000)
    screen.finish(qtbot)
    saved = screen.store.messages(screen.controller.current or 0)
    assert len(saved[0].text) == 1_000_000
    assert "No answer: " in screen.shown
    assert "980,000 more characters" in screen.shown


def test_deleting_can_be_undone(qtbot: QtBot, screen: Screen) -> None:
    screen.type_and_send(QUESTION)
    screen.finish(qtbot)
    screen.widgets.conversations.delete_current()
    assert screen.widgets.conversations.titles == []
    assert screen.shown == ""
    screen.widgets.conversations.undo_delete()
    qtbot.waitUntil(lambda: "Paris" in screen.shown)
    assert screen.widgets.conversations.titles == [QUESTION]


def test_enter_sends_and_shift_enter_breaks_the_line(qtbot: QtBot) -> None:
    composer = Composer()
    qtbot.addWidget(composer)
    entry = composer.findChild(QPlainTextEdit)
    assert entry is not None
    QTest.keyClicks(entry, "one")
    QTest.keyClick(entry, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    QTest.keyClicks(entry, "two")
    with qtbot.waitSignal(composer.sent) as sent:
        QTest.keyClick(entry, Qt.Key.Key_Return)
    assert sent.args == ["one\ntwo"]


def test_the_engine_thread_is_free_after_a_stop(qtbot: QtBot, build: Callable[..., Screen]) -> None:
    screen = build(StoryDecoder(hold_at=1))
    screen.type_and_send(QUESTION)
    qtbot.waitUntil(screen.decoder.holding.is_set)
    screen.controller.stop()
    screen.finish(qtbot)
    assert threading.active_count() < 10
    screen.decoder.hold_at = None
    screen.type_and_send("And again?")
    screen.finish(qtbot)
    assert screen.shown.count("town") == 1


def test_after_an_answer_the_figures_say_how_sure_its_text_is_and_what_speed_is_estimated(
    qtbot: QtBot, build: Callable[..., Screen]
) -> None:
    screen = build(StoryDecoder([Round((" So",), 1, " so", saved_ms=13.3)] * 20))
    conversation = screen.ask(qtbot)
    assert "no near-ties · about 2.0x plain, estimated" in screen.widgets.status.text
    assert "no near-ties · about 2.0x plain, estimated · seed 7" in screen.shown
    screen.controller.new_chat()
    assert "plain" not in screen.widgets.status.text.replace("speed-up not measured yet", "")
    screen.open(qtbot, conversation)
    assert "no near-ties · about 2.0x plain, estimated" in screen.widgets.status.text, "the same from disk"


def test_an_audit_that_fails_is_told_at_once_and_stays_below_the_answer(
    qtbot: QtBot, build: Callable[..., Screen]
) -> None:
    screen = build(StoryDecoder([Round((" So",), 1, " so", audit=False)]))
    screen.ask(qtbot)
    assert screen.told == [AUDIT_FAILED]
    assert AUDIT_FAILED in screen.shown
