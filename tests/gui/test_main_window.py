"""The window's rules: it opens without models, loads them after, remembers choices, and closes at any time."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QTextCursor
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QComboBox, QMessageBox, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from draftlight.engine.decoding import Mode
from draftlight.errors import UserError
from draftlight.history.records import Status
from draftlight.settings import SHOWN_LENGTH, ColorScheme, DraftLength, Highlight, PairSettings, Settings
from gui.opened import Opened
from gui.scripted import PAIR, StoryDecoder


def test_a_message_goes_all_the_way_from_the_keyboard_to_the_disk(qtbot: QtBot, ready: Callable[..., Opened]) -> None:
    opened = ready()
    assert opened.window.welcome.isVisible()
    opened.send("What is the capital of France?")
    assert opened.window.transcript.isVisible()
    opened.finish(qtbot)
    assert "Paris" in opened.window.transcript.toPlainText()
    assert opened.decoder.requests[0].draft_length == 3
    assert opened.decoder.requests[0].sampling.temperature == pytest.approx(0.8)


def test_an_example_is_ready_to_be_sent_and_gives_way_to_the_next(ready: Callable[..., Opened]) -> None:
    opened = ready()
    entry = opened.window.composer.focusProxy()
    assert entry is not None
    examples = [button for button in opened.window.welcome.findChildren(QPushButton) if button.isVisible()]
    for example in examples[:2]:
        QTest.mouseClick(example, Qt.MouseButton.LeftButton)
        assert opened.window.composer.text == example.text()
        assert QApplication.focusWidget() is entry
    QTest.keyClicks(entry, " Really.")
    QTest.mouseClick(examples[0], Qt.MouseButton.LeftButton)
    assert f"{examples[1].text()} Really." in opened.window.composer.text, "own words stay"


def test_a_message_entered_while_the_models_load_goes_out_when_they_are_ready(
    qtbot: QtBot, opening: Callable[..., Opened]
) -> None:
    opened = opening()
    opened.window.start(None)
    opened.send("Hello?")
    assert opened.window.composer.text == "Hello?"
    qtbot.waitUntil(lambda: bool(opened.window.transcript.messages))
    assert opened.window.composer.text == ""
    opened.finish(qtbot)
    assert "Paris" in opened.window.transcript.toPlainText()


def test_closing_while_an_answer_comes_ends_everything_and_keeps_the_answer(
    qtbot: QtBot, ready: Callable[..., Opened]
) -> None:
    opened = ready(StoryDecoder(hold_at=2))
    opened.send("Go on")
    qtbot.waitUntil(opened.decoder.holding.is_set)
    opened.window.close()
    assert opened.window.shutdown()
    conversation = opened.store.conversations()[0]
    answer = opened.store.messages(conversation.id)[-1]
    assert answer.status is Status.STOPPED
    assert answer.text.startswith(" The capital of France")


def test_escape_stops(qtbot: QtBot, ready: Callable[..., Opened]) -> None:
    opened = ready(StoryDecoder(hold_at=2))
    opened.send("Go on")
    qtbot.waitUntil(opened.decoder.holding.is_set)
    opened.act("Stop")
    assert "Stopped by you." in opened.window.transcript.toPlainText()
    opened.finish(qtbot)


def test_without_any_model_the_window_says_what_to_do_and_old_chats_open(
    qtbot: QtBot, ready: Callable[..., Opened], opening: Callable[..., Opened]
) -> None:
    first = ready()
    first.send("What is the capital of France?")
    first.finish(qtbot)
    first.window.close()
    assert first.window.shutdown()
    opened = opening(pair=None)
    opened.window.start(None)
    qtbot.waitUntil(lambda: opened.window.welcome.shows_no_model)
    assert opened.window.welcome.isVisible()
    opened.send("Hello?")
    assert opened.window.composer.text == "Hello?"
    opened.window.controller.open_conversation(opened.store.conversations()[0].id)
    qtbot.waitUntil(lambda: "Paris" in opened.window.transcript.toPlainText())
    assert opened.window.transcript.isVisible()
    assert "London" in opened.window.transcript.toPlainText()


def test_a_pair_that_cannot_be_loaded_is_told_with_the_remedy(qtbot: QtBot, opening: Callable[..., Opened]) -> None:
    opened = opening()
    opened.loader.failure = UserError("The file is damaged.", "Fetch it again.")
    with qtbot.waitSignal(opened.window.loader.ended):
        opened.window.start(None)
    assert opened.window.notices.sentences == ["The file is damaged. Fetch it again."]
    assert opened.window.notices.isVisible()
    opened.window.notices.clear()
    assert not opened.window.notices.isVisible()


def test_the_loaders_notices_are_told(qtbot: QtBot, opening: Callable[..., Opened]) -> None:
    opened = opening()
    opened.loader.notices = ("The draft cannot be used: n-grams draft instead.",)
    with qtbot.waitSignal(opened.window.loader.ended):
        opened.window.start(None)
    assert opened.window.notices.sentences == list(opened.loader.notices)


def test_the_last_chat_and_the_choices_are_there_again(
    qtbot: QtBot, ready: Callable[..., Opened], opening: Callable[..., Opened]
) -> None:
    first = ready()
    first.send("What is the capital of France?")
    first.finish(qtbot)
    first.act("Next highlight mode")
    first.act("Dark")
    first.window.close()
    kept = first.saved[-1]
    assert kept.highlight is Highlight.ACCEPTED
    assert kept.color_scheme is ColorScheme.DARK
    assert kept.pair == PAIR
    assert first.window.shutdown()
    again = opening(last_conversation=kept.last_conversation)
    again.window.start(None)
    qtbot.waitUntil(lambda: "Paris" in again.window.transcript.toPlainText())


def test_the_starter_pair_shows_drafts_and_any_other_pair_is_left_to_auto(
    qtbot: QtBot, ready: Callable[..., Opened]
) -> None:
    opened = ready()
    shown: DraftLength = opened.window.picker.draft_length
    assert shown == SHOWN_LENGTH
    with qtbot.waitSignal(opened.window.loader.ended):
        opened.window.load(PairSettings(Path("/models/other.gguf"), ngram=True))
    assert opened.window.picker.draft_length == "auto"
    opened.send("What is the capital of France?")
    opened.finish(qtbot)
    (request,) = opened.decoder.requests
    assert (request.draft_length, request.mode) == (None, None)
    opened.window.close()
    assert opened.saved[-1].draft_length is None, "nothing was chosen"


def test_a_draft_length_that_was_chosen_stays_with_every_pair(qtbot: QtBot, ready: Callable[..., Opened]) -> None:
    opened = ready(draft_length="auto", mode="exact")
    assert opened.window.picker.draft_length == "auto"
    lengths = next(
        box for box in opened.window.picker.findChildren(QComboBox) if box.accessibleName() == "Draft length"
    )
    lengths.setCurrentIndex(lengths.findData(7))
    lengths.activated.emit(lengths.currentIndex())
    with qtbot.waitSignal(opened.window.loader.ended):
        opened.window.load(PairSettings(Path("/models/other.gguf")))
    opened.send("What is the capital of France?")
    opened.finish(qtbot)
    (request,) = opened.decoder.requests
    assert (request.draft_length, request.mode) == (7, Mode.EXACT)
    opened.window.close()
    assert (opened.saved[-1].draft_length, opened.saved[-1].mode) == (7, Mode.EXACT)


def test_why_a_very_long_first_message_has_no_answer_is_in_sight(qtbot: QtBot, ready: Callable[..., Opened]) -> None:
    opened = ready(StoryDecoder(n_ctx=64))
    opened.window.controller.send("too long " * 100_000)
    opened.finish(qtbot)
    view = opened.window.transcript
    bar = view.verticalScrollBar()
    qtbot.waitUntil(lambda: bar.maximum() > 0)
    qtbot.wait(100)
    assert "too long for the model" in view.toPlainText()[-300:]
    end = QTextCursor(view.document())
    end.movePosition(QTextCursor.MoveOperation.End)
    assert view.viewport().rect().contains(view.cursorRect(end).center())


def test_the_window_fits_a_small_screen_also_after_an_answer(qtbot: QtBot, ready: Callable[..., Opened]) -> None:
    opened = ready()
    opened.send("What is the capital of France?")
    opened.finish(qtbot)
    assert opened.window.minimumSizeHint().width() <= 1024


def test_settings_that_cannot_be_saved_are_told_and_closing_goes_on(
    monkeypatch: pytest.MonkeyPatch, ready: Callable[..., Opened]
) -> None:
    opened = ready()

    def refuse(_settings: Settings) -> None:
        raise UserError("The disk is full.", "Free some space.")

    monkeypatch.setattr(opened.window, "_parts", replace(opened.window._parts, save_settings=refuse))
    opened.window.close()
    assert opened.window.notices.sentences == ["The disk is full. Free some space."]
    assert not opened.window.isVisible()


def test_every_shortcut_is_listed_and_none_is_given_twice(ready: Callable[..., Opened]) -> None:
    opened = ready()
    keys = [
        action.shortcut().toString()
        for action in opened.window.findChildren(QAction)
        if not action.shortcut().isEmpty()
    ]
    assert len(keys) == len(set(keys)) > 10
    opened.act("Shortcuts")
    box = opened.window.findChild(QMessageBox)
    assert box is not None
    listed = box.text()
    assert [key for key in keys if key not in listed] == []
    box.close()


def test_what_takes_the_keyboard_has_a_name_for_screen_readers(ready: Callable[..., Opened]) -> None:
    opened = ready()
    nameless = [
        widget
        for widget in opened.window.findChildren(QWidget)
        if widget.focusPolicy() & Qt.FocusPolicy.TabFocus
        and widget.isVisible()
        and not widget.accessibleName()
        and not getattr(widget, "text", lambda: "")()
        and type(widget).__module__.startswith("draftlight")
    ]
    assert nameless == []


def test_the_chats_can_be_hidden(ready: Callable[..., Opened]) -> None:
    opened = ready()
    opened.act("Show or hide the chats")
    assert not opened.window.conversations.isVisible()
    opened.act("Show or hide the chats")
    assert opened.window.conversations.isVisible()
