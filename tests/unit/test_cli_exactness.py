"""Exact mode in the terminal: it says where it cannot draft, and is silent where it does as it says."""

from collections.abc import Iterator

import pytest

from draftlight.cli.arguments import parse
from draftlight.cli.exactness import telling_of_exactness
from draftlight.engine.cancel import CancelToken
from draftlight.engine.costs import PairFacts, StepCosts
from scripted_chat import PAIR, Pair, ScriptedDecoder


def facts(*exact: int, near: tuple[int, ...] = ()) -> PairFacts:
    costs = StepCosts((1,), (1,), ((0.01,),))
    return PairFacts(costs, exact_widths=frozenset(exact), near_exact=frozenset(near), logit_difference=1e-4)


@pytest.mark.parametrize(
    ("measured", "options", "says"),
    [
        (None, "--mode exact", "not measured yet"),
        (None, "--mode exact --k 0", ""),
        (None, "", ""),
        (facts(1), "--mode exact", "runs plain"),
        (facts(1), "--mode auto", ""),
        (facts(1, 2, 4), "--mode exact", ""),
        (facts(1, near=(4,)), "--mode exact --temperature 0", ""),
        (facts(1, near=(4,)), "--mode exact --temperature 0.8", "runs plain"),
        (facts(1, near=(4,)), "--mode exact --temperature 0 --repeat-penalty 1.2", "runs plain"),
    ],
)
def test_exact_mode_says_what_keeps_it_from_drafting_exactly(
    measured: PairFacts | None, options: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    decoder = ScriptedDecoder(())
    decoder.facts = measured
    load = telling_of_exactness(lambda *_: iter([Pair(decoder)]), parse(["generate", "Hi", *options.split()]))
    steps: Iterator[object] = load(PAIR, CancelToken())
    assert len(list(steps)) == 1
    told = capsys.readouterr().err
    assert says in told
    assert bool(told) == bool(says)
