"""The words for an answer's figures promise nothing that was not measured."""

from dataclasses import replace

import pytest

from draftlight.chat.figures import NEAR_TIE, equality, near_ties, speed_up
from draftlight.engine.metrics import SpeculationStats


def stats(**figures: float) -> SpeculationStats:
    return replace(SpeculationStats(n_drafted=9, n_rounds=20), **figures)  # type: ignore[arg-type]  # counts are ints


@pytest.mark.parametrize(
    ("figures", "mode", "words"),
    [
        (stats(n_near_ties=3), "fast", "3 near-ties"),
        (stats(n_near_ties=1), "fast", "1 near-tie"),
        (stats(), "fast", "no near-ties"),
        (stats(n_near_ties=3), "exact", "exact"),
        (stats(n_audits=1), "exact", "exact, audited once"),
        (stats(n_audits=4), "exact", "exact, audited 4 times"),
        (stats(n_audits=4, n_audit_failures=1), "exact", "exact, but 1 audit failed of 4"),
        (stats(n_near_ties=3), "", ""),
        (stats(n_near_ties=3, n_drafted=0), "fast", ""),
    ],
)
def test_equality_is_told_by_mode_and_only_where_something_was_drafted(
    figures: SpeculationStats, mode: str, words: str
) -> None:
    assert equality(figures, mode) == words


def test_near_ties_are_explained_where_they_matter() -> None:
    assert near_ties(stats(n_near_ties=3), "fast") == f"3 near-ties: places where {NEAR_TIE}."
    assert near_ties(stats(n_near_ties=1), "fast") == f"1 near-tie: a place where {NEAR_TIE}."
    assert near_ties(stats(n_near_ties=3), "exact") == near_ties(stats(), "fast") == ""


def test_a_speed_up_is_told_only_where_plain_steps_were_measured_and_as_an_estimate() -> None:
    times = {"draft_ms": 20.0, "verify_ms": 70.0, "host_ms": 10.0}
    assert speed_up(stats(**times)) == ""
    assert speed_up(stats(saved_ms=5.0)) == "", "no time was counted"
    assert speed_up(stats(saved_ms=5.0, n_drafted=0, **times)) == "", "nothing was drafted"
    assert speed_up(stats(saved_ms=5.0, n_rounds=5, **times)) == "", "a busy machine's first rounds say little"
    assert speed_up(stats(saved_ms=80.0, **times)) == "about 1.8x plain, estimated"
    assert speed_up(stats(saved_ms=-59.0, **times)) == "about 0.41x plain, estimated"
    assert speed_up(stats(saved_ms=-1.0, **times)) == "about 1.0x plain, estimated"
