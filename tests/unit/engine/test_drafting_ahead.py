"""Drafting the next round while the target verifies: the same tokens, and a draft that is there when it is wanted."""

from collections.abc import Iterator

import pytest

from draftlight.engine.cancel import CancelToken
from draftlight.engine.context import Context
from draftlight.engine.decoding import GenerationRequest, SpeculativeDecoder
from draftlight.engine.drafting.ahead import AheadDrafter
from draftlight.engine.drafting.model import ModelDrafter
from draftlight.engine.events import GenerationFinished, RoundVerified
from draftlight.engine.sampling import Sampler, SamplingParams
from toys import LetterTokenizer, TableModel

SAMPLING = SamplingParams(temperature=0.8)


@pytest.fixture
def close() -> Iterator[list[AheadDrafter]]:
    made: list[AheadDrafter] = []
    yield made
    for drafter in made:
        drafter.close()


def answer(decoder: SpeculativeDecoder, k: int) -> tuple[GenerationFinished, list[RoundVerified]]:
    request = GenerationRequest((1, 2, 3), SAMPLING, seed=4, draft_length=k, max_new_tokens=80)
    events = list(decoder.generate(request, CancelToken()))
    finished = events[-1]
    assert isinstance(finished, GenerationFinished)
    return finished, [event for event in events if isinstance(event, RoundVerified)]


@pytest.mark.parametrize("noise", [0.0, 0.5, 2.0])
def test_the_tokens_are_plain_decoding_s_whatever_was_drafted_ahead(noise: float, close: list[AheadDrafter]) -> None:
    plain, _ = answer(SpeculativeDecoder(Context(TableModel()), [], LetterTokenizer()), 0)
    drafter = AheadDrafter(ModelDrafter(Context(TableModel(noise=noise)), 16))
    close.append(drafter)
    ahead, _ = answer(SpeculativeDecoder(Context(TableModel()), [drafter], LetterTokenizer()), 3)
    assert ahead.tokens == plain.tokens


def test_after_a_full_acceptance_the_next_draft_is_there_without_a_pass_of_the_draft_model(
    close: list[AheadDrafter],
) -> None:
    drafter = AheadDrafter(ModelDrafter(Context(TableModel()), 16))
    close.append(drafter)
    sampler, text = Sampler(SAMPLING, 4), [1, 2, 3]
    with drafter.drafting_ahead(text, sampler):
        while len(drafter._ready) < 8:
            pass
    ready = [drafted.token for drafted in drafter._ready]
    as_accepted = [*text, *ready[:1]]
    assert drafter.offer(as_accepted, len(as_accepted)).lag == 0
    drafted = drafter.propose(as_accepted, sampler, CancelToken())
    assert drafted is not None
    assert drafted.token == ready[1]
    otherwise = [*text, (ready[0] + 1) % 16]
    assert drafter.offer(otherwise, len(otherwise)).lag > 0


def test_what_the_draft_model_raises_meanwhile_reaches_the_loop(close: list[AheadDrafter]) -> None:
    model = TableModel()
    drafter = AheadDrafter(ModelDrafter(Context(model), 16))
    close.append(drafter)
    model.fail_at = 0
    with pytest.raises(RuntimeError, match="broke"), drafter.drafting_ahead([1, 2, 3], Sampler(SAMPLING, 4)):
        pass


def test_time_spent_ahead_is_not_counted_as_waiting(close: list[AheadDrafter]) -> None:
    model = TableModel()
    drafter = AheadDrafter(ModelDrafter(Context(model), 16))
    close.append(drafter)
    with drafter.drafting_ahead([1, 2, 3], Sampler(SAMPLING, 4)):
        while len(drafter._ready) < 8:
            pass
    assert drafter.ahead_seconds == pytest.approx(model.decode_seconds)
    assert drafter.decode_seconds == pytest.approx(0.0)


@pytest.mark.parametrize(("ahead_ms", "stays"), [(5.0, True), (9.9, False), (20.0, False)])
def test_drafting_ahead_stays_where_it_commits_more_tokens_a_second(
    *, ahead_ms: float, stays: bool, close: list[AheadDrafter]
) -> None:
    now = 0.0
    drafter = AheadDrafter(ModelDrafter(Context(TableModel()), 16), lambda: now)
    close.append(drafter)
    sampler, text, ways = Sampler(SAMPLING, 4), [1, 2, 3], []
    for _ in range(200):
        drafter.offer(text, len(text))
        drafted = drafter.propose(text, sampler, CancelToken())
        assert drafted is not None
        with drafter.drafting_ahead([*text, drafted.token], sampler):
            ways.append(drafter._turns.ahead)
            while ways[-1] and not drafter._ready:
                pass
        assert bool(drafter._ready) is ways[-1]
        now += ahead_ms if ways[-1] else 10.0  # a token each time
        text = [*text, 1]
    assert set(ways[:64]) == {True, False}, "both are tried"
    assert set(ways[64:]) == {stays}
