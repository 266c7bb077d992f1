"""Training with rounded weights: they are those of the file, and what is learned goes into the whole ones."""

import gguf
import numpy as np
import torch

from draftlight.forge.rounding import as_q4_0, rounded
from small_torch import small_model


def test_rounded_weights_are_those_that_come_out_of_a_file() -> None:
    whole = torch.randn((64, 96), generator=torch.Generator().manual_seed(3))
    whole[5, :32] = 0.0
    whole[6, 0], whole[6, 1] = 4.0, -4.0  # as large as each other: the first of them sets the scale
    kind = gguf.GGMLQuantizationType.Q4_0
    stored = gguf.quants.dequantize(gguf.quants.quantize(whole.numpy(), kind), kind)
    assert np.array_equal(as_q4_0(whole).numpy(), stored)


def test_rows_that_are_no_whole_blocks_stay_as_they_are() -> None:
    whole = torch.randn((4, 40))
    assert torch.equal(as_q4_0(whole), whole)


def test_a_model_computes_with_rounded_weights_and_keeps_and_learns_the_whole_ones() -> None:
    model = small_model("llama")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    ids = torch.tensor([[5, 6, 7]])
    plain = model(ids).logits
    with rounded(model):
        inside = model(ids).logits
        inside.sum().backward()
        held = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert not torch.equal(plain, inside)
    assert all(torch.equal(as_q4_0(before[name]) if held[name].ndim > 1 else before[name], held[name]) for name in held)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is not None for parameter in model.parameters())
