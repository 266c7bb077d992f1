"""AUTO on toy models with the measured prices of real ones: as fast as the best fixed K, never slower than plain."""

import math
import random
from collections import Counter
from functools import partial

import pytest

from draftlight.engine.cancel import CancelToken
from draftlight.engine.context import Context
from draftlight.engine.controller.auto import AutoLength
from draftlight.engine.controller.base import Outlook
from draftlight.engine.controller.experience import Experience
from draftlight.engine.costs import DraftTrial, PairFacts, StepCosts
from draftlight.engine.decoding import GenerationRequest, Mode, SpeculativeDecoder
from draftlight.engine.drafting.base import Drafted, Offer
from draftlight.engine.drafting.model import ModelDrafter
from draftlight.engine.events import DraftSource, PromptEvaluated, RoundVerified
from draftlight.engine.sampling import SamplingParams
from toys import LetterTokenizer, TableModel

N_VOCAB = 48
WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16)


def seconds(*rows: tuple[float, ...]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(ms / 1000.0 for ms in row) for row in rows)


# Measured on two cores: a 1.4B target, whose kernels take four rows at a time, and a tiny target with dear rows.
LARGE = StepCosts(
    (100, 600),
    WIDTHS,
    seconds(
        (62.4, 93.1, 120.3, 88.5, 117.1, 145.6, 165.2, 234.5, 252.1),
        (70.6, 110.0, 147.9, 124.9, 159.4, 195.0, 229.0, 323.0, 386.0),
    ),
)
SMALL_DRAFT = StepCosts((100, 600), (1, 4, 16, 64), seconds((7.6, 15.2, 39.3, 110.0), (10.1, 24.3, 70.3, 230.0)))
TINY = StepCosts(
    (100, 600),
    WIDTHS,
    seconds(
        (8.9, 13.7, 18.9, 23.2, 29.1, 33.7, 40.1, 57.0, 73.5), (11.7, 18.9, 26.3, 31.6, 41.0, 46.6, 56.8, 81.6, 106.0)
    ),
)
TINY_DRAFT = StepCosts((100, 600), (1, 4, 16, 64), seconds((0.8, 1.6, 5.3, 18.0), (1.0, 2.1, 7.4, 26.0)))
PAIRS = {"large": (LARGE, SMALL_DRAFT), "tiny": (TINY, TINY_DRAFT)}


class Priced:
    """A toy pair whose forward passes cost what real ones do; counts the seconds of the rounds alone."""

    def __init__(self, pair: str, noise: float, *, jitter: float = 0.0, n_trials: int = 96) -> None:
        target_costs, draft_costs = PAIRS[pair]
        dice = random.Random(7)  # noqa: S311 - a test's dice
        self.models = TableModel(N_VOCAB, seed=5), TableModel(N_VOCAB, seed=5, noise=noise)

        def price(costs: StepCosts, width: int, context: int) -> float:
            return costs.at(width, context) * (1 + jitter * dice.random())

        for model, costs in zip(self.models, PAIRS[pair], strict=True):
            model.price = partial(price, costs)
        target, draft = self.models
        trials = []
        for _ in range(n_trials):
            place = dice.randrange(N_VOCAB), dice.randrange(N_VOCAB)
            second, first = sorted(draft.table[place])[-2:]
            trials.append(
                DraftTrial(float(first - second), draft.table[place].argmax() == target.table[place].argmax())
            )
        self.decoder = SpeculativeDecoder(
            Context(target),
            [ModelDrafter(Context(draft), N_VOCAB)],
            LetterTokenizer([bytes([40 + token]) for token in range(N_VOCAB)]),
            PairFacts(target_costs, draft_costs, trials=tuple(trials)),
        )
        self.tokens: list[int] = []
        self.lengths: Counter[int] = Counter()
        self.widths: Counter[int] = Counter()

    def seconds(self, k: int | None, n_answers: int = 2) -> float:
        """Seconds that the rounds of a few answers cost."""
        spent = 0.0
        for seed in range(n_answers):
            request = GenerationRequest(
                tuple(random.Random(seed).choices(range(N_VOCAB), k=100)),  # noqa: S311 - as above
                SamplingParams(temperature=0.8),
                seed,
                draft_length=k,
                max_new_tokens=250,
                mode=Mode.FAST,
            )
            for event in self.decoder.generate(request, CancelToken()):
                if isinstance(event, PromptEvaluated):
                    before = sum(model.decode_seconds for model in self.models)
                elif isinstance(event, RoundVerified):
                    self.lengths[event.n_submitted] += 1
                    self.widths[event.width] += 1
                    self.tokens += [token.id for token in event.committed]
            spent += sum(model.decode_seconds for model in self.models) - before
        return spent


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("noise", [0.0, 0.3, 0.6, 1.0, 6.0])
def test_auto_is_nearly_as_fast_as_the_best_fixed_length_and_never_slower_than_plain(pair: str, noise: float) -> None:
    fixed = {k: Priced(pair, noise).seconds(k) for k in (0, 1, 3, 7)}
    auto = Priced(pair, noise)
    taken = auto.seconds(None)
    assert taken < fixed[0] * 1.02
    assert taken < min(fixed.values()) * 1.12


def test_auto_knows_a_useless_draft_model_from_its_trials_and_does_not_let_it_read() -> None:
    pair = Priced("large", 6.0)
    pair.seconds(None, n_answers=1)
    assert set(pair.lengths) == {0}
    assert sum(pair.models[1].forwards) < 2 * 64, "a review or two"


def test_auto_finds_out_by_itself_where_there_were_no_trials() -> None:
    assert Priced("large", 6.0, n_trials=0).seconds(None) < Priced("large", 6.0).seconds(0) * 1.02
    good = Priced("large", 0.0, n_trials=0)
    assert good.seconds(None) < Priced("large", 0.0).seconds(3)


def test_auto_holds_its_own_under_noisy_prices() -> None:
    for noise in (0.0, 0.6, 6.0):
        taken = Priced("large", noise, jitter=0.5).seconds(None)
        assert taken < Priced("large", noise, jitter=0.5).seconds(0) * 1.03


def test_whatever_auto_drafts_the_tokens_are_plain_decoding_s() -> None:
    plain, auto = Priced("large", 0.6), Priced("large", 0.6)
    plain.seconds(0)
    auto.seconds(None)
    assert auto.lengths[3] > 0
    assert auto.tokens == plain.tokens


def test_a_verify_is_padded_to_a_wider_pass_that_is_cheaper() -> None:
    """Four rows cost this target less than two or three."""
    padded = Priced("large", 0.3)
    taken = padded.seconds(2)
    assert padded.widths.keys() == {1, 4}
    assert padded.lengths[2] > 0
    assert taken < 0.85 * Priced("large", 0.3).seconds(0)
    plain = Priced("large", 0.3)
    plain.seconds(0)
    assert padded.tokens == plain.tokens


def drafted(margin: float) -> Drafted:
    return Drafted(token=1, source=DraftSource.MODEL, q=0.5, rank=0, margin=margin)


MODEL = {DraftSource.MODEL: Offer(ready=True, lag=1)}


def controller(target: StepCosts = LARGE, draft: StepCosts = SMALL_DRAFT) -> AutoLength:
    trials = [
        DraftTrial(margin, accepted=margin > 1.0) for margin in (*(0.05, 0.2, 0.4) * 8, *(2.5, 3.5, 5.0, 8.0) * 20)
    ]
    return AutoLength(Experience(PairFacts(target, draft, trials=tuple(trials))), greedy=True)


def drafting(made: AutoLength, margins: tuple[float, ...], lengths: tuple[int, ...] = tuple(range(17))) -> int:
    """How many tokens are drafted where the draft model's next tokens have these margins."""
    made.begin_round(Outlook(100, 400, lengths))
    for n, margin in enumerate(margins):
        if made.next_source(MODEL) is None:
            return n
        made.drafted(drafted(margin))
    return len(margins)


def test_the_look_ahead_goes_over_dear_rows_to_a_cheap_one() -> None:
    """Widths 2 and 3 cost more than 4: no draft of this pair ends there."""
    made = controller()
    assert drafting(made, (8.0, 8.0, 8.0)) == 3
    assert made.n_submitted() == 3


def test_a_doubtful_token_ends_the_draft_where_its_row_has_a_price() -> None:
    rising = StepCosts((100,), (1, 16), seconds((60.0, 240.0)))
    sure, doubtful = controller(rising), controller(rising)
    assert drafting(sure, (8.0,) * 6) > 2
    assert drafting(doubtful, (8.0, 0.05, 8.0, 8.0, 8.0)) == 2


def test_a_tail_that_is_not_worth_its_rows_is_cut_off() -> None:
    rising = StepCosts((100,), (1, 16), seconds((60.0, 240.0)))
    made = controller(rising)
    made.begin_round(Outlook(100, 400, tuple(range(17))))
    assert made.next_source(MODEL) is DraftSource.MODEL
    for margin in (8.0, 0.05, 0.05, 0.05):
        made.drafted(drafted(margin))
    assert made.n_submitted() == 1
    assert made.reasoning is not None
    assert made.reasoning.acceptance[0] > 0.9
    assert made.reasoning.acceptance[1] < 0.5


def test_only_allowed_lengths_are_submitted() -> None:
    made = controller()
    assert drafting(made, (8.0,) * 8, lengths=(0, 2, 5)) in {2, 5}
    assert made.n_submitted() in {0, 2, 5}


def test_an_undrafted_round_says_why() -> None:
    made = controller(draft=StepCosts((100,), (1,), seconds((60.0,))))
    assert drafting(made, (8.0,)) == 0
    assert "does not pay" in made.off_reason
    assert "chance" in made.off_reason


def test_a_long_copy_is_taken_before_the_draft_model_is_asked() -> None:
    made = controller()
    made.begin_round(Outlook(100, 400, tuple(range(17))))
    offers = {**MODEL, DraftSource.NGRAM: Offer(ready=True, matched=20, agreeing=4)}
    assert made.next_source(offers) is DraftSource.NGRAM
    made.begin_round(Outlook(100, 400, tuple(range(17))))
    offers[DraftSource.NGRAM] = Offer(ready=True, matched=1, agreeing=1)
    assert made.next_source(offers) is DraftSource.MODEL


def test_catching_up_a_long_way_is_not_begun_for_the_last_few_tokens() -> None:
    far_behind = {DraftSource.MODEL: Offer(ready=True, lag=300)}
    for n_left, expected in ((400, DraftSource.MODEL), (8, None)):
        made = controller()
        made.begin_round(Outlook(900, n_left, tuple(range(8))))
        assert made.next_source(far_behind) is expected


def test_reasoning_adds_up() -> None:
    made = controller()
    drafting(made, (8.0, 5.0, 3.5))
    n = made.n_submitted()
    assert made.reasoning is not None
    expected = 1.0 + sum(math.prod(made.reasoning.acceptance[: k + 1]) for k in range(n))
    assert made.reasoning.expected == pytest.approx(expected, abs=1e-3)


def test_a_text_is_reviewed_once_however_much_time_was_saved_up() -> None:
    """A window that was read alone leaves the draft model as far behind as before."""
    experience = Experience(PairFacts(LARGE, SMALL_DRAFT))
    long_ago = RoundVerified(0, 0, (), None, 0, draft_ms=0.0, verify_ms=1e6, host_ms=0.0, width=1)
    experience.learn(long_ago, 100, ())
    made = AutoLength(experience, greedy=True)
    far_behind = {DraftSource.MODEL: Offer(ready=True, lag=300)}
    asked = []
    for n_tokens in (300, 300, 310, 324):
        made.begin_round(Outlook(n_tokens, 400, tuple(range(8))))
        asked.append(made.wants_review(far_behind) > 0)
        asked.append(made.wants_review(far_behind) > 0)
    assert asked == [True, False, False, False, False, False, True, False]


@pytest.mark.parametrize(
    ("matched", "lag", "chosen"),
    [
        (2, 1, DraftSource.MODEL),
        (3, 1, DraftSource.NGRAM),
        (2, 60, DraftSource.NGRAM),  # the draft model would have to catch up first
    ],
)
def test_a_short_copy_does_not_take_the_place_of_a_draft_model_at_hand(
    matched: int, lag: int, chosen: DraftSource
) -> None:
    controller = AutoLength(Experience(PairFacts(LARGE, SMALL_DRAFT)), greedy=True)
    controller.begin_round(Outlook(200, 100, tuple(range(16)), tuple(range(1, 17))))
    copy = Offer(ready=True, matched=matched, agreeing=9)
    assert controller.next_source({DraftSource.MODEL: Offer(ready=True, lag=lag), DraftSource.NGRAM: copy}) is chosen


def test_a_review_that_took_longer_than_expected_puts_the_next_one_off() -> None:
    experience = Experience(PairFacts(LARGE, SMALL_DRAFT))
    far_behind = {DraftSource.MODEL: Offer(ready=True, lag=300)}
    asked = []
    for n_round in range(200):
        made = AutoLength(experience, greedy=True)
        made.begin_round(Outlook(300, 400, tuple(range(8))))
        if made.wants_review(far_behind):
            asked.append(n_round)
            made.reviewed([], 1.0 if len(asked) == 1 else 0.0)
        a_second = RoundVerified(0, 0, (), None, 0, draft_ms=0.0, verify_ms=1000.0, host_ms=0.0, width=1)
        experience.learn(a_second, 300, ())
    first, second, third = asked[:3]
    assert second - first > 90, "a second at one per cent of the time"
    assert third - second < 30
