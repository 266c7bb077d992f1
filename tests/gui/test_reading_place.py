"""The reader's rules: what is written or drawn anew moves neither the place that is read nor the selection."""

import pytest
from PySide6.QtCore import QPoint
from PySide6.QtGui import QTextCursor
from pytestqt.qtbot import QtBot

from draftlight.chat.trace import Trace
from draftlight.settings import ColorScheme, Highlight, Palette
from draftlight.ui.chat.token_runs import Place
from draftlight.ui.chat.transcript import TranscriptView
from draftlight.ui.chat.transcript_document import ShownMessage
from draftlight.ui.theme import Theme
from gui.scripted import STORY, answer, play


def test_a_reader_who_scrolled_up_is_left_alone(view: TranscriptView) -> None:
    view.show_messages([answer(STORY * 30)])
    message = ShownMessage("Model", trace=Trace())
    view.open_answer(message)
    assert message.trace is not None
    bar = view.verticalScrollBar()
    assert bar.value() == bar.maximum() > 0
    play(message.trace, STORY * 5)
    view.spans_changed(0)
    view.flush_now()
    assert bar.value() == bar.maximum()
    bar.setValue(40)
    play(message.trace, STORY * 5)
    view.spans_changed(len(message.spans) // 2)
    view.flush_now()
    assert bar.value() == 40


def test_a_selection_does_not_grow_while_text_comes(view: TranscriptView) -> None:
    message = ShownMessage("Model", trace=Trace())
    view.open_answer(message)
    assert message.trace is not None
    play(message.trace, STORY)
    view.spans_changed(0)
    view.flush_now()
    view.selectAll()
    before = view.textCursor().selectedText()
    play(message.trace, STORY)
    view.spans_changed(len(message.spans) // 2)
    view.flush_now()
    assert view.textCursor().selectedText() == before


def place_of(view: TranscriptView, token: int) -> Place[ShownMessage]:
    """Return where a token of the second message stands."""
    index = view._writer.index
    places = [place for entry in range(len(index)) if (place := index.entry(entry)).owner is view.messages[1]]
    return next(place for place in places if place.number == token)


def height_of(view: TranscriptView, token: int) -> int:
    """Return how far below the viewport's top it stands, in pixels."""
    cursor = QTextCursor(view.document())
    cursor.setPosition(place_of(view, token).start)
    return view.cursorRect(cursor).top()


def scroll_to(view: TranscriptView, token: int) -> None:
    view.verticalScrollBar().setValue(view.verticalScrollBar().value() + height_of(view, token) - 3)


@pytest.fixture
def long(view: TranscriptView) -> TranscriptView:
    """Show a chat of several screens, scrolled to an accepted token in its middle."""
    view.show_messages(
        [ShownMessage("You", "Why?", from_person=True), answer(STORY * 60), answer(STORY * 60)],
    )
    scroll_to(view, accepted(view))
    return view


def accepted(view: TranscriptView) -> int:
    """Return the number of an accepted token in the middle of the second message."""
    spans = view.messages[1].spans
    return next(number for number in range(len(spans) // 2, len(spans)) if spans[number].text == " Seine")


def test_another_highlight_mode_keeps_the_place_that_is_read(long: TranscriptView) -> None:
    for mode in (Highlight.ACCEPTED, Highlight.OFF, Highlight.ALL):
        long.set_highlight(mode)
        assert abs(height_of(long, accepted(long))) < 40, mode  # within the line that was the first


def test_another_look_keeps_the_place_that_is_read(long: TranscriptView, theme: Theme) -> None:
    before = long.verticalScrollBar().value()
    assert before > 500
    theme.set_look(ColorScheme.DARK, Palette.SHAPES)
    assert long.verticalScrollBar().value() == before


def test_another_highlight_mode_keeps_a_reader_at_the_bottom_there(long: TranscriptView) -> None:
    bar = long.verticalScrollBar()
    bar.setValue(bar.maximum())
    for mode in (Highlight.ACCEPTED, Highlight.ALL):
        long.set_highlight(mode)
        assert bar.value() == bar.maximum()


def test_another_highlight_mode_keeps_the_selected_text(long: TranscriptView) -> None:
    place = place_of(long, accepted(long))
    cursor = QTextCursor(long.document())
    cursor.setPosition(place.start + 1)
    cursor.setPosition(place.end, QTextCursor.MoveMode.KeepAnchor)
    long.setTextCursor(cursor)
    selected = cursor.selectedText()
    assert selected == "Seine"
    for mode in (Highlight.ACCEPTED, Highlight.OFF, Highlight.ALL):
        long.set_highlight(mode)
        assert long.textCursor().selectedText() == selected


def test_every_place_outside_the_tokens_is_found_again(view: TranscriptView) -> None:
    """Headings, a person's text, remarks, notes."""
    told = answer(STORY)
    told.remarks = ("The oldest turn no longer fits.",)
    view.show_messages([ShownMessage("You", "Why?", from_person=True), told, answer(STORY)])
    for word in ("You", "Why", "Model", "oldest turn", "a note"):
        position = view.toPlainText().index(word)
        anchor = view._writer.anchor_at(position)
        assert anchor is not None
        view.set_highlight(Highlight.OFF)
        found = view._writer.position_of(anchor)
        assert view.toPlainText()[found:].startswith(word)
        view.set_highlight(Highlight.ALL)


def test_an_empty_chat_can_be_drawn_anew(view: TranscriptView) -> None:
    view.set_highlight(Highlight.OFF)
    assert view.toPlainText() == ""
    assert view.place_at(QPoint(5, 5)) is None


def test_a_window_that_is_made_smaller_keeps_the_end_in_sight_and_a_reader_further_up_in_place(
    qtbot: QtBot, view: TranscriptView
) -> None:
    view.show_messages([answer(STORY * 60)])
    bar = view.verticalScrollBar()
    view.resize(500, 400)
    qtbot.waitUntil(lambda: bar.value() == bar.maximum() > 0)
    bar.setValue(10)
    view.resize(900, 600)
    qtbot.wait(20)
    assert bar.value() < bar.maximum()


def test_the_column_keeps_its_width_from_chat_to_chat(view: TranscriptView) -> None:
    view.show_messages([answer(STORY)])
    margins = []
    for messages in ([], [answer(STORY)]):
        view.show_messages(messages)
        margins.append(view.document().rootFrame().frameFormat().leftMargin())
    assert margins[0] == margins[1] >= 20
