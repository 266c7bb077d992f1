"""What a draft model could bring here, measured before it is made: what a verify costs, and a drafted token."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from draftlight.engine.costs import StepCosts
from draftlight.engine.decoding import LONGEST_DRAFT
from draftlight.engine.model import LanguageModel
from draftlight.forge.export import write_draft
from draftlight.forge.recipe import Kind, Shape, TrainingPlan
from draftlight.forge.reports import Outlook
from draftlight.forge.student import begin
from draftlight.forge.torch_model import head_width
from draftlight.llama.backend import LlamaModel, ModelOptions

CONTEXT = 600  # tokens, at which costs are compared: a chat's usual length
_TIMED = 60  # passes of each model
_WARM_UP = 8
_CHUNK = 100
_TRAINED_IN_AN_HOUR = 2_800_000  # answer tokens, where the acceptances below were measured
_NARROW_LAYERS = 3  # a fourth one was not worth its price
_MEASURED_WITH = 135_000_000  # parameters of the target below
# Acceptance per place on the benchmark's own questions after so many minutes on two cores. Measured with the starter
# target, narrow: 15, 60 and 120 minutes. At 20 a pruned one had 1.22 times that; all other points are extrapolated.
_REACHED = {
    Kind.NARROW: ((10.0, 0.15), (15.0, 0.20), (60.0, 0.41), (120.0, 0.58), (240.0, 0.62)),
    Kind.PRUNED: ((10.0, 0.16), (20.0, 0.24), (60.0, 0.32), (240.0, 0.40)),
}


def shapes_for(target: PreTrainedModel, size: str) -> list[Shape]:
    """Return the shapes worth considering for this target; `size` is "auto", "narrow" or "pruned"."""
    config: Any = target.config
    n_layers, width, head = config.num_hidden_layers, config.hidden_size, head_width(config)
    shapes = []
    if size != "narrow":
        few = (0, n_layers - 1) if n_layers < 12 else (0, 1, n_layers - 2, n_layers - 1)  # noqa: PLR2004
        if len(few) < n_layers:
            shapes.append(Shape(Kind.PRUNED, layers=few))
    if size != "pruned":
        wanted = max(head, round(0.45 * width / head) * head)
        if wanted < width:
            shapes.append(Shape(Kind.NARROW, n_layers=min(_NARROW_LAYERS, n_layers), width=wanted))
    return shapes


def expected_acceptance(kind: Kind, minutes: float, n_parameters: int = _MEASURED_WITH) -> float:
    """Return what such a draft model usually reaches in so many minutes: lines between what was measured.

    A target of twice the parameters writes half as many chats in that time.
    """
    minutes *= min(1.0, _MEASURED_WITH / n_parameters)
    points = _REACHED[kind]
    if minutes <= points[0][0]:
        return points[0][1] * minutes / points[0][0]
    for (x0, y0), (x1, y1) in pairwise(points):
        if minutes <= x1:
            return y0 + (y1 - y0) * (minutes - x0) / (x1 - x0)
    return points[-1][1]


def usual_minutes(training: TrainingPlan) -> float:
    """Return the minutes in which so much is trained, with the chats for it, on what `_REACHED` was measured on."""
    return 60.0 * training.n_tokens / _TRAINED_IN_AN_HOUR


def verify_costs(costs: StepCosts) -> tuple[float, ...]:
    """Return what a verify of 0, 1, ... drafted tokens costs, in plain steps."""
    plain = costs.at(1, CONTEXT)
    return tuple(costs.at(k + 1, CONTEXT) / plain for k in range(LONGEST_DRAFT + 1))


def drafted_token_cost(target: LanguageModel, draft: LanguageModel, go_on: Callable[[], bool]) -> float | None:
    """Return what a step of the draft model costs, in plain steps of the target: medians, taken in turns.

    Both have read `CONTEXT` tokens, and hold none afterwards. None as soon as `go_on` says no.
    """
    taken: dict[LanguageModel, list[float]] = {target: [], draft: []}
    n_read = CONTEXT // _CHUNK * _CHUNK
    try:
        for model in taken:
            model.rollback(0)
            for _ in range(n_read // _CHUNK):
                model.forward([0] * _CHUNK, 0)
        for n in range(_WARM_UP + _TIMED):
            if not go_on():
                return None
            for model, seconds in taken.items():
                before = model.decode_seconds
                model.forward([0], 1)
                model.rollback(n_read)
                if n >= _WARM_UP:
                    seconds.append(model.decode_seconds - before)
    finally:
        for model in taken:
            model.rollback(0)
    return statistics.median(taken[draft]) / statistics.median(taken[target])


@dataclass(frozen=True, slots=True)
class Prospector:
    """Tries the shapes out with weights as they are before any training: costs do not depend on them."""

    teacher: PreTrainedModel
    target: LlamaModel
    path: Path  # the target's file
    trial: Path  # where a draft model may be written for a moment
    verify_costs: tuple[float, ...]

    def best(self, shapes: Sequence[Shape], minutes: float, go_on: Callable[[], bool]) -> tuple[Shape, Outlook] | None:
        """Return the shape that promises the largest speed-up, and its outlook; None as soon as `go_on` says no."""
        found = []
        for shape in shapes:
            outlook = self.look(shape, minutes, go_on)
            if outlook is None:
                return None
            found.append((shape, outlook))
        return max(found, key=lambda each: each[1].expected)

    def look(self, shape: Shape, minutes: float, go_on: Callable[[], bool]) -> Outlook | None:
        """Measure one shape."""
        write_draft(begin(self.teacher, shape, 1), self.path, self.trial, "Q4_0", {})
        draft = LlamaModel(self.trial, ModelOptions(n_ctx=2 * CONTEXT, n_threads=self.target.n_threads))
        try:
            cost = drafted_token_cost(self.target, draft, go_on)
        finally:
            draft.close()
            self.trial.unlink()
        if cost is None:
            return None
        expected = expected_acceptance(shape.kind, minutes, self.teacher.num_parameters())
        return Outlook(shape.label, self.verify_costs, cost, expected)
