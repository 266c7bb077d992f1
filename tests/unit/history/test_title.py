"""The rules of a title made from a message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftlight.history.title import MAX_TITLE, title_of


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Hello", "Hello"),
        ("\n\t \n  Two   words \nrest", "Two words"),
        ("", ""),
        (" \n ", ""),
        ("\x00\x07bell", "bell"),
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 59 + "…"),
        ("word " * 20, "word " * 10 + "word word…"),
        ("漢" * 80, "漢" * 59 + "…"),
    ],
)
def test_the_title_is_the_first_line_that_says_something(text: str, title: str) -> None:
    assert title_of(text) == title


@pytest.mark.parametrize("whole", ["👩‍👩‍👧", "👍🏽", "é", "🇩🇪", "❤️"])
def test_the_cut_goes_around_what_looks_like_one_character(whole: str) -> None:
    for n in range(50, 61):
        kept = title_of("x" * n + whole * 10).removesuffix("…")[n:]
        assert kept == whole * (len(kept) // len(whole))


@given(st.text())
def test_a_title_is_one_short_line(text: str) -> None:
    title = title_of(text)
    assert len(title) <= MAX_TITLE
    assert title == title.strip()
    assert len(title.splitlines()) <= 1
