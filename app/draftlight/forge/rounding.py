"""Rounds a model's matrices as a Q4_0 file stores them, for a training that is to bear it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from transformers import PreTrainedModel

_BLOCK = 32  # numbers along a row that share a scale
_LOWEST, _HIGHEST = -8, 7  # the integers that four bits hold


@contextmanager
def rounded(model: PreTrainedModel) -> Iterator[None]:
    """Let the model compute with rounded matrices for a while; the gradients are as if they were not rounded.

    That is the straight-through estimator (Bengio et al. 2013): what is learned goes into the whole weights.
    """
    whole = [(parameter, parameter.data) for parameter in model.parameters() if parameter.ndim > 1]
    try:
        for parameter, weights in whole:
            parameter.data = as_q4_0(weights)
        yield
    finally:
        for parameter, weights in whole:
            parameter.data = weights


def as_q4_0(weights: torch.Tensor) -> torch.Tensor:
    """Return float32 weights as they come out of a Q4_0 file: blocks of a row share a scale in half precision.

    A block's number of the largest magnitude is -8 of its scales (ggml's quantize_row_q4_0). A matrix whose rows are
    no whole blocks is stored unrounded, and comes back as it is.
    """
    if weights.shape[-1] % _BLOCK:
        return weights
    blocks = weights.reshape(-1, _BLOCK)
    largest = blocks.gather(1, blocks.abs().argmax(1, keepdim=True))
    scale = largest / _LOWEST
    inverse = torch.where(scale == 0.0, 0.0, 1.0 / scale)
    steps = (blocks * inverse - _LOWEST + 0.5).trunc_().add_(_LOWEST).clamp_(max=_HIGHEST)
    return steps.mul_(scale.half().float()).reshape(weights.shape)
