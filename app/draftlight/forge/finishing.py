"""The end of a run: both quantisations judged, the better one measured by `bench` and listed with its card in it."""

from dataclasses import asdict

from transformers import PreTrainedModel

from draftlight.bench.intervals import Interval
from draftlight.errors import UserError
from draftlight.forge.export import write_draft
from draftlight.forge.judging import QUANTISATIONS, Judge, Judged, measured_speed_up
from draftlight.forge.recipe import as_toml
from draftlight.forge.reports import Card, Forged
from draftlight.forge.request import RUN, free_name, is_of_run
from draftlight.forge.run_folder import Plan
from draftlight.forge.torch_model import learning
from draftlight.forge.workshop import Stopped, Workshop

_BENCH_SHARE = 0.05  # of the run's time
_LEAST_BENCH_SECONDS = 45.0
_N_BENCH = 8


def finish(shop: Workshop, student: PreTrainedModel, judge: Judge, plan: Plan) -> Forged:
    """Write the draft model where it was asked for. Raises Stopped, UserError, OSError."""
    request, folder = shop.request, shop.folder
    learning(student, on=False)
    trials = [
        judge.judged(student, quantisation, folder.trial.with_name(f"{quantisation}.gguf.tmp"))
        for quantisation in QUANTISATIONS
    ]
    best = max(trials, key=lambda each: each.expected)
    for trial in trials:
        folder.log(judged=asdict(trial) | {"path": trial.path.name})
    measured = _measured(shop, best, judge)
    card = _card(shop, best, plan, sum(len(each.answer) for each in judge.held_out))
    if measured is not None:
        card = card.with_measured(measured.value, measured.low, measured.high)
    out = folder.out() or request.out
    if out.exists() and not is_of_run(out, folder.folder):  # somebody else's, since the run began
        out = free_name(out.parent, out.stem)
    folder.keep_out(out)
    write_draft(student, request.target, out, best.quantisation, _facts(card) | {RUN: folder.folder.name})
    folder.log(card=asdict(card))
    folder.end()
    return Forged(out, card)


def bench_seconds(minutes: float) -> float:
    """Return how long `bench` may take at the end of a run of so many minutes."""
    return max(_LEAST_BENCH_SECONDS, 60.0 * minutes * _BENCH_SHARE)


def _measured(shop: Workshop, best: Judged, judge: Judge) -> Interval | None:
    """Return the speed-up by `bench`; None where that could not be measured, which is no reason to lose the rest."""
    seconds = bench_seconds(shop.request.minutes)
    asked = judge.held_out[:_N_BENCH]
    try:
        measured = measured_speed_up(shop, best.path, asked, seconds)
    except UserError as error:
        shop.folder.log(not_measured=str(error))
        measured = None
    if not shop.go_on():
        raise Stopped
    return measured


def _card(shop: Workshop, best: Judged, plan: Plan, n_places: int) -> Card:
    return Card(
        target=shop.request.target.name,
        shape=plan.recipe.shape.label,
        quantisation=best.quantisation,
        n_bytes=best.path.stat().st_size,
        acceptance=best.acceptance,
        n_places=n_places,
        block_efficiency=best.block_efficiency,
        draft_cost=best.draft_cost,
        expected=best.expected,
        best_k=best.best_k,
        logit_difference=best.logit_difference,
        minutes=shop.spent / 60.0,
        n_chat_tokens=plan.recipe.chats.n_tokens,
        n_trained_tokens=max(shop.folder.looks(), key=lambda look: look.acceptance).n_tokens,
        recipe=plan.recipe,
    )


def _facts(card: Card) -> dict[str, str | int | float]:
    """Return what the file tells of how it was made."""
    return {
        "target": card.target,
        "shape": card.shape,
        "acceptance": card.acceptance,
        "draft_cost": card.draft_cost,
        "expected_speed_up": card.expected,
        "minutes": round(card.minutes, 1),
        "recipe": as_toml(card.recipe),
    }
