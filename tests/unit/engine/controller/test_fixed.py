"""The person's own choice of K asks for what it weighs, and for nothing else: offers cost time."""

from draftlight.engine.controller.base import Outlook
from draftlight.engine.controller.fixed import FixedLength
from draftlight.engine.drafting.base import Drafted, Offer
from draftlight.engine.events import DraftSource

BOTH = (DraftSource.NGRAM, DraftSource.MODEL)
DRAFTED = Drafted(token=1, source=DraftSource.MODEL, q=0.5, rank=0, margin=1.0)


def begun(k: int, *, longest: int = 8) -> FixedLength:
    made = FixedLength(k)
    made.begin_round(Outlook(10, 100, tuple(range(longest + 1))))
    return made


def test_only_the_preferred_source_is_asked() -> None:
    assert list(begun(3).asks(BOTH)) == [DraftSource.MODEL]
    assert list(begun(3).asks((DraftSource.NGRAM,))) == [DraftSource.NGRAM]


def test_nobody_is_asked_once_k_tokens_are_drafted_or_no_more_may_be() -> None:
    for made in (begun(2), begun(5, longest=2)):
        for _ in range(2):
            assert made.asks(BOTH)
            made.drafted(DRAFTED)
        assert not made.asks(BOTH)
        assert made.next_source({}) is None
        assert made.n_submitted() == 2


def test_a_single_recurring_token_is_not_copied_and_the_round_says_why() -> None:
    made = begun(3)
    assert made.next_source({DraftSource.NGRAM: Offer(ready=True, matched=1)}) is None
    assert made.off_reason
    assert made.next_source({DraftSource.NGRAM: Offer(ready=True, matched=2)}) is DraftSource.NGRAM
