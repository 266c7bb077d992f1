"""The suffix index: as right as the slow way, at a price that does not depend on the text."""

import re
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import findings
from draftlight.engine.drafting.suffix_index import BREAK, LONGEST, ROOT, Continuation, SuffixIndex
from repetitions import slowly_found, texts

ROOT_FOLDER = Path(__file__).resolve().parents[4]


def built(text: list[int]) -> SuffixIndex:
    index = SuffixIndex()
    index.extend(text)
    return index


@given(text=texts(70))
@settings(deadline=None)
def test_at_every_token_it_finds_what_a_look_at_all_places_finds(text: list[int]) -> None:
    index = SuffixIndex()
    for n, token in enumerate(text, 1):
        index.extend([token])
        assert index.continuation(index.end) == slowly_found([text[:n]], text[:n])


@given(text=texts(), draft=texts(10), rest=texts(10))
@settings(deadline=None)
def test_a_draft_is_followed_without_a_trace(text: list[int], draft: list[int], rest: list[int]) -> None:
    index = built(text)
    place = index.end
    for n, token in enumerate(draft, 1):
        place = index.follow(place, token)
        assert index.continuation(place) == slowly_found([text], text + draft[:n])
    index.extend(rest)
    assert index.continuation(index.end) == slowly_found([text + rest], text + rest)


@given(several=st.lists(texts(30), min_size=1, max_size=4), end=texts(50))
@settings(deadline=None)
def test_nothing_runs_from_one_text_into_the_next(several: list[list[int]], end: list[int]) -> None:
    index = built([token for text in several for token in (BREAK, *text)])
    place = ROOT
    for n, token in enumerate(end, 1):
        place = index.follow(place, token)
        assert index.continuation(place) == slowly_found(several, end[:n])


def test_what_followed_often_lately_wins_over_what_followed_last() -> None:
    index = built([1, 5, 90, 1, 5, 91, 1, 5, 92, 1, 6, 93, 1])
    assert index.continuation(index.end) == Continuation(5, matched=1, agreeing=0)
    index = built([1, 5, 90, 1, 6, 91, 1, 6, 92, 1])
    assert index.continuation(index.end) == Continuation(6, matched=1, agreeing=2)


def test_a_run_longer_than_the_bound_counts_as_the_bound() -> None:
    text = list(range(50)) * 2
    found = built(text[:-5]).continuation(built(text[:-5]).end)
    assert found == Continuation(45, matched=LONGEST, agreeing=1)


def words_as_tokens() -> list[int]:
    """This repository's own text and code, a number for each word and sign."""
    files = [ROOT_FOLDER / "README.md", *sorted((ROOT_FOLDER / "app").rglob("*.py"))]
    numbers: dict[str, int] = {}
    words = (word for file in files for word in re.findall(r"\w+|\W", file.read_text("utf-8")))
    return [numbers.setdefault(word, len(numbers)) for word in words][:32_000]


TEXTS = {
    "text and code": words_as_tokens()[:8000],
    "all tokens equal": [7] * 8000,
    "two tokens in turn": [7, 8] * 4000,
    "all tokens different": list(range(8000)),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_token_more_costs_the_same_in_any_text(name: str) -> None:
    """Bounds are ten times what was measured: other work may run beside the test."""
    text = TEXTS[name]
    index = SuffixIndex()
    started = time.process_time()
    index.extend(text[:6000])
    building = (time.process_time() - started) / 6000
    started = time.process_time()
    for token in text[6000:]:
        index.extend([token])
        index.continuation(index.end)
    growing = (time.process_time() - started) / 2000
    findings.note(
        f"Suffix index, {name}: {1e6 * building:.1f} microseconds a token read, {1e6 * growing:.1f} with a look-up."
    )
    assert building < 60e-6
    assert growing < 100e-6


def test_an_index_of_32_000_tokens_takes_little_memory() -> None:
    text = words_as_tokens()
    tracemalloc.start()
    index = built(text)
    used = tracemalloc.get_traced_memory()[0] / 2**20
    tracemalloc.stop()
    findings.note(f"Suffix index of {len(index.text):,} tokens: {used:.0f} MiB.")
    assert used < 60
