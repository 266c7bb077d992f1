"""What follows a text by its own repetitions, found the slow way: every place of every text is looked at each time."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from hypothesis import strategies as st

from draftlight.engine.drafting.suffix_index import LONGEST, Continuation

N_REMEMBERED = 8


def followers(texts: Sequence[Sequence[int]], run: Sequence[int]) -> Iterator[int]:
    """Whatever stands behind `run` in any of the texts, the earliest first."""
    for text in texts:
        for start in range(len(text) - len(run)):
            if list(text[start : start + len(run)]) == list(run):
                yield text[start + len(run)]


def slowly_found(texts: Sequence[Sequence[int]], end: Sequence[int]) -> Continuation | None:
    """The commonest of the latest followers of the longest suffix of `end` that was followed by anything."""
    for length in range(min(len(end), LONGEST), 0, -1):
        latest_first = list(followers(texts, end[-length:]))[::-1][:N_REMEMBERED]
        if latest_first:
            counts = Counter(latest_first)
            token = next(token for token in latest_first if counts[token] == max(counts.values()))
            agreeing = 0
            while agreeing < len(latest_first) and latest_first[agreeing] == token:
                agreeing += 1
            return Continuation(token, length, agreeing)
    return None


def texts(max_size: int = 40) -> st.SearchStrategy[list[int]]:
    """Texts of few different tokens, with long repetitions among them."""
    runs = st.lists(st.integers(0, 2), min_size=1, max_size=4)
    repeated = st.tuples(runs, st.integers(1, 20)).map(lambda drawn: drawn[0] * drawn[1])
    return st.lists(st.one_of(runs, repeated), max_size=6).map(lambda parts: list(chain(*parts))[:max_size])
