"""How a draft model begins: layers of the target, or the target's embedding on fewer axes."""

from typing import Any

import pytest
import torch

from draftlight.errors import UserError
from draftlight.forge.recipe import Kind, Shape
from draftlight.forge.student import begin
from draftlight.forge.torch_model import embedding, output_weight
from small_torch import N_VOCAB, small_model

FAMILIES = ["llama", "qwen2", "qwen3", "gemma3"]
TOKENS = torch.tensor([[5, 9, 2, 7, 1, 30, 40, 2]])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_draft_model_of_all_layers_is_the_target(family: str) -> None:
    target = small_model(family)
    student = begin(target, Shape(Kind.PRUNED, layers=(0, 1, 2)), 1)
    with torch.inference_mode():
        assert torch.allclose(student(TOKENS).logits, target(TOKENS).logits, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pruned_draft_model_is_the_target_with_those_layers_alone(family: str) -> None:
    target = small_model(family)
    student = begin(target, Shape(Kind.PRUNED, layers=(0, 2)), 1)
    layers: Any = target.base_model.layers
    config: Any = target.config
    del layers[1]
    config.num_hidden_layers = 2
    for place, layer in enumerate(layers):
        layer.self_attn.layer_idx = place
    if family == "gemma3":
        config.layer_types = [config.layer_types[0], config.layer_types[2]]
    with torch.inference_mode():
        assert torch.allclose(student(TOKENS).logits, target(TOKENS).logits, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tied", [True, False])
def test_a_narrow_embedding_keeps_the_distances_as_well_as_so_few_axes_can(family: str, *, tied: bool) -> None:
    target = small_model(family, tie_word_embeddings=tied)
    student = begin(target, Shape(Kind.NARROW, n_layers=2, width=32), 1)
    wide, narrow = (embedding(model).detach() for model in (target, student))
    assert narrow.shape == (N_VOCAB, 32)
    best = torch.linalg.svdvals(wide)[:32].square().sum()
    assert narrow.square().sum().item() == pytest.approx(best.item(), rel=1e-4)
    assert (output_weight(student) is embedding(student)) == tied


@pytest.mark.parametrize("width", [16, 32, 48, 80])
def test_a_narrow_draft_model_of_any_width_shares_its_keys_evenly(width: int) -> None:
    target = small_model("llama", hidden_size=96, num_attention_heads=6)
    config: Any = begin(target, Shape(Kind.NARROW, n_layers=1, width=width), 1).config
    assert config.num_attention_heads * config.head_dim == width
    assert config.num_attention_heads % config.num_key_value_heads == 0  # llama.cpp aborts on anything else


def test_the_same_seed_begins_the_same_draft_model() -> None:
    target = small_model("llama")
    shape = Shape(Kind.NARROW, n_layers=1, width=32)
    one, same, other = (begin(target, shape, seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    "shape",
    [
        Shape(Kind.PRUNED),
        Shape(Kind.PRUNED, layers=(0, 3)),
        Shape(Kind.PRUNED, layers=(1, 0)),
        Shape(Kind.NARROW, n_layers=2, width=40),
        Shape(Kind.NARROW, n_layers=2, width=64),
        Shape(Kind.NARROW, width=32),
    ],
)
def test_a_shape_that_does_not_fit_is_refused(shape: Shape) -> None:
    with pytest.raises(UserError, match="cannot have this shape"):
        begin(small_model("llama"), shape, 1)
