"""Bytes to text across token borders, and stop strings that span them."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from draftlight.engine.text import AnswerText, Utf8Stream


@given(text=st.text(), cuts=st.lists(st.integers(0, 200)))
def test_text_is_the_same_wherever_its_bytes_are_cut(text: str, cuts: list[int]) -> None:
    data = text.encode("utf-8", "replace")
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    stream = Utf8Stream()
    pieces = [stream.feed(data[a:b]) for a, b in itertools.pairwise(places)]
    assert "".join(pieces) == data.decode()


def test_a_split_character_appears_with_the_token_that_completes_it() -> None:
    stream = Utf8Stream()
    assert [stream.feed(piece) for piece in (b"\xf0\x9f", b"\x91", b"\xa9!")] == ["", "", "\U0001f469!"]


def test_a_draft_that_is_taken_back_leaves_no_half_character_behind() -> None:
    answer = AnswerText()
    answer.commit("é".encode()[:1])
    draft = answer.draft_stream()
    assert draft.feed("é".encode()[1:]) == "é"
    assert answer.commit("è".encode()[1:]) == "è"


def test_a_stop_string_across_tokens_cuts_the_text_before_it() -> None:
    answer = AnswerText(["STOP"])
    for piece in (b"go on ST", b"O", b"P now"):
        answer.commit(piece)
    assert (answer.text, answer.stopped, answer.safe_length) == ("go on ", True, 6)


def test_the_earliest_of_several_stop_strings_wins() -> None:
    answer = AnswerText(["zz", "b", ""])
    answer.commit(b"abzz")
    assert answer.text == "a"


def test_a_tail_that_could_become_a_stop_string_is_held_back_and_then_released() -> None:
    answer = AnswerText(["\nUser:"])
    answer.commit(b"Hello\nUs")
    assert answer.safe_length == len("Hello")
    answer.commit(b"ed")
    assert answer.safe_length == len("Hello\nUsed")
    assert not answer.stopped


@given(text=st.text("ab", max_size=30), stop=st.text("ab", min_size=1, max_size=4))
def test_cutting_token_by_token_equals_cutting_the_whole(text: str, stop: str) -> None:
    answer = AnswerText([stop])
    shown = 0
    for letter in text:
        answer.commit(letter.encode())
        shown = max(shown, answer.safe_length)
        if answer.stopped:
            break
    place = text.find(stop)
    assert answer.text == (text[:place] if place >= 0 else text)
    assert shown <= len(answer.text), "something was shown that had to be taken back"
