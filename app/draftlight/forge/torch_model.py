"""The few things that are asked of a transformers model, with types: only parts of that library have them."""

from typing import Any, cast

import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel


def fresh(config: PreTrainedConfig, attention: str, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """Return a model of this kind with random weights; `attention` is the name of its implementation."""
    make = cast("Any", AutoModelForCausalLM).from_config
    return cast("PreTrainedModel", make(config, dtype=dtype, attn_implementation=attention))


def embedding(model: PreTrainedModel) -> torch.nn.Parameter:
    """Return the input embedding, (n_vocab, width)."""
    layer: Any = model.get_input_embeddings()
    return cast("torch.nn.Parameter", layer.weight)


def output_weight(model: PreTrainedModel) -> torch.nn.Parameter:
    """Return the output layer's weight, (n_vocab, width): the embedding itself where both are tied."""
    layer: Any = cast("Any", model).get_output_embeddings()
    return cast("torch.nn.Parameter", layer.weight)


def hidden_states(model: PreTrainedModel, ids: torch.Tensor, **further: object) -> torch.Tensor:
    """Return what the output layer is fed at each place, (rows, places, width)."""
    return cast("torch.Tensor", cast("Any", model.base_model)(input_ids=ids, **further).last_hidden_state)


def capped(model: PreTrainedModel, logits: torch.Tensor) -> torch.Tensor:
    """Return the logits as the model means them: some families bend them, so that none is larger than a bound."""
    bound = getattr(model.config, "final_logit_softcapping", None)
    return logits if not bound else bound * torch.tanh(logits / bound)


def moved(model: PreTrainedModel, device: torch.device) -> PreTrainedModel:
    """Move the model to a device, and return it."""
    return cast("PreTrainedModel", cast("Any", model).to(device))


def learning(model: PreTrainedModel, *, on: bool) -> None:
    """Make the model ready to be trained, or to be used."""
    cast("Any", model).train(on)


def head_width(config: PreTrainedConfig) -> int:
    """Return the width of one head of attention."""
    known: Any = config
    return int(getattr(known, "head_dim", None) or known.hidden_size // known.num_attention_heads)
