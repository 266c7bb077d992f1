"""Acceptance is learned by margin and by length of the copied text, from what was reached, and old evidence fades."""

from draftlight.engine.controller.acceptance import Acceptance
from draftlight.engine.costs import DraftTrial
from draftlight.engine.drafting.base import Drafted
from draftlight.engine.events import DraftSource


def by_model(margin: float) -> Drafted:
    return Drafted(token=1, source=DraftSource.MODEL, q=0.5, rank=0, margin=margin)


def copied(matched: int) -> Drafted:
    return Drafted(token=1, source=DraftSource.NGRAM, q=1.0, rank=0, matched=matched, agreeing=2)


def test_a_surer_token_is_likelier_to_be_accepted_before_anything_is_known() -> None:
    fresh = Acceptance()
    by_margin = [fresh.of(by_model(margin)) for margin in (0.05, 0.3, 0.7, 1.2, 2.5, 5.0, 9.0)]
    by_length = [fresh.of(copied(matched)) for matched in (1, 2, 3, 5, 8, 12, 20, 40)]
    assert by_margin == sorted(by_margin)
    assert by_length == sorted(by_length)


def test_trials_of_a_useless_model_leave_it_little_hope() -> None:
    useless = Acceptance(DraftTrial(margin, accepted=False) for margin in (0.2, 1.0, 2.5, 8.0) * 20)
    assert useless.of_model() < 0.15
    assert useless.of(by_model(8.0)) < 0.35


def test_what_happens_outweighs_what_was_believed_and_later_outweighs_earlier() -> None:
    learning = Acceptance(DraftTrial(2.5, accepted=False) for _ in range(50))
    for _ in range(100):
        learning.learn(by_model(2.5), accepted=True)
    assert learning.of(by_model(2.5)) > 0.7
    for _ in range(300):
        learning.learn(by_model(2.5), accepted=False)
    assert learning.of(by_model(2.5)) < 0.35


def test_copies_and_the_draft_model_are_learned_apart() -> None:
    learning = Acceptance()
    before = learning.of_model()
    for _ in range(50):
        learning.learn(copied(4), accepted=False)
    assert learning.of_model() == before
    assert learning.of(copied(4)) < 0.2
    assert learning.of(copied(20)) > 0.8
