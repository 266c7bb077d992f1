"""Drafts from the text's own repetitions: what followed the last time these tokens stood here. Costs no model.

The idea is prompt lookup (Saxena 2023) with the longest suffix preferred, as in SuffixDecoding (arXiv:2411.04975).
"""

from collections import defaultdict, deque
from collections.abc import Sequence

from draftlight.engine.cancel import CancelToken
from draftlight.engine.costs import DraftTrial
from draftlight.engine.drafting.base import Drafted, Offer
from draftlight.engine.events import DraftSource
from draftlight.engine.sampling import Sampler

_KEY = 3  # tokens that must recur before anything is drafted
_PLACES = 32  # most recent places remembered for a key
_LONGEST = 64  # a longer common suffix says nothing more


class SuffixDrafter:
    """An index of every run of three tokens seen, kept up as the text grows; rebuilt where the text was changed."""

    source = DraftSource.NGRAM

    def __init__(self) -> None:
        """Start with no text."""
        self._text: list[int] = []
        self._places: defaultdict[tuple[int, ...], deque[int]] = defaultdict(lambda: deque(maxlen=_PLACES))

    @property
    def decode_seconds(self) -> float:
        """No model, no time inside one."""
        return 0.0

    def begin(self, prompt: Sequence[int], earlier: Sequence[Sequence[int]] = ()) -> None:
        """Keep the index where the prompt only adds to its text."""
        del earlier
        n = len(self._text)
        if list(prompt[:n]) != self._text:
            self._text.clear()
            self._places.clear()

    def offer(self, sequence: Sequence[int], n_committed: int) -> Offer:
        """Look for the longest earlier occurrence of the text's end."""
        self._index(sequence[:n_committed])
        place, matched = self._longest_suffix(sequence)
        if place is None:
            return Offer(ready=False, silence=f"the last {_KEY} tokens have not occurred before")
        return Offer(ready=True, matched=matched)

    def propose(self, sequence: Sequence[int], sampler: Sampler, cancel: CancelToken) -> Drafted | None:
        """Propose what followed the longest earlier occurrence of the text's end; the latest among equals."""
        del sampler, cancel  # there is nothing to draw and nothing that takes long
        place, matched = self._longest_suffix(sequence)
        if place is None:
            return None
        return Drafted(token=self._text[place], source=DraftSource.NGRAM, q=1.0, rank=0, matched=matched)

    def review(self, sequence: Sequence[int], sampler: Sampler, cancel: CancelToken, n_read: int) -> list[DraftTrial]:
        """Nothing to try: an offer tells how good it is."""
        del sequence, sampler, cancel, n_read
        return []

    def _index(self, committed: Sequence[int]) -> None:
        """Bring the index to hold exactly `committed`, which begins with what it holds."""
        n = len(self._text)
        self._text += committed[n:]
        # The run that ends the text is left out: nothing has followed it yet.
        for end in range(max(n, _KEY), len(self._text)):
            self._places[tuple(self._text[end - _KEY : end])].append(end)

    def _longest_suffix(self, sequence: Sequence[int]) -> tuple[int | None, int]:
        """Index of the token after the occurrence that shares the longest suffix with `sequence`; and that length."""
        text = self._text
        best, best_length = None, 0
        for place in reversed(self._places.get(tuple(sequence[-_KEY:]), ())):
            length = _KEY
            while length < min(place, _LONGEST) and text[place - length - 1] == sequence[-length - 1]:
                length += 1
            if length > best_length:
                best, best_length = place, length
        return best, best_length
