"""The suffix drafter: in step with the text, silent with a reason, forgetful of other conversations."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftlight.engine.cancel import CancelToken
from draftlight.engine.drafting.base import Drafted, Offer
from draftlight.engine.drafting.suffix import SuffixDrafter
from draftlight.engine.drafting.suffix_index import Continuation
from draftlight.engine.events import DraftSource
from draftlight.engine.sampling import Sampler, SamplingParams
from repetitions import slowly_found, texts

GREEDY = Sampler(SamplingParams(temperature=0), seed=1)


def begun(prompt: Sequence[int], earlier: Sequence[Sequence[int]] = ()) -> SuffixDrafter:
    drafter = SuffixDrafter()
    drafter.begin(prompt, earlier)
    return drafter


def proposed(drafter: SuffixDrafter, sequence: list[int], n_committed: int) -> Continuation | None:
    """What it would propose next; what it offers must agree with that."""
    offer = drafter.offer(sequence, n_committed)
    if not offer.ready:
        assert offer.silence
        return None
    drafted = drafter.propose(sequence, GREEDY, CancelToken())
    assert drafted is not None
    assert offer == Offer(ready=True, matched=drafted.matched, agreeing=drafted.agreeing)
    return Continuation(drafted.token, drafted.matched, drafted.agreeing)


def draft_of(drafter: SuffixDrafter, text: list[int], length: int) -> list[int]:
    sequence = list(text)
    for _ in range(length):
        found = proposed(drafter, sequence, len(text))
        if found is None:
            break
        sequence.append(found.token)
    return sequence[len(text) :]


def slowly_proposed(sequence: list[int], n_committed: int, earlier: list[list[int]]) -> Continuation | None:
    own = slowly_found([sequence[:n_committed]], sequence)
    old = slowly_found(earlier, sequence)
    if own is None or (old is not None and old.matched > own.matched):
        return old
    return own


@given(
    prompt=texts(30),
    earlier=st.lists(texts(20), max_size=2),
    rounds=st.lists(st.tuples(texts(6), st.integers(0, 6), st.integers(0, 2)), max_size=6),
)
@settings(deadline=None)
def test_rounds_of_drafts_kept_or_rejected_never_leave_a_trace(
    prompt: list[int], earlier: list[list[int]], rounds: list[tuple[list[int], int, int]]
) -> None:
    """At each token of each round it proposes what a look at all places of the committed texts finds."""
    drafter = begun(prompt, earlier)
    committed = list(prompt)
    for draft, n_accepted, target_token in rounds:
        for tried in (draft[::-1], draft):  # a draft may be given up for another one
            for n in range(len(tried) + 1):
                text = committed + tried[:n]
                assert proposed(drafter, text, len(committed)) == slowly_proposed(text, len(committed), earlier)
        committed += [*draft[:n_accepted], target_token]


@given(answers=st.lists(st.tuples(texts(20), st.lists(texts(15), max_size=2), st.booleans()), min_size=1, max_size=5))
@settings(deadline=None)
def test_after_any_other_answer_it_proposes_what_a_fresh_one_would(
    answers: list[tuple[list[int], list[list[int]], bool]],
) -> None:
    kept = SuffixDrafter()
    text: list[int] = []
    for new, earlier, goes_on in answers:
        text = text + new if goes_on else list(new)
        kept.begin(text, earlier)
        fresh = begun(text, earlier)
        for token in (0, 1, 0, 2):
            assert draft_of(kept, text, 4) == draft_of(fresh, text, 4)
            text.append(token)


def test_a_token_is_proposed_with_what_speaks_for_it() -> None:
    drafter = begun([1, 2, 3, 4, 9, 1, 2, 3])
    assert drafter.offer([1, 2, 3, 4, 9, 1, 2, 3], 8) == Offer(ready=True, matched=3, agreeing=1)
    drafted = drafter.propose([1, 2, 3, 4, 9, 1, 2, 3], GREEDY, CancelToken())
    assert drafted == Drafted(token=4, source=DraftSource.NGRAM, q=1.0, rank=0, matched=3, agreeing=1)
    assert drafter.decode_seconds == 0.0


def test_the_longest_common_suffix_wins_over_the_latest() -> None:
    long_ago, lately = [7, 1, 2, 3, 50], [8, 1, 2, 3, 60]
    assert draft_of(SuffixDrafter(), [*long_ago, *lately, 7, 1, 2, 3], 1) == [50]
    assert draft_of(SuffixDrafter(), [*long_ago, *lately, 9, 1, 2, 3], 1) == [60]


def test_a_text_without_repetition_is_left_alone_and_says_why() -> None:
    offer = begun(list(range(20))).offer(list(range(20)), 20)
    assert offer == Offer(ready=False, silence="the last token has not occurred before")
    with pytest.raises(ValueError, match="nothing to propose"):
        begun(list(range(20))).propose(list(range(20)), GREEDY, CancelToken())


def test_a_cancelled_draft_proposes_nothing_more() -> None:
    drafter, cancel = begun([1, 2, 1]), CancelToken()
    assert drafter.offer([1, 2, 1], 3).ready
    cancel.cancel()
    assert drafter.propose([1, 2, 1], GREEDY, cancel) is None


def test_an_earlier_text_is_drafted_from_where_it_shares_more() -> None:
    prompt = [5, 1, 2, 30, 9, 6, 7, 1, 2]
    assert draft_of(begun(prompt, [[7, 1, 2, 40, 41]]), prompt, 2) == [40, 41]
    assert draft_of(begun(prompt, [[8, 1, 2, 40, 41]]), prompt, 1) == [30], "the answer's own text comes first"


def test_nothing_is_kept_of_another_conversation() -> None:
    drafter = begun([1, 2, 3, 4], [[1, 2, 5]])
    assert draft_of(drafter, [1, 2, 3, 4, 2], 1) == [3]
    drafter.begin([7, 1, 2])
    assert not drafter.offer([7, 1, 2], 3).ready


def test_a_prompt_is_read_after_the_first_token_and_not_before_it() -> None:
    prompt = [token % 500 for token in range(1500)]
    drafter = begun(prompt, [prompt])
    assert (drafter._index.text, drafter._earlier.text) == ([], [])
    assert drafter.offer([*prompt, 400], 1501).ready


def test_a_text_that_only_grew_is_not_read_again() -> None:
    drafter = begun([1, 2, 3], [[4, 5]])
    drafter.offer([1, 2, 3, 4], 4)
    index, earlier = drafter._index, drafter._earlier
    drafter.begin([1, 2, 3, 4, 5, 6], [[4, 5], [6, 7]])
    assert (drafter._index, drafter._earlier) == (index, earlier)


def test_a_long_prompt_is_read_in_portions_so_that_it_never_holds_up_an_answer() -> None:
    text = [token * token % 4001 for token in range(12_000)]
    drafter = begun(text[:10_000], [text[:5000]])
    n_committed, n_read = 10_000, [0]
    while n_read[-1] < n_committed + 5001:
        n_committed += 1
        ready = drafter.offer(text[:n_committed], n_committed).ready
        n_read.append(len(drafter._index.text) + len(drafter._earlier.text))
    assert max(after - before for before, after in pairwise(n_read)) <= 4096
    assert ready, "the last portion is used at once"
    whole = begun(text[:n_committed], [text[:5000]])
    while "still" in whole.offer(text[:n_committed], n_committed).silence:
        pass
    assert draft_of(drafter, text[:n_committed], 8) == draft_of(whole, text[:n_committed], 8)
