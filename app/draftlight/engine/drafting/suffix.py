"""Drafts from the text's own repetitions: what followed the last time these tokens stood here. Costs no model.

The idea is prompt lookup (Saxena 2023) with the longest suffix preferred, as in SuffixDecoding (arXiv:2411.04975).
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence

from draftlight.engine.cancel import CancelToken
from draftlight.engine.drafting.base import Drafted
from draftlight.engine.events import DraftSource
from draftlight.engine.model import Tokenizer
from draftlight.engine.sampling import Sampler

_KEY = 3  # tokens that must recur before anything is drafted
_PLACES = 32  # most recent places remembered for a key
_LONGEST = 64  # a longer common suffix says nothing more


class SuffixDrafter:
    """An index of every run of three tokens seen, kept up as the text grows; rebuilt where the text was changed."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Start with no text; `tokenizer` tells the end tokens."""
        self._tokenizer = tokenizer
        self._text: list[int] = []
        self._places: defaultdict[tuple[int, ...], deque[int]] = defaultdict(lambda: deque(maxlen=_PLACES))

    @property
    def decode_seconds(self) -> float:
        """No model, no time inside one."""
        return 0.0

    @property
    def silence(self) -> str:
        """Why the last draft was empty, in words."""
        return f"the last {_KEY} tokens have not occurred before"

    def draft(self, history: Sequence[int], limit: int, sampler: Sampler, cancel: CancelToken) -> Iterator[Drafted]:
        """Propose what followed the longest earlier occurrence of the text's end; the latest among equals."""
        del sampler, cancel  # there is nothing to draw and nothing that takes long
        self._index(history)
        place = self._longest_suffix()
        if place is None:
            return
        for token in self._text[place : place + limit]:
            yield Drafted(token=token, source=DraftSource.NGRAM, q=1.0, rank=0)
            if self._tokenizer.is_end(token):
                return

    def _index(self, history: Sequence[int]) -> None:
        """Bring the index to hold exactly `history`."""
        n = len(self._text)
        if len(history) < n or list(history[:n]) != self._text:
            self._text.clear()
            self._places.clear()
            n = 0
        self._text += history[n:]
        # The run that ends the text is left out: nothing has followed it yet.
        for end in range(max(n, _KEY), len(self._text)):
            self._places[tuple(self._text[end - _KEY : end])].append(end)

    def _longest_suffix(self) -> int | None:
        """Index of the token after the earlier occurrence that shares the longest suffix with the text's end."""
        text = self._text
        best, best_length = None, 0
        for place in reversed(self._places.get(tuple(text[-_KEY:]), ())):
            length = _KEY
            while length < min(place, _LONGEST) and text[place - length - 1] == text[-length - 1]:
                length += 1
            if length > best_length:
                best, best_length = place, length
        return best
