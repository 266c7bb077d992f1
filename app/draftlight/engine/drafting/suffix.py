"""Drafts from the text's own repetitions: what followed the last times these tokens stood here. Costs no model.

The idea is prompt lookup (Saxena 2023) with the longest suffix preferred, as in SuffixDecoding (arXiv:2411.04975).
"""

from collections.abc import Sequence

from draftlight.engine.cancel import CancelToken
from draftlight.engine.costs import DraftTrial
from draftlight.engine.drafting.base import Drafted, Offer
from draftlight.engine.drafting.suffix_index import BREAK, LONGEST, ROOT, Continuation, Place, SuffixIndex
from draftlight.engine.events import DraftSource
from draftlight.engine.sampling import Sampler

_TOKENS_PER_OFFER = 4096  # read at most: about 10 ms, so that a long prompt never holds up an answer


class SuffixDrafter:
    """An index of this answer's text and one of the conversation's earlier texts; the longer recurrence counts.

    Both are kept while their texts only grow and are built anew where one changed. Drafted tokens never enter them.
    """

    source = DraftSource.NGRAM

    def __init__(self) -> None:
        """Start with no text."""
        self._index = SuffixIndex()
        self._earlier = SuffixIndex()
        self._earlier_text: list[int] = []  # all of it; the index may hold less
        self._earlier_end: Place = ROOT  # where the committed text's end recurs in the earlier texts
        self._draft: list[int] = []
        self._places: tuple[Place, Place] = (ROOT, ROOT)  # where committed text and draft recur in both

    @property
    def decode_seconds(self) -> float:
        """No model, no time inside one."""
        return 0.0

    def begin(self, prompt: Sequence[int], earlier: Sequence[Sequence[int]] = ()) -> None:
        """Keep the indexes that the texts only add to; drop the others. Nothing is read before the first offer."""
        self._earlier_text = [token for text in earlier for token in (BREAK, *text)]
        index, older = _kept(self._index, prompt), _kept(self._earlier, self._earlier_text)
        if index is not self._index or older is not self._earlier:
            self._index, self._earlier, self._earlier_end = index, older, ROOT
        self._restart_draft()

    def offer(self, sequence: Sequence[int], n_committed: int) -> Offer:
        """Look for the longest earlier occurrence of the text's end, after reading what was committed."""
        if not self._read(sequence, n_committed):
            return Offer(ready=False, silence="the text is still being searched for repetitions")
        found = self._continuation(sequence)
        if found is None:
            return Offer(ready=False, silence="the last token has not occurred before")
        return Offer(ready=True, matched=found.matched, agreeing=found.agreeing)

    def propose(self, sequence: Sequence[int], sampler: Sampler, cancel: CancelToken) -> Drafted | None:
        """Propose what followed most often lately. Raises ValueError where offer() was not ready."""
        del sampler  # nothing is drawn
        if cancel.cancelled:
            return None
        found = self._continuation(sequence)
        if found is None:
            raise ValueError("nothing to propose: the last token has not occurred before")
        return Drafted(found.token, DraftSource.NGRAM, q=1.0, rank=0, matched=found.matched, agreeing=found.agreeing)

    def review(self, sequence: Sequence[int], sampler: Sampler, cancel: CancelToken, n_read: int) -> list[DraftTrial]:
        """Nothing to try: an offer tells how good it is."""
        del sequence, sampler, cancel, n_read
        return []

    def _read(self, sequence: Sequence[int], n_committed: int) -> bool:
        """Bring the indexes nearer to their texts; tell whether they hold them whole."""
        room = _TOKENS_PER_OFFER
        n_held = len(self._earlier.text)
        if new := self._earlier_text[n_held : n_held + room]:
            room -= len(new)
            self._earlier.extend(new)
            self._earlier_end = _followed(self._earlier, ROOT, self._index.text[-LONGEST:])
            self._restart_draft()
        n_held = len(self._index.text)
        if new := list(sequence[n_held : min(n_committed, n_held + room)]):
            self._index.extend(new)
            self._earlier_end = _followed(self._earlier, self._earlier_end, new)
            self._restart_draft()
        return len(self._index.text) == n_committed and len(self._earlier.text) == len(self._earlier_text)

    def _restart_draft(self) -> None:
        self._draft = []
        self._places = (self._index.end, self._earlier_end)

    def _continuation(self, sequence: Sequence[int]) -> Continuation | None:
        """What follows `sequence`: committed text and this round's draft, of which only what is new is looked at."""
        draft = list(sequence[len(self._index.text) :])
        if draft[: len(self._draft)] != self._draft:
            self._restart_draft()
        place, earlier_place = self._places
        for token in draft[len(self._draft) :]:
            place = self._index.follow(place, token)
            earlier_place = self._earlier.follow(earlier_place, token)
        self._draft, self._places = draft, (place, earlier_place)
        found, earlier = self._index.continuation(place), self._earlier.continuation(earlier_place)
        if found is None or (earlier is not None and earlier.matched > found.matched):
            return earlier
        return found


def _kept(index: SuffixIndex, text: Sequence[int]) -> SuffixIndex:
    """The index, if `text` only adds to what it holds; else a new one."""
    return index if list(text[: len(index.text)]) == index.text else SuffixIndex()


def _followed(index: SuffixIndex, place: Place, tokens: Sequence[int]) -> Place:
    """Where the run at `place` plus `tokens` recurs."""
    if not index.text:
        return ROOT
    for token in tokens:
        place = index.follow(place, token)
    return place
