"""The card's rules: it says why a token has its fate, with the figures that decided it, and never covers the token."""

import math
from dataclasses import replace
from itertools import product

import pytest
from PySide6.QtCore import QRect
from PySide6.QtWidgets import QLabel, QWidget
from pytestqt.qtbot import QtBot

from draftlight.engine.events import DraftSource, Reasoning, TokenFate, TokenReport
from draftlight.ui.chat.token_card import CardContent, ProbabilityBars, TokenCard
from draftlight.ui.chat.token_facts import figures, probability, reason, title, visible
from draftlight.ui.theme import Theme
from gui.scripted import Round, round_events

DRAFTED, VERIFIED = round_events(4, 0, Round((" is", " London", " and"), 1, " Paris"), 9)
ACCEPTED, REJECTED, NOT_REACHED = VERIFIED.drafted


@pytest.fixture
def around(qtbot: QtBot) -> QWidget:
    widget = QWidget()
    qtbot.addWidget(widget)
    widget.resize(900, 700)
    widget.show()
    return widget


def told(card: TokenCard) -> str:
    return " ".join(label.text() for label in card.findChildren(QLabel) if not label.isHidden())


def test_a_rejection_names_both_tokens_and_both_scores(around: QWidget, theme: Theme) -> None:
    card = TokenCard(theme, around)
    card.open_at(CardContent(REJECTED, 4, greedy=False, verified=VERIFIED), QRect(100, 100, 50, 20))
    text = told(card)
    assert "Rejected, drafted by the draft model" in text
    assert "“␣Paris”, score 1.25; this one has -0.87" in text
    assert "rank 4" in text
    assert "5, verified in 11.0 ms" in text
    assert "ahead" not in text
    both_at_once = replace(VERIFIED, ahead_ms=4.0)
    card.open_at(CardContent(REJECTED, 4, greedy=False, verified=both_at_once), QRect(100, 100, 50, 20))
    assert "verified in 11.0 ms, the draft model ahead for 4.0 ms of it" in told(card)
    card.open_at(CardContent(REJECTED, 4, greedy=True), QRect(100, 100, 50, 20))
    assert "Greedy: not equal" in told(card)
    assert "logit" in told(card)


@pytest.mark.parametrize(
    ("token", "greedy", "words"),
    [
        (ACCEPTED, True, "Greedy: equal."),
        (ACCEPTED, False, "With the same noise the target draws the same token, 0.42 ahead of the next."),
        (NOT_REACHED, False, "never judged and does not count as rejected"),
        (VERIFIED.target_token, False, "in place of the one it rejected"),
        (DRAFTED[0].token, False, "has not verified it yet"),
        (TokenReport(1, "x", TokenFate.REJECTED), True, "The target chose another token."),
    ],
)
def test_each_fate_has_its_reason(token: TokenReport, words: str, *, greedy: bool) -> None:
    assert words in reason(token, greedy=greedy)


def test_a_plain_token_says_why_nothing_was_drafted() -> None:
    plain = TokenReport(1, "x", TokenFate.PLAIN)
    verified = replace(VERIFIED, drafted=(), target_token=plain, no_draft_reason="K is 0.")
    assert reason(plain, verified, greedy=False).endswith("Nothing was drafted in this round: K is 0.")


def test_a_drafted_token_that_was_not_worth_its_row_is_not_blamed_on_a_rejection() -> None:
    trimmed = replace(VERIFIED, n_submitted=2)
    assert "Left out of the verify" in reason(NOT_REACHED, trimmed, greedy=False)
    assert "never judged and does not count as rejected" in reason(NOT_REACHED, trimmed, greedy=False)
    assert "earlier token of this draft was rejected" in reason(
        NOT_REACHED, replace(VERIFIED, n_submitted=3), greedy=True
    )
    assert "earlier token of this draft was rejected" in reason(NOT_REACHED, VERIFIED, greedy=True), "an older trace"


def test_a_draft_that_was_left_out_whole_leaves_a_plain_token() -> None:
    drafted = tuple(replace(token, fate=TokenFate.NOT_REACHED) for token in VERIFIED.drafted)
    plain = TokenReport(1, "x", TokenFate.PLAIN)
    verified = replace(VERIFIED, drafted=drafted, target_token=plain, n_submitted=0)
    assert "Left out of the verify" in reason(drafted[0], verified, greedy=False)
    assert "was left out of the verify" in reason(plain, verified, greedy=False)


def test_a_copied_token_says_after_how_many_equal_ones() -> None:
    copied = replace(ACCEPTED, source=DraftSource.NGRAM, matched=5)
    assert title(copied) == "Accepted, copied after 5 equal tokens"
    assert title(replace(copied, matched=1)) == "Accepted, copied after 1 equal token"
    assert title(replace(copied, matched=0)) == "Accepted, drafted by n-grams of this chat", "an older trace"


def test_the_card_tells_what_was_foreseen_and_what_a_round_was_worth(around: QWidget, theme: Theme) -> None:
    reasoning = Reasoning(acceptance=(0.9, 0.62, 0.3), expected=2.4, cost=1.6, rate=1.25)
    verified = replace(VERIFIED, n_submitted=2, reasoning=reasoning, saved_ms=-3.2, audit=True)
    card = TokenCard(theme, around)
    card.open_at(CardContent(REJECTED, 4, greedy=False, verified=verified), QRect(100, 100, 50, 20))
    text = told(card)
    assert "62.0 % chance, if it is reached" in text
    assert (
        "2.4 tokens (E) for 1.6 plain steps (C); a plain step's time is worth 1.2 (\N{GREEK SMALL LETTER RHO})" in text
    )
    assert "about 3.2 ms lost, estimated" in text
    assert "held" in text
    own = verified.target_token
    assert own is not None
    card.open_at(CardContent(own, 4, greedy=False, verified=verified), QRect(100, 100, 50, 20))
    assert "Foreseen" not in told(card), "the target's own token was not foreseen"


def test_a_token_that_the_sampling_settings_cut_off_has_words_not_infinities() -> None:
    rejected = replace(REJECTED, score=-math.inf, margin=math.inf)
    chosen = TokenReport(1, "x", TokenFate.CORRECTION, score=0.5, margin=math.inf)
    sentences = [reason(rejected, greedy=False), reason(chosen, greedy=False)]
    values = [value for token in (rejected, chosen) for _, value in figures(token, greedy=False)]
    assert not [text for text in sentences + values if "inf" in text]
    assert "this one has none, cut off by the sampling settings" in sentences[0]
    assert "the only one that the sampling settings leave" in sentences[1]


def test_the_bars_tell_the_same_to_a_screen_reader(around: QWidget, theme: Theme) -> None:
    card = TokenCard(theme, around)
    card.open_at(CardContent(ACCEPTED, 4, greedy=False), QRect(100, 100, 50, 20))
    bars = card.findChild(ProbabilityBars)
    assert bars is not None
    assert "␣is: target 61.0 %, draft 48.0 %" in bars.accessibleDescription()
    assert not bars.grab().isNull()


@pytest.mark.parametrize("place", [QRect(x, y, 60, 20) for x, y in product((0, 420, 840), (0, 250, 340, 500, 680))])
def test_the_card_never_covers_its_token_and_stays_inside(around: QWidget, theme: Theme, place: QRect) -> None:
    around.resize(1100, 700)
    card = TokenCard(theme, around)
    card.open_at(CardContent(REJECTED, 4, greedy=False), place)
    assert not card.geometry().intersects(place)
    assert around.rect().contains(card.geometry())


def test_white_space_and_half_characters_are_made_visible() -> None:
    assert visible(" a\n\t") == "␣a⏎⇥"
    assert visible("") == "(part of a character)"


def test_small_probabilities_keep_their_digits() -> None:
    assert [probability(value) for value in (1.0, 0.123, 0.00042, 0.0)] == ["100.0 %", "12.3 %", "0.042 %", "0 %"]


def test_a_card_that_is_open_already_has_room_for_the_next_token(around: QWidget, theme: Theme) -> None:
    own = VERIFIED.target_token
    assert own is not None
    contents = [CardContent(token, 4, greedy=False, verified=VERIFIED) for token in (own, REJECTED)]
    fresh = TokenCard(theme, around)
    fresh.open_at(contents[1], QRect(0, 0, 9, 9))
    card = TokenCard(theme, around)
    for content in contents:
        card.open_at(content, QRect(0, 0, 9, 9))
    assert card.height() == fresh.height()


def test_a_card_with_little_room_shows_fewer_alternatives(around: QWidget, theme: Theme) -> None:
    around.resize(900, 460)
    card = TokenCard(theme, around)
    reasoning = Reasoning((0.9, 0.62, 0.3), 2.4, 1.6, 1.25)
    verified = replace(VERIFIED, n_submitted=2, reasoning=reasoning, saved_ms=6.0)
    card.open_at(CardContent(REJECTED, 4, greedy=False, verified=verified), QRect(100, 100, 50, 20))
    assert around.rect().contains(card.geometry())
    bars = card.findChild(ProbabilityBars)
    assert bars is not None
    assert bars.accessibleDescription().startswith("␣Paris")
    assert 2 <= len(bars.accessibleDescription().split(";")) < 6
