"""What makes a benchmark doubtful, said in sentences beside its figures instead of being left to the reader."""

from collections.abc import Iterator
from dataclasses import dataclass

from draftlight.bench.arms import PLAIN
from draftlight.bench.figures import ArmFigures, Figures

_SLACK_THIS_RUN = 1.001  # the same answers without their host time: only rounding may differ
_SLACK_PREFLIGHT = 1.15  # measured at another time
_OUTSIDE = 0.05  # share of an answer's time that may be missing from the engine's own figures
_FEW_PROMPTS = 8


@dataclass(frozen=True, slots=True)
class Circumstances:
    """How it was measured, as far as it bears on doubts.

    `exact`: no fork may happen; `warm`: our caches held the prompts; `drafting_peers`: those that say that they draft.
    """

    interrupted: bool = False
    out_of_time: bool = False
    exact: bool = False
    warm: bool = False
    drafting_peers: frozenset[str] = frozenset()


def doubts(figures: Figures, how: Circumstances) -> tuple[str, ...]:
    """Return a sentence for each thing that a reader should know before believing the figures."""
    about_arms = (sentence for arm in figures.arms for sentence in _about_arm(arm, how))
    return (*_about_all(figures, how), *about_arms)


def _about_all(figures: Figures, how: Circumstances) -> Iterator[str]:
    if how.interrupted:
        yield "It was stopped before its end: only prompts that every arm had answered by then are counted."
    if how.out_of_time:
        yield f"It ended when its time was over, after {len(figures.prompts)} prompts."
    if 0 < len(figures.prompts) < _FEW_PROMPTS:
        yield f"There are only {len(figures.prompts)} prompts, so the intervals say little."
    if how.warm and any(arm.is_peer for arm in figures.arms):
        yield "Our caches held the prompts and the peers' did not: only the decode rates can be compared with theirs."
    if figures.n_too_short:
        yield (
            f"{figures.n_too_short} of {len(figures.prompts)} prompts were answered with a single token by some arm: "
            "that has no decode rate, so they count for nothing there."
        )


def _about_arm(arm: ArmFigures, how: Circumstances) -> Iterator[str]:
    if arm.name == PLAIN:
        if arm.identical is not None and arm.identical < 1:
            yield "plain is not reproducible: its own repeats differ, so no arm can be held against it."
        return
    if arm.drafting is not None:
        if not sum(arm.drafting.tally.drafted_by.values()):
            why = next((reason for reason in arm.drafting.tally.reasons if reason), "no reason was given")
            yield f"{arm.name} never drafted ({why}): its ratio compares plain decoding with itself."
        if arm.drafting.n_audit_failures:
            yield f"{arm.name}: {arm.drafting.n_audit_failures} of {arm.drafting.n_audits} audits found other bits."
    if arm.name in how.drafting_peers and arm.n_answers and arm.acceptance_rate is None:
        yield f"{arm.name} is set up to draft and drafted nothing."
    if how.exact and not arm.is_peer and arm.identical is not None and arm.identical < 1:
        yield f"{arm.name} forked from plain in exact mode, which promises that it cannot."
    if arm.costs is not None and abs(arm.costs.outside_share) > _OUTSIDE:
        yield (
            f"{arm.name}: prefill and rounds differ from the time seen from outside by {arm.costs.outside_share:+.1%} "
            "of it."
        )
    yield from _above_bound(arm)


def _above_bound(arm: ArmFigures) -> Iterator[str]:
    """A ratio above E / C cannot be: either the times or the costs are wrong."""
    if arm.bound is None or arm.workload_ratio is None:
        return
    ratio = arm.workload_ratio.value
    if ratio > arm.bound.by_this_run * _SLACK_THIS_RUN:
        yield (
            f"{arm.name}: the ratio {ratio:.2f} is above the bound {arm.bound.by_this_run:.2f} of this run's own "
            "times: something is measured wrongly."
        )
    if arm.bound.by_preflight is not None and ratio > arm.bound.by_preflight * _SLACK_PREFLIGHT:
        yield (
            f"{arm.name}: the ratio {ratio:.2f} is above the bound {arm.bound.by_preflight:.2f} of the costs measured "
            "before: those costs, or the ratio, are wrong."
        )
