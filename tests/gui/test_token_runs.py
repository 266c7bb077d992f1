"""The rules of runs and of the index: no character is cut, no text is lost, each place has one token."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftlight.engine.events import TokenFate
from draftlight.ui.chat.token_runs import Piece, TokenIndex, displayable, runs, utf16_length

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"


def test_a_cluster_of_several_tokens_is_drawn_whole_in_its_worst_fate() -> None:
    family = [Piece(FAMILY[0], TokenFate.ACCEPTED), Piece(FAMILY[1:], TokenFate.REJECTED)]
    assert runs(family) == [Piece(FAMILY, TokenFate.REJECTED)]
    accent = [Piece("cafe", TokenFate.ACCEPTED), Piece("\u0301s", TokenFate.CORRECTION)]
    assert runs(accent) == [Piece("caf", TokenFate.ACCEPTED), Piece("e\u0301s", TokenFate.CORRECTION)]


@pytest.mark.parametrize("after", ["\U00018d1f", "\U0001f600", FAMILY])
def test_no_character_behind_thai_text_is_cut(after: str) -> None:
    assert runs([Piece("\u0e01", TokenFate.PENDING), Piece(after, TokenFate.PENDING)]) == [
        Piece("\u0e01" + after, TokenFate.PENDING)
    ]


@given(st.lists(st.tuples(st.text(max_size=4), st.sampled_from(list(TokenFate))), max_size=12))
def test_runs_keep_the_text_and_merge_neighbours(pieces: list[tuple[str, TokenFate]]) -> None:
    given_pieces = [Piece(displayable(text), fate) for text, fate in pieces]
    merged = runs(given_pieces)
    assert "".join(run.text for run in merged) == "".join(piece.text for piece in given_pieces)
    assert all(one.fate is not other.fate for one, other in pairwise(merged))


@given(st.text(st.characters(codec=None)))
def test_what_is_displayed_has_no_character_that_qt_cannot_hold(text: str) -> None:
    shown = displayable(text)
    shown.encode("utf-16-le")  # no lone surrogate
    assert not set(shown) & {"\0", "\r", "\u2029", "\ufffc", "\ufdd0", "\ufdd1"}
    assert utf16_length(shown) == len(shown.encode("utf-16-le")) // 2


def test_the_index_finds_tokens_forgets_the_tail_and_names_what_is_not_copied() -> None:
    index: TokenIndex[str] = TokenIndex()
    for number, (start, length, copied) in enumerate([(5, 3, True), (8, 0, True), (8, 2, False), (10, 4, True)]):
        index.add("answer", number, start, length, copied=copied)
    assert index.at(4) is None
    assert [index.at(place).number for place in (5, 7, 8, 9, 13)] == [0, 0, 2, 2, 3]  # type: ignore[union-attr]
    assert index.at(14) is None
    assert index.uncopied(0, 100) == [(8, 10)]
    assert index.uncopied(9, 100) == [(9, 10)]
    assert index.uncopied(10, 100) == []
    assert index.drop_tokens("another", 0) is None
    assert index.drop_tokens("answer", 2) == 8
    assert len(index) == 2
    index.drop_from(8)
    assert len(index) == 1
