"""EXACT against a model whose logits depend on the width of the pass, as real kernels' do."""

from collections.abc import Sequence

import numpy as np
import pytest

from draftlight.engine.cancel import CancelToken
from draftlight.engine.context import Context
from draftlight.engine.costs import PairFacts, StepCosts
from draftlight.engine.decoding import GenerationRequest, Mode, SpeculativeDecoder
from draftlight.engine.drafting.model import ModelDrafter
from draftlight.engine.events import GenerationFinished, RoundVerified
from draftlight.engine.model import FloatArray
from draftlight.engine.sampling import SamplingParams
from toys import LetterTokenizer, TableModel

N_VOCAB = 24
GREEDY = SamplingParams(temperature=0.0)
COSTS = StepCosts((100,), (1, 8), ((0.01, 0.012),))


class WidthModel(TableModel):
    """Its logits are rounded coarsely, so that ties abound; passes of a width in `wobbling` add a little noise."""

    def __init__(self, wobbling: frozenset[int], size: float) -> None:
        super().__init__(N_VOCAB, seed=3)
        self.table = np.round(self.table).astype(np.float32)
        self._wobbling = wobbling
        self._size = size

    def forward(self, tokens: Sequence[int], rows: int) -> FloatArray:
        logits = super().forward(tokens, rows)
        if len(tokens) in self._wobbling:
            noise = np.random.default_rng(len(self.held)).uniform(-self._size, self._size, logits.shape)
            logits += noise.astype(np.float32)
        return logits


def answer(model: WidthModel, facts: PairFacts, **wishes: object) -> tuple[GenerationFinished, list[RoundVerified]]:
    draft = TableModel(N_VOCAB, seed=3, noise=0.3)
    decoder = SpeculativeDecoder(Context(model), [ModelDrafter(Context(draft), N_VOCAB)], LetterTokenizer(), facts)
    settings: dict[str, object] = {"prompt": (1, 2, 3), "sampling": GREEDY, "seed": 1, "max_new_tokens": 900}
    request = GenerationRequest(**{**settings, "mode": Mode.EXACT, **wishes})  # type: ignore[arg-type]  # shorthand
    events = list(decoder.generate(request, CancelToken()))
    finished = events[-1]
    assert isinstance(finished, GenerationFinished)
    return finished, [event for event in events if isinstance(event, RoundVerified)]


NEAR = PairFacts(COSTS, exact_widths=frozenset({1, 2}), near_exact=frozenset({4, 8}), logit_difference=0.001)
SAMPLED = SamplingParams(temperature=0.8)


@pytest.mark.parametrize("k", [1, 3, 7])
def test_exact_tokens_are_plain_decoding_s_although_near_exact_widths_turn_near_ties_around(k: int) -> None:
    plain, _ = answer(WidthModel(frozenset(), 0.0), NEAR, draft_length=0)
    exact, rounds = answer(WidthModel(frozenset({4, 8}), 0.001), NEAR, draft_length=k)
    assert max(report.n_submitted for report in rounds) == k
    assert exact.tokens == plain.tokens
    if k > 1:
        fast, _ = answer(WidthModel(frozenset({4, 8}), 0.001), NEAR, draft_length=k, mode=Mode.FAST)
        assert fast.tokens != plain.tokens, "without EXACT such ties go the other way"


def test_a_draft_whose_own_width_is_not_exact_is_verified_in_a_wider_one_that_is() -> None:
    facts = PairFacts(COSTS, exact_widths=frozenset({1, 4}))
    _, rounds = answer(WidthModel(frozenset({2, 3}), 0.5), facts, draft_length=2)
    assert {report.width for report in rounds} == {1, 4}
    assert max(report.n_submitted for report in rounds) == 2


def test_near_exact_widths_are_for_greedy_choices_without_penalties_alone() -> None:
    for sampling in (SAMPLED, SamplingParams(temperature=0.0, repeat_penalty=1.2)):
        _, rounds = answer(WidthModel(frozenset({4, 8}), 0.001), NEAR, draft_length=7, sampling=sampling)
        assert max(report.n_submitted for report in rounds) == 1


def test_a_width_that_fails_its_audit_is_used_no_more_and_counted() -> None:
    wrong = PairFacts(COSTS, exact_widths=frozenset({1, 2, 4}))
    finished, rounds = answer(WidthModel(frozenset({4}), 0.001), wrong, draft_length=3, max_new_tokens=2000)
    assert finished.stats.n_audit_failures == 1
    failed = next(place for place, report in enumerate(rounds) if report.audit is False)
    assert max(report.n_submitted for report in rounds[: failed + 1]) == 3
    assert max(report.n_submitted for report in rounds[failed + 1 :]) == 1


def test_audits_that_hold_up_are_counted_and_change_nothing() -> None:
    right = PairFacts(COSTS, exact_widths=frozenset({1, 2, 4}))
    for sampling in (GREEDY, SAMPLED):
        plain, _ = answer(WidthModel(frozenset(), 0.0), right, draft_length=0, sampling=sampling, max_new_tokens=1500)
        exact, _ = answer(WidthModel(frozenset(), 0.0), right, draft_length=3, sampling=sampling, max_new_tokens=1500)
        assert exact.tokens == plain.tokens
        assert exact.stats.n_audits in {2, 3}
        assert exact.stats.n_audit_failures == 0


def test_the_first_token_comes_from_a_row_of_its_own_whatever_was_reused() -> None:
    model = WidthModel(frozenset(range(2, 60)), 0.5)
    facts = PairFacts(COSTS, exact_widths=frozenset({1}))
    answer(model, facts, prompt=(1, 2, 3, 4, 5) * 6, max_new_tokens=1)
    assert model.forwards[-1] == 1
