"""Training: towards the target's law, and the same whether it was interrupted or not."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from draftlight.forge.chats import Chats
from draftlight.forge.distill import Distillation, batches_of
from draftlight.forge.recipe import Kind, Shape, TrainingPlan
from draftlight.forge.rounding import rounded
from draftlight.forge.student import begin
from small_torch import N_VOCAB, chats_of, small_model

PLAN = TrainingPlan(n_tokens=3000, batch_tokens=300, learning_rate=3e-3, n_negatives=64)
SHAPE = Shape(Kind.PRUNED, layers=(0,))


def student() -> PreTrainedModel:
    return begin(small_model("llama"), SHAPE, 1)


def test_the_loss_falls_and_agreement_rises() -> None:
    chats = chats_of(60)
    model = student()
    target = small_model("llama")
    tokens = torch.from_numpy(chats.tokens.reshape(60, 22).astype(np.int64))

    def agreement() -> float:
        with torch.inference_mode():
            return float((model(tokens).logits.argmax(-1) == target(tokens).logits.argmax(-1)).float().mean())

    before = agreement()
    losses = [step.loss for step in Distillation(model, chats, PLAN, 1).steps()]
    assert np.mean(losses[-3:]) < np.mean(losses[:3])
    assert agreement() > before + 0.1


@pytest.mark.parametrize("hard_share", [0.0, 1.0])
def test_the_loss_that_is_told_is_the_cross_entropy_to_the_choice_throughout(hard_share: float) -> None:
    chats = chats_of(4, labels=N_VOCAB)
    model = student()
    training = Distillation(model, chats, replace(PLAN, hard_share=hard_share), 1)
    first = next(training.steps())
    again = student()
    tokens = torch.from_numpy(chats.tokens.reshape(4, 22).astype(np.int64))
    target = small_model("llama")
    with torch.inference_mode():
        logits = target(tokens).logits[:, 1:-1]
        choice = torch.nn.functional.one_hot(logits.argmax(-1), N_VOCAB)
        expected = -(choice * again(tokens).logits[:, 1:-1].log_softmax(-1)).sum(-1).mean().item()
    assert abs(first.loss - expected) < 0.01


def test_what_is_learned_is_the_law_and_in_the_last_share_the_choice() -> None:
    chats, target = chats_of(60), small_model("llama")
    tokens = torch.from_numpy(chats.tokens.reshape(60, 22).astype(np.int64))
    with torch.inference_mode():
        logits = target(tokens).logits[:, 1:-1]
    choice = torch.nn.functional.one_hot(logits.argmax(-1), N_VOCAB)

    def entropies(hard_share: float) -> tuple[float, float]:
        """Cross-entropies after a training, to the law and to the choice."""
        model = student()
        for _ in Distillation(model, chats, replace(PLAN, hard_share=hard_share, n_tokens=9000), 1).steps():
            pass
        with torch.inference_mode():
            said = model(tokens).logits[:, 1:-1].log_softmax(-1)
        return tuple(-(law * said).sum(-1).mean().item() for law in (logits.softmax(-1), choice))

    to_law, to_choice = zip(entropies(0.0), entropies(0.5), strict=True)
    assert to_law[0] < to_law[1] - 0.05
    assert to_choice[1] < to_choice[0] - 0.05


@pytest.mark.parametrize("plan", [PLAN, replace(PLAN, matrix_rate=0.0)])
def test_an_interrupted_training_ends_as_an_uninterrupted_one(tmp_path: Path, plan: TrainingPlan) -> None:
    chats = chats_of(40)
    whole = student()
    for _ in Distillation(whole, chats, plan, 1).steps():
        pass
    begun = Distillation(student(), chats, plan, 1)
    steps = begun.steps()
    for _ in range(5):
        next(steps)
    begun.save(tmp_path / "checkpoint.pt")
    next(steps)  # lost in the kill
    resumed = student()
    training = Distillation(resumed, chats, plan, 1)
    training.restore(tmp_path / "checkpoint.pt")
    for _ in training.steps():
        pass
    ended, other = whole.state_dict(), resumed.state_dict()
    assert all(torch.equal(ended[name], other[name]) for name in ended)


def test_the_last_share_of_a_training_bears_being_rounded() -> None:
    chats = chats_of(60)

    def lost(rounded_share: float) -> float:
        """What rounding costs after a training, in nats."""
        model = student()
        plan = replace(PLAN, rounded_share=rounded_share, matrix_rate=0.0, n_tokens=9000)
        for _ in Distillation(model, chats, plan, 1).steps():
            pass
        whole = _loss_on(model, chats)
        with rounded(model):
            return _loss_on(model, chats) - whole

    assert lost(0.5) < 0.5 * lost(0.0)


def _loss_on(model: PreTrainedModel, chats: Chats) -> float:
    plan = replace(PLAN, learning_rate=0.0, matrix_rate=0.0, rounded_share=0.0, hard_share=0.0)
    training = Distillation(model, chats, plan, 1)
    return float(np.mean([step.loss for step, _ in zip(training.steps(), range(8), strict=False)]))


def test_every_chat_is_learned_once_in_an_epoch_in_batches_of_the_size_asked_for() -> None:
    rng = np.random.default_rng(1)
    lengths = rng.integers(5, 60, 700)
    chats = Chats(
        np.zeros(lengths.sum(), np.int32),
        np.concatenate([[0], np.cumsum(lengths)]),
        np.full(700, 2),
        np.zeros((int((lengths - 2).sum()), 1), np.int32),
        np.zeros((int((lengths - 2).sum()), 1), np.float16),
    )
    batches = batches_of(chats, 240, 1, 0)
    assert sorted(np.concatenate(batches).tolist()) == list(range(700))
    assert all(len(batch) * lengths[batch].max() <= 240 for batch in batches)
    padded = sum(len(batch) * lengths[batch].max() for batch in batches)
    assert padded < 1.15 * lengths.sum()
    other = batches_of(chats, 240, 1, 1)
    assert [batch.tolist() for batch in batches] != [batch.tolist() for batch in other]
