"""The training of one run: goes on from its checkpoint, looks at the acceptance from time to time, keeps the best."""

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import PreTrainedModel

from draftlight.errors import UserError
from draftlight.forge.acceptance import agreement, block_efficiency
from draftlight.forge.chats import Shards, joined
from draftlight.forge.distill import Distillation, keep
from draftlight.forge.export import write_draft
from draftlight.forge.judging import Judge, opened
from draftlight.forge.reports import AcceptanceMeasured, Trained
from draftlight.forge.run_folder import Plan
from draftlight.forge.torch_model import learning
from draftlight.forge.workshop import Stopped, Workshop, needed

_SAVE_SECONDS = 60.0
_SAVING_SHARE = 20  # times that training goes on for what saving took
_TELL_SECONDS = 2.0
_PATIENCE = 0.6  # of all looks that were planned, without a better acceptance, after which the training ends early
_SHOWN_K = 3
_SMOOTH = 0.98  # of the loss that is told


def train(shop: Workshop, student: PreTrainedModel, judge: Judge, plan: Plan) -> PreTrainedModel:
    """Train the draft model, and return it as it was when it was accepted most. Raises Stopped, UserError, OSError."""
    recipe, folder = plan.recipe, shop.folder
    chats = joined(list(Shards(folder.chats).all()))
    training = Distillation(student, chats, recipe.training, recipe.seed, getattr(torch, plan.dtype))
    if folder.checkpoint.is_file():
        training.restore(folder.checkpoint)
    course = _Course(shop, training, student, judge, plan)
    for step in training.steps():
        if not math.isfinite(step.loss):
            raise UserError(
                "The training has lost its way: its loss is no number any more.",
                "Begin anew, with a recipe of a lower learning rate.",
            )
        course.note(step.loss)
        if not _goes_on(shop, training):
            raise Stopped
        if course.finished:
            break
    student.load_state_dict(torch.load(folder.best, map_location=student.device, weights_only=True))
    return student


def in_vain(accepted: Sequence[float], n_planned: int) -> bool:
    """Whether the looks so far say that more training brings nothing, when so many are planned.

    A third of a training without any gain is usual: what it has learned by then shows once the rate falls.
    """
    patience = max(2, math.ceil(_PATIENCE * n_planned))
    return len(accepted) > patience and max(accepted[:-patience]) >= max(accepted[-patience:])


def looked(student: PreTrainedModel, judge: Judge, trial: Path) -> tuple[float, float]:
    """Draft with the model as it is, by way of the file `trial`: how much is foretold, and tokens a verify at K = 3.

    Raises Stopped, UserError.
    """
    learning(student, on=False)
    write_draft(student, judge.target.path, trial, "Q4_0", {})
    with opened(trial, judge.target.n_threads) as draft:
        accepted = needed(agreement(draft, judge.held_out, judge.go_on))
        efficiency = needed(block_efficiency(draft, judge.target.vocabulary, judge.held_out, _SHOWN_K, judge.go_on))
    trial.unlink()
    learning(student, on=True)
    return accepted, efficiency


def _goes_on(shop: Workshop, training: Distillation) -> bool:
    """Ask whether to go on; what there is is saved where not, a low battery included."""
    goes_on = False
    try:
        goes_on = shop.go_on()
    finally:
        if not goes_on:
            training.save(shop.folder.checkpoint)
    return goes_on


class _Course:
    """What goes on beside the steps of a training."""

    def __init__(
        self, shop: Workshop, training: Distillation, student: PreTrainedModel, judge: Judge, plan: Plan
    ) -> None:
        self._shop, self._training, self._student, self._judge, self._plan = shop, training, student, judge, plan
        self._looks = [look for look in shop.folder.looks() if look.n_tokens <= training.n_seen]
        for look in self._looks:
            shop.tell(look)
        self._loss = self._looks[-1].loss if self._looks else None
        self._started, self._n_before = shop.clock(), training.n_seen
        self._told = self._saved = shop.clock()
        self._save_every = _SAVE_SECONDS

    @property
    def finished(self) -> bool:
        """Whether more training would be in vain."""
        return in_vain([look.acceptance for look in self._looks], self._plan.recipe.held_out.n_looks)

    def note(self, loss: float) -> None:
        """Take note of a step: tell, look and save where it is time."""
        training = self._training
        smoothed = loss if self._loss is None else _SMOOTH * self._loss + (1 - _SMOOTH) * loss
        self._loss = smoothed
        if training.n_seen // self._plan.look_every > len(self._looks) or training.done:
            self._look(smoothed)
        if self._shop.clock() - self._saved > self._save_every:
            self._save()
        if self._shop.clock() - self._told > _TELL_SECONDS or training.done:
            self._tell(smoothed)

    def _tell(self, loss: float) -> None:
        training, wanted = self._training, self._plan.recipe.training.n_tokens
        speed = max(1.0, training.n_seen - self._n_before) / (self._shop.clock() - self._started)
        left = max(0.0, wanted - training.n_seen) / speed
        self._shop.tell(Trained(min(training.n_seen, wanted), wanted, loss, left))
        self._told = self._shop.clock()

    def _save(self) -> None:
        began = self._shop.clock()
        self._training.save(self._shop.folder.checkpoint)
        self._shop.note_spent()
        self._saved = self._shop.clock()
        self._save_every = max(_SAVE_SECONDS, _SAVING_SHARE * (self._saved - began))

    def _look(self, loss: float) -> None:
        """Draft with the model as it is and keep the best. The checkpoint comes last: a kill before it repeats all."""
        folder = self._shop.folder
        accepted, efficiency = looked(self._student, self._judge, folder.trial)
        look = AcceptanceMeasured(self._training.n_seen, accepted, efficiency, loss)
        best = max((look.acceptance for look in self._looks), default=-1.0)
        if look.acceptance > best:
            keep(folder.best, self._student.state_dict())
        self._looks.append(look)
        folder.keep_looks(self._looks)
        folder.log(n_tokens=look.n_tokens, acceptance=accepted, block_efficiency=efficiency, loss=loss)
        self._save()
        self._shop.tell(look)
