"""The transcript's rules: every token in its fate's format, found under the mouse, and only real text copied."""

import time
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PySide6.QtCore import QPoint, Qt, QUrl
from PySide6.QtGui import QTextCharFormat, QTextCursor
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from draftlight.chat.trace import Trace
from draftlight.engine.events import COMMITTED_FATES, TokenFate
from draftlight.settings import ColorScheme, Highlight, Palette
from draftlight.ui.chat.token_card import TokenCard
from draftlight.ui.chat.token_runs import displayable, utf16_length
from draftlight.ui.chat.transcript import TranscriptView
from draftlight.ui.chat.transcript_document import LONGEST_PARAGRAPH, LONGEST_SHOWN_TEXT, ShownMessage
from draftlight.ui.theme import Theme
from gui.scripted import STORY, Round, answer, play, round_events

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
MIXED = (
    Round((" e", "\u0301", "t"), 2, " é"),
    Round((" \U0001f600", "\U0001f1eb", "\U0001f1f7"), 3, " 漢"),
    Round(("字", "仮", "名"), 1, "交"),
    Round((FAMILY[0], FAMILY[1:3], FAMILY[3:]), 3, " ok"),
    Round((" a\nb", "\n\n", " c"), 3, " end"),
)


def drawn_formats(view: TranscriptView) -> list[QTextCharFormat]:
    """Return the format of each UTF-16 unit of the document."""
    found: list[QTextCharFormat] = []
    block = view.document().begin()
    while block.isValid():
        iterator = block.begin()
        while not iterator.atEnd():
            fragment = iterator.fragment()
            found += [fragment.charFormat()] * fragment.length()
            iterator += 1
        found.append(block.charFormat())
        block = block.next()
    return found


def fates_by_place(view: TranscriptView, theme: Theme) -> list[tuple[str, TokenFate | None]]:
    """Return each token's text and the fate in which its first unit is drawn."""
    formats = drawn_formats(view)
    shapes = {shape(drawn): fate for fate, drawn in theme.formats.items()}
    index = view._writer.index
    places = [index.entry(entry) for entry in range(len(index))]
    return [
        (place.owner.spans[place.number].text, shapes.get(shape(formats[place.start])))
        for place in places
        if place.end > place.start
    ]


def shape(drawn: QTextCharFormat) -> tuple[object, ...]:
    return drawn.underlineStyle(), drawn.fontStrikeOut(), drawn.fontOverline()


def copied(view: TranscriptView) -> str:
    view.selectAll()
    return view.createMimeDataFromSelection().text()


def test_every_token_is_drawn_in_its_fates_format(view: TranscriptView, theme: Theme) -> None:
    message = answer((*STORY, Round((), 0, " plain", "asked so")))
    view.show_messages([message])
    expected = [(span.text, span.fate) for span in message.spans]
    assert fates_by_place(view, theme) == expected
    assert {fate for _, fate in expected} == set(TokenFate) - {TokenFate.PENDING}


def test_pending_tokens_are_drawn_and_then_judged(view: TranscriptView, theme: Theme) -> None:
    message = ShownMessage("Model", trace=Trace())
    view.open_answer(message, "Reading …")
    assert message.trace is not None
    assert "Reading …" in view.toPlainText()
    drafted, verified = round_events(0, 0, STORY[1], 9)
    for event in drafted:
        view.spans_changed(message.trace.apply(event).first)
    view.flush_now()
    assert fates_by_place(view, theme) == [(text, TokenFate.PENDING) for text in STORY[1].drafted]
    assert "Reading" not in view.toPlainText()
    view.spans_changed(message.trace.apply(verified).first)
    view.flush_now()
    assert [fate for _, fate in fates_by_place(view, theme)] == [
        TokenFate.ACCEPTED,
        TokenFate.REJECTED,
        TokenFate.NOT_REACHED,
        TokenFate.CORRECTION,
    ]


def test_the_timer_draws_what_has_come(qtbot: QtBot, view: TranscriptView) -> None:
    message = ShownMessage("Model", trace=Trace())
    view.open_answer(message)
    assert message.trace is not None
    with qtbot.waitSignal(view.drawn, timeout=2000):
        for first in play(message.trace, STORY):
            view.spans_changed(first)
    assert "capital" in view.toPlainText()


def test_only_the_tail_of_the_document_is_replaced(view: TranscriptView) -> None:
    message = ShownMessage("Model", trace=Trace())
    view.open_answer(message)
    assert message.trace is not None
    play(message.trace, STORY * 10)
    view.spans_changed(0)
    while not view._writer.flush():
        pass
    end = view.document().characterCount()
    changes: list[int] = []
    view.document().contentsChange.connect(lambda position, _removed, _added: changes.append(position))
    for first in play(message.trace, STORY[:3]):
        view.spans_changed(first)
        view.flush_now()
    assert changes
    assert min(changes) >= end - 30


def test_copying_takes_no_text_that_was_not_committed(view: TranscriptView) -> None:
    message = answer(STORY)
    assert message.trace is not None
    view.show_messages([ShownMessage("You", "Hello\nthere", from_person=True), message])
    assert copied(view) == f"You\nHello\nthere\nModel\n{message.trace.text}\na note"


def test_a_line_break_that_was_not_committed_breaks_no_line(view: TranscriptView) -> None:
    view.show_messages([answer([Round((" one", "\n", "\n\nx"), 1, " two\n"), Round(("three",), 1, None)])])
    assert view.toPlainText() == "Model\n one⏎⏎⏎x two\nthree\na note"
    assert copied(view) == "Model\n one two\nthree\na note"


def test_copying_a_part_cuts_inside_tokens_where_the_selection_does(view: TranscriptView) -> None:
    view.show_messages([answer(STORY)])
    start = view.toPlainText().index("apital")
    end = view.toPlainText().index("ndon")
    cursor = QTextCursor(view.document())
    cursor.setPosition(start)
    cursor.setPosition(end, QTextCursor.MoveMode.KeepAnchor)
    view.setTextCursor(cursor)
    assert view.createMimeDataFromSelection().text() == "apital of France is"


@pytest.mark.parametrize("mode", Highlight)
def test_highlight_modes_show_what_they_say(view: TranscriptView, theme: Theme, mode: Highlight) -> None:
    message = answer(STORY)
    assert message.trace is not None
    view.show_messages([message])
    view.set_highlight(mode)
    fates = {fate for _, fate in fates_by_place(view, theme)}
    if mode is Highlight.ALL:
        assert {TokenFate.REJECTED, TokenFate.NOT_REACHED, TokenFate.BONUS} <= fates
        assert "London" in view.toPlainText()
    else:
        assert message.trace.text in view.toPlainText()
        assert fates == ({TokenFate.ACCEPTED, TokenFate.PLAIN} if mode is Highlight.ACCEPTED else {TokenFate.PLAIN})
    assert copied(view) == f"Model\n{message.trace.text}\na note"


def test_another_look_is_drawn_at_once_also_while_an_answer_comes(view: TranscriptView, theme: Theme) -> None:
    message = ShownMessage("Model", trace=Trace())
    view.show_messages([answer(STORY)])
    view.open_answer(message)
    assert message.trace is not None
    play(message.trace, STORY)
    theme.set_look(ColorScheme.DARK, Palette.SAFE)
    fills = {drawn.background().color().name() for drawn in drawn_formats(view)}
    assert theme.formats[TokenFate.REJECTED].background().color().name() in fills
    assert view.toPlainText().count("capital") == 2


@pytest.mark.parametrize("rounds", [STORY, MIXED], ids=["English", "emoji, accents, Chinese, line breaks"])
def test_the_token_under_the_mouse_is_found(view: TranscriptView, rounds: Sequence[Round]) -> None:
    view.show_messages([answer(rounds)])
    index = view._writer.index
    for entry in range(len(index)):
        place = index.entry(entry)
        text = place.owner.spans[place.number].text
        if (
            len(text) != len(text.strip("\n\u0301\u200d"))
            or "\n" in text
            or text in (FAMILY + "\U0001f1f7")
            or not text
        ):
            continue
        cursor = QTextCursor(view.document())
        cursor.setPosition(place.end - 1 if utf16_length(text) == len(text) else place.start)
        left = view.cursorRect(cursor)
        assert view.place_at(QPoint(left.left() + 2, left.center().y())) == place, text


def test_no_token_is_found_beside_the_text(view: TranscriptView) -> None:
    view.show_messages([answer(STORY[:1])])
    assert view.place_at(QPoint(880, 100)) is None
    assert view.place_at(QPoint(450, 590)) is None
    view.show_messages([])
    assert view.place_at(QPoint(10, 10)) is None


ODD = st.text(st.characters(codec=None), max_size=6) | st.sampled_from(
    ["\ud800", "\0", "\r\n", "\u2029", "\ufffc", FAMILY]
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(st.tuples(st.lists(ODD, max_size=3), st.integers(0, 3), ODD), max_size=6))
def test_each_token_stands_where_the_index_says(theme: Theme, parts: list[tuple[list[str], int, str]]) -> None:
    rounds = [Round(tuple(drafted), min(n, len(drafted)), own) for drafted, n, own in parts]
    view = TranscriptView(theme)
    message = ShownMessage("Model", trace=Trace())
    view.open_answer(message)
    assert message.trace is not None
    for played in rounds:
        for first in play(message.trace, [played]):
            view.spans_changed(first)
        view.flush_now()
    view.close_answer()
    index = view._writer.index
    shown = [index.entry(entry) for entry in range(len(index))]
    assert [place.number for place in shown] == list(range(len(message.spans)))
    for place in shown:
        cursor = QTextCursor(view.document())
        cursor.setPosition(place.start)
        cursor.setPosition(place.end, QTextCursor.MoveMode.KeepAnchor)
        span = message.spans[place.number]
        expected = displayable(span.text)
        if span.fate not in COMMITTED_FATES:
            expected = expected.replace("\n", "⏎")
        assert cursor.selectedText().replace("\u2029", "\n") == expected


def test_a_stopped_answer_is_shown_as_ended_before_the_engine_is(view: TranscriptView) -> None:
    message = ShownMessage("Model", trace=Trace())
    view.open_answer(message)
    assert message.trace is not None
    play(message.trace, STORY[:2])
    message.notes = ("Stopped by you.",)
    view.freeze()
    assert view.toPlainText().endswith("Stopped by you.")
    play(message.trace, STORY[2:3])
    view.spans_changed(0)
    view.flush_now()
    assert "a city" not in view.toPlainText()
    view.close_answer()
    assert "a city" in view.toPlainText()
    assert view.toPlainText().count("Stopped by you.") == 1


def test_removing_messages_leaves_the_ones_before(view: TranscriptView) -> None:
    question = ShownMessage("You", "A question", from_person=True)
    view.show_messages([question])
    alone = view.toPlainText()
    view.add_message(answer(STORY))
    view.drop_messages(1)
    assert view.toPlainText() == alone
    assert len(view._writer.index) == 0
    view.add_message(answer(STORY))
    assert copied(view).startswith("You\nA question\nModel\n The capital")


def test_nothing_is_loaded_and_no_link_opens(view: TranscriptView) -> None:
    assert view.loadResource(2, QUrl("file:///etc/hostname")) is None
    assert not view.openLinks()
    assert not view.openExternalLinks()
    assert not view.isUndoRedoEnabled()
    assert view.isReadOnly()


def test_the_keyboard_reaches_every_token_and_its_card(view: TranscriptView) -> None:
    view.show_messages([answer(STORY)])
    view.setFocus()
    card = view.findChild(TokenCard)
    assert card is not None
    QTest.keyClick(view, Qt.Key.Key_Left)
    QTest.keyClick(view, Qt.Key.Key_Return)
    assert card.isVisible()
    assert "Token ." in card.accessibleName()
    seen = set()
    for _ in range(200):
        seen.add(card.accessibleName())
        QTest.keyClick(view, Qt.Key.Key_Left)
    assert any("London" in name for name in seen)
    assert "␣The" in card.accessibleName()
    QTest.keyClick(view, Qt.Key.Key_Escape)
    assert not card.isVisible()


def test_a_long_paragraph_is_broken_in_the_view_alone(view: TranscriptView) -> None:
    message = ShownMessage("Model", trace=Trace())
    view.open_answer(message)
    assert message.trace is not None
    for _ in range(120):
        play(message.trace, STORY)
        view.spans_changed(max(0, len(message.spans) - 60))
        view.flush_now()
    while not view._writer.flush():
        pass
    blocks = []
    block = view.document().begin()
    while block.isValid():
        blocks.append(block.length())
        block = block.next()
    assert len(blocks) > 2
    assert max(blocks) < LONGEST_PARAGRAPH + 1000
    assert copied(view) == f"Model\n{message.trace.text}"


def test_a_pasted_megabyte_does_not_become_one_slow_paragraph(view: TranscriptView) -> None:
    view.add_message(ShownMessage("You", "x" * 1_000_000, from_person=True))
    assert len(view.toPlainText()) < LONGEST_SHOWN_TEXT + 200
    assert "980,000 more characters" in view.toPlainText()


def test_20_000_tokens_flush_quickly(view: TranscriptView) -> None:
    message = ShownMessage("Model", trace=Trace())
    view.open_answer(message)
    assert message.trace is not None
    times = []
    while len(message.spans) < 20_000:
        for first in play(message.trace, STORY):
            view.spans_changed(first)
        start = time.thread_time()
        view.flush_now()
        times.append(time.thread_time() - start)
    times.sort()
    p95 = times[int(0.95 * len(times))]
    assert p95 < 0.012, f"{1000 * p95:.1f} ms"  # of processor time; about 3 where this was written
