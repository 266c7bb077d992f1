"""Tunes a draft model on the person's own chats: it learns to say what the target said there, and is kept if it does.

Nothing but the tuned draft model outlives the run: the chats are read where they lie, everything else is in memory or
in the run's folder, which goes with it. A run that was killed begins anew.
"""

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import PreTrainedModel

from draftlight import paths
from draftlight.forge import planning
from draftlight.forge.acceptance import agreement, block_efficiency
from draftlight.forge.chats import Chats, joined
from draftlight.forge.conditions import tuning_bytes
from draftlight.forge.distill import Distillation, Step
from draftlight.forge.export import write_draft
from draftlight.forge.judging import opened
from draftlight.forge.own_chats import LONGEST, Answer, Division, answers_on_disk, divided, laws
from draftlight.forge.recipe import TrainingPlan
from draftlight.forge.reports import AcceptanceMeasured, ChatsWritten, Stage, Trained, Tuned
from draftlight.forge.teacher import load_target
from draftlight.forge.torch_model import embedding, learning, moved
from draftlight.forge.tuned_files import TUNED_FOR, TUNED_FROM
from draftlight.forge.workshop import Workshop, needed
from draftlight.history.store import HistoryStore
from draftlight.library.gguf import GgufHeader, read_header
from draftlight.llama.backend import LlamaModel, ModelOptions

_N_CTX = 2 * LONGEST
_LAWS_SHARE, _TRAINING_SHARE = 0.4, 0.8  # of the time, after which the laws and the training end
_LEARNING_RATE = 1e-4  # the draft model knows most already, and three times that learns few chats by heart
_SEEN_TOKENS = 240_000  # that are aimed at, repeats included
_LEAST_EPOCHS, _MOST_EPOCHS = 3, 20
_LATER = 1.5  # times as many tokens at each look as at the last: few chats are soon learned, or learned by heart
_PATIENCE = 3  # looks without a better acceptance after which the training ends
_TELL_SECONDS = 2.0
_SHOWN_K = 3
_SEED = 1
_FEW_BITS = 6.0  # a weight, up to which a file is Q4_0 once it is tuned


def run(shop: Workshop) -> None:
    """Tune the request's draft model. Raises UserError, Stopped, OSError."""
    request = shop.request
    request.folder.mkdir(parents=True, exist_ok=True)
    draft = needed(request.tune)
    target = LlamaModel(request.target, ModelOptions(n_ctx=_N_CTX))
    try:
        tuner = _Tuner(shop, target)
        with shop.stage(Stage.LOADING, f"Loading {request.target.name} and {draft.name}"):
            in_training = tuning_bytes(read_header(draft))
            student = moved(load_target(draft, torch.float32, beside=in_training), planning.device(in_training))
        with shop.stage(Stage.CHATS, f"Reading what {request.target.name} answered in your chats"):
            answers, division = tuner.read(student)
            chats = tuner.learned(division.learned, student)
        with shop.stage(Stage.TRAINING, f"Tuning {draft.name} on {len(division.learned):,} answers"):
            tuner.train(student, chats, division)
        with shop.stage(Stage.MEASURING, f"Testing it on the {len(division.held_out)} newest answers"):
            report = tuner.judged(student, division, len(answers))
        shop.tell(report)
    finally:
        target.close()


def stored_as(draft: GgufHeader) -> str:
    """Return what the tuned file is stored as: as the draft model's is where we can, else as small."""
    if draft.quantisation in {"F32", "Q8_0", "Q4_0"}:
        return draft.quantisation
    return "Q4_0" if 8 * draft.size <= _FEW_BITS * draft.n_parameters else "Q8_0"


class _Tuner:
    """The parts of a run, and how long each may take."""

    def __init__(self, shop: Workshop, target: LlamaModel) -> None:
        self._shop, self._target = shop, target
        self._draft = needed(shop.request.tune)
        self._quantisation = stored_as(read_header(self._draft))
        self._started = self._shop.clock()

    def read(self, student: PreTrainedModel) -> tuple[list[Answer], Division]:
        """Return the answers on disk. Raises UserError where there are too few."""
        name = self._shop.request.target.name
        n_tokens = min(self._target.n_vocab, len(embedding(student)))
        store = HistoryStore.open_to_read(paths.chats_file())
        answers: list[Answer] = []
        if store is not None:
            with store:
                found = answers_on_disk(store, self._target.vocabulary, name, n_tokens, self._shop.go_on)
            answers = needed(found)
        return answers, divided(answers, name)

    def learned(self, answers: tuple[Answer, ...], student: PreTrainedModel) -> Chats:
        """Return the answers with the target's laws, the newest first, as many as there is time for."""
        n_vocab = min(self._target.n_vocab, len(embedding(student)))
        n_wanted = sum(len(answer.tokens) for answer in answers)
        parts: list[Chats] = []
        started, n_done, told = self._shop.clock(), 0, 0.0
        for part in laws(answers[::-1], self._target, n_vocab, self._shop.go_on):
            parts.append(part)
            n_done += part.n_answer_tokens
            now = self._shop.clock()
            if now - told > _TELL_SECONDS or n_done == n_wanted:
                told, left = now, (n_wanted - n_done) * (now - started) / n_done
                self._shop.tell(ChatsWritten(n_done, n_wanted, left))
            if self._late(_LAWS_SHARE):
                break
        needed(self._shop.go_on() or None)
        return joined(parts)

    def train(self, student: PreTrainedModel, chats: Chats, division: Division) -> None:
        """Train, and leave the draft model as it was when most was accepted of the answers that choose."""
        n_epochs = min(max(math.ceil(_SEEN_TOKENS / chats.n_answer_tokens), _LEAST_EPOCHS), _MOST_EPOCHS)
        plan = TrainingPlan(
            n_tokens=n_epochs * chats.n_answer_tokens,
            matrix_rate=0.0,
            learning_rate=_LEARNING_RATE,
            weight_decay=0.01,
            hard_share=0.0,  # of few answers the laws teach more than the choices
            rounded_share=1.0 if self._quantisation == "Q4_0" else 0.0,
        )
        training = Distillation(student, chats, plan, _SEED, planning.fastest_dtype(student.device))
        looks: list[float] = []
        best: dict[str, Any] = {}
        started, told = self._shop.clock(), 0.0
        for step in training.steps():
            needed(self._shop.go_on() or None)
            ends = training.done or self._late(_TRAINING_SHARE)
            if step.n_seen >= chats.n_answer_tokens * _LATER ** len(looks) or ends:
                looks.append(self._look(student, division, step))
                if looks[-1] == max(looks) and looks.count(looks[-1]) == 1:
                    best = copy.deepcopy(student.state_dict())
                ends |= max(looks) > max(looks[-_PATIENCE:])
            if self._shop.clock() - told > _TELL_SECONDS or ends:
                told = self._shop.clock()
                left = (plan.n_tokens - step.n_seen) * (told - started) / step.n_seen
                self._shop.tell(Trained(step.n_seen, max(step.n_seen, plan.n_tokens), step.loss, max(0.0, left)))
            if ends:
                break
        student.load_state_dict(best)

    def _look(self, student: PreTrainedModel, division: Division, step: Step) -> float:
        go_on = self._shop.go_on
        learning(student, on=False)
        with self._trial(student) as draft:
            accepted = needed(agreement(draft, division.choosing, go_on))
            efficiency = needed(block_efficiency(draft, self._target.vocabulary, division.choosing, _SHOWN_K, go_on))
        learning(student, on=True)
        self._shop.tell(AcceptanceMeasured(step.n_seen, accepted, efficiency, step.loss))
        return accepted

    @contextmanager
    def _trial(self, student: PreTrainedModel) -> Iterator[LlamaModel]:
        """Load the draft model as it is now into llama.cpp, for a while."""
        path = self._shop.folder.trial
        try:
            write_draft(student, self._draft, path, self._quantisation, {})
            with opened(path, self._target.n_threads) as draft:
                yield draft
        finally:
            path.unlink(missing_ok=True)

    def judged(self, student: PreTrainedModel, division: Division, n_answers: int) -> Tuned:
        """Compare before and after on the newest answers; write the draft model if it is the best there is.

        What an earlier tuning has left where it would be written counts as well.
        """
        request, go_on, held_out = self._shop.request, self._shop.go_on, division.held_out
        learning(student, on=False)
        with opened(self._draft, self._target.n_threads) as draft:
            before = needed(agreement(draft, held_out, go_on))
        earlier = None
        if request.out.exists():
            with opened(request.out, self._target.n_threads) as draft:
                earlier = needed(agreement(draft, held_out, go_on))
        with self._trial(student) as draft:
            after = needed(agreement(draft, held_out, go_on))
        needed(go_on() or None)
        better = after > max(before, earlier or 0.0)
        if better:
            facts: dict[str, str | int | float] = {
                TUNED_FROM: str(self._draft),
                TUNED_FOR: request.target.name,
                "n_answers": n_answers,
                "acceptance_before": before,
                "acceptance": after,
            }
            write_draft(student, self._draft, request.out, self._quantisation, facts, "tuned")
        return Tuned(request.out if better else None, before, after, n_answers, len(held_out), earlier)

    def _late(self, share: float) -> bool:
        """Whether that share of the time is over."""
        return self._shop.clock() - self._started > share * 60.0 * self._shop.request.minutes
