"""Trains a draft model to say what its target said: cross-entropy to its kept laws, and then to its choices.

Where a run stands is a checkpoint on disk; from there it goes on to the same end, because all that is random follows
from the recipe's seed and the step.
"""

import os
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from draftlight.forge.chats import Chats
from draftlight.forge.recipe import TrainingPlan
from draftlight.forge.rounding import rounded
from draftlight.forge.torch_model import capped, embedding, hidden_states, learning, output_weight

_POOL = 256  # chats that are sorted by length before they are cut into batches
_BETAS = (0.9, 0.98)


@dataclass(frozen=True, slots=True)
class Step:
    """What one step did: answer tokens seen so far, and the cross-entropy to the target's choices, nats a token."""

    n_seen: int
    loss: float


class Distillation:
    """One training. `n_seen` answer tokens were learned from, of `plan.n_tokens`."""

    def __init__(
        self, student: PreTrainedModel, chats: Chats, plan: TrainingPlan, seed: int, dtype: torch.dtype = torch.float32
    ) -> None:
        """Prepare; `dtype` is what matrix products are computed in, the weights stay float32."""
        self._student, self._chats, self._plan, self._seed, self._dtype = student, chats, plan, seed, dtype
        self._device = student.device
        self._label_starts = np.concatenate([[0], np.cumsum(np.diff(chats.starts) - chats.answers)])
        self._optimizers = _optimizers(student, plan)
        self.n_steps = 0
        self.n_seen = 0
        self._epoch, self._n_of_epoch = 0, 0  # batches of this epoch that are done

    @property
    def done(self) -> bool:
        """Whether all that was planned is done."""
        return self.n_seen >= self._plan.n_tokens

    def _in_last(self, share: float) -> bool:
        """Whether that share of the training, or less, is left."""
        return self.n_seen >= (1.0 - share) * self._plan.n_tokens

    def steps(self) -> Iterator[Step]:
        """Train to the end, one batch after another."""
        learning(self._student, on=True)
        while not self.done:
            batches = batches_of(self._chats, self._plan.batch_tokens, self._seed, self._epoch)
            for batch in batches[self._n_of_epoch :]:
                if self.done:
                    return
                step = self._step(batch)
                self._n_of_epoch += 1  # before anyone can save
                yield step
            self._epoch, self._n_of_epoch = self._epoch + 1, 0

    def _step(self, batch: NDArray[np.int64]) -> Step:
        self._set_rate()
        places = _Places(self._chats, self._label_starts, batch)
        for optimizer in self._optimizers:
            optimizer.zero_grad(set_to_none=True)
        with rounded(self._student) if self._in_last(self._plan.rounded_share) else nullcontext():
            with torch.autocast(self._device.type, self._dtype, enabled=self._dtype is not torch.float32):
                loss, told = self._losses(places)
            loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self._student.parameters(), 1.0)
        for optimizer in self._optimizers:
            optimizer.step()
        self.n_steps += 1
        self.n_seen += len(places.label_rows)
        return Step(self.n_seen, float(told))

    def _losses(self, places: "_Places") -> tuple[torch.Tensor, torch.Tensor]:
        """Return the cross-entropy to learn from, to the target's law or its choice, and that to its choice.

        Both among the batch's labels and some other tokens.
        """
        device = self._device
        hidden = hidden_states(self._student, torch.from_numpy(places.ids).to(device), use_cache=False)
        hidden = hidden[torch.from_numpy(places.rows).to(device), torch.from_numpy(places.columns).to(device)]
        ids = self._chats.label_ids[places.label_rows]
        logprobs = torch.from_numpy(self._chats.label_logprobs[places.label_rows]).to(device).float()
        dice = np.random.default_rng([self._seed, self.n_steps])
        others = dice.integers(0, len(output_weight(self._student)), self._plan.n_negatives, dtype=np.int32)
        among = np.unique(np.concatenate([ids.ravel(), others]))
        where = torch.from_numpy(np.searchsorted(among, ids)).to(device)
        weight = output_weight(self._student)[torch.from_numpy(among.astype(np.int64)).to(device)]
        logits = capped(self._student, (hidden @ weight.to(hidden.dtype).T).float())
        labels, total = logits.gather(-1, where), logits.logsumexp(-1)
        to_choice = (total - labels[:, 0]).mean()  # the likeliest stands first
        if self._in_last(self._plan.hard_share):
            return to_choice, to_choice.detach()
        return (total - (torch.softmax(logprobs, -1) * labels).sum(-1)).mean(), to_choice.detach()

    def _set_rate(self) -> None:
        done = self.n_seen / self._plan.n_tokens
        share = min(1.0, done / self._plan.warm_up if self._plan.warm_up else 1.0) * max(0.0, 1.0 - done)
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["rate"] * max(share, 1e-3)

    def save(self, file: Path) -> None:
        """Keep where it stands, in one stroke. Raises OSError."""
        state = {
            "student": self._student.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self._optimizers],
            "at": [self.n_steps, self.n_seen, self._epoch, self._n_of_epoch],
        }
        keep(file, state)

    def restore(self, file: Path) -> None:
        """Go on where save() left off."""
        state: dict[str, Any] = torch.load(file, map_location=self._device, weights_only=True)
        self._student.load_state_dict(state["student"])
        for optimizer, kept in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(kept)
        self.n_steps, self.n_seen, self._epoch, self._n_of_epoch = state["at"]


def keep(file: Path, state: dict[str, Any]) -> None:
    """Write a state in torch's form, whole or not at all. Raises OSError."""
    part = file.with_suffix(".part")
    try:
        with part.open("wb") as written:
            torch.save(state, written)
            written.flush()
            os.fsync(written.fileno())
        part.replace(file)
    except RuntimeError as error:  # of torch, at its file's end, after what the disk had to say
        if isinstance(error.__context__, OSError):
            raise error.__context__ from error
        raise
    finally:
        part.unlink(missing_ok=True)


def _optimizers(student: PreTrainedModel, plan: TrainingPlan) -> tuple[torch.optim.Optimizer, ...]:
    """Muon for the matrices of the layers (Jordan et al. 2024), AdamW for the rest.

    Embeddings learn more slowly, because they come from the target, and neither they nor vectors decay. Where the plan
    has no rate for matrices, AdamW takes them too.
    """
    embeddings = {id(embedding(student)), id(output_weight(student))}
    parameters = list(student.parameters())
    matrices = [each for each in parameters if each.ndim > 1 and id(each) not in embeddings]
    embedded = [each for each in parameters if id(each) in embeddings]
    vectors = [each for each in parameters if each.ndim == 1]
    rate = plan.learning_rate
    groups = [
        {"params": vectors, "rate": rate, "weight_decay": 0.0},
        {"params": embedded, "rate": rate * plan.embedding_rate, "weight_decay": 0.0},
    ]
    if plan.matrix_rate > 0.0:
        muon = {"params": matrices, "rate": plan.matrix_rate}
        return _adam(groups), torch.optim.Muon([muon], weight_decay=plan.weight_decay)
    groups.append({"params": matrices, "rate": rate, "weight_decay": plan.weight_decay})
    return (_adam(groups),)


def _adam(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, betas=_BETAS, fused=True)  # in one pass over the weights instead of ten


def batches_of(chats: Chats, batch_tokens: int, seed: int, epoch: int) -> list[NDArray[np.int64]]:
    """Return the epoch's batches: every chat once, chats of like length together, about `batch_tokens` with padding."""
    dice = np.random.default_rng([seed, epoch])
    lengths = np.diff(chats.starts)
    order = dice.permutation(chats.n_chats)
    batches: list[NDArray[np.int64]] = []
    for first in range(0, len(order), _POOL):
        pool = order[first : first + _POOL]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        batch: list[int] = []
        for chat in pool.tolist():
            if batch and (len(batch) + 1) * lengths[chat] > batch_tokens:
                batches.append(np.array(batch))
                batch = []
            batch.append(chat)
        batches.append(np.array(batch))
    return [batches[place] for place in dice.permutation(len(batches))]


class _Places:
    """A batch: padded ids (chats, longest), and for each answer token where it is predicted and its labels are."""

    def __init__(self, chats: Chats, label_starts: NDArray[np.int64], batch: NDArray[np.int64]) -> None:
        lengths = np.diff(chats.starts)[batch]
        answers = chats.answers[batch]
        self.ids = np.zeros((len(batch), int(lengths.max())), np.int64)
        for row, chat in enumerate(batch.tolist()):
            self.ids[row, : lengths[row]] = chats.tokens[chats.starts[chat] : chats.starts[chat + 1]]
        spans = list(zip(batch.tolist(), lengths.tolist(), answers.tolist(), strict=True))
        self.rows = np.concatenate([np.full(n - first, row) for row, (_, n, first) in enumerate(spans)])
        self.columns = np.concatenate([np.arange(first - 1, n - 1) for _, n, first in spans])
        self.label_rows = np.concatenate(
            [np.arange(label_starts[chat], label_starts[chat] + n - first) for chat, n, first in spans]
        )
