"""The draft model before it is trained: some of the target's own layers, or narrow new ones under its embedding."""

import copy
import re
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from draftlight.errors import UserError
from draftlight.forge.recipe import Kind, Shape
from draftlight.forge.torch_model import embedding, fresh, head_width, output_weight

_FEED_FORWARD = 4  # times the width, in new layers
_LAYER = re.compile(r"(.*\.layers\.)(\d+)(\..*)")


def begin(target: PreTrainedModel, shape: Shape, seed: int) -> PreTrainedModel:
    """Return an untrained draft model in float32, with the target's vocabulary. Raises UserError for a wrong shape."""
    _check(target.config, shape)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = _config(target.config, shape)
        student = fresh(config, "sdpa")
    if shape.kind is Kind.PRUNED:
        source = target.state_dict()
        with torch.no_grad():
            for name, tensor in student.state_dict().items():
                tensor.copy_(source[_origin(name, shape)])
    else:
        _project(target, student)
    student.tie_weights()
    return student


def _check(config: Any, shape: Shape) -> None:  # noqa: ANN401 - each family's configuration has its own class
    if shape.kind is Kind.PRUNED:
        fitting = shape.layers and list(shape.layers) == sorted(set(shape.layers))
        fitting = fitting and shape.layers[0] >= 0 and shape.layers[-1] < config.num_hidden_layers
        remedy = f"Name some of its layers 0 to {config.num_hidden_layers - 1}, in rising order."
    else:
        head = head_width(config)
        fitting = shape.n_layers > 0 and 0 < shape.width < config.hidden_size and shape.width % head == 0
        remedy = f"Choose a width below {config.hidden_size} that is a multiple of {head}, and at least one layer."
    if not fitting:
        raise UserError(f"A draft model of this target cannot have this shape: {shape.label}.", remedy)


def _config(target: PreTrainedConfig, shape: Shape) -> Any:  # noqa: ANN401 - as above
    """Return the target's configuration with what the shape changes."""
    config: Any = copy.deepcopy(target)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    kinds = getattr(config, "layer_types", None)
    if shape.kind is Kind.PRUNED:
        config.num_hidden_layers = len(shape.layers)
        if kinds:
            config.layer_types = [kinds[layer] for layer in shape.layers]
        return config
    config.num_hidden_layers = shape.n_layers
    if kinds:
        config.layer_types = [kinds[layer * len(kinds) // shape.n_layers] for layer in range(shape.n_layers)]
    config.head_dim = head_width(target)
    config.hidden_size = shape.width
    config.num_attention_heads = shape.width // config.head_dim
    shared = 1 if config.num_attention_heads % 2 else 2  # heads of attention to each pair of keys and values
    config.num_key_value_heads = config.num_attention_heads // shared
    config.intermediate_size = _FEED_FORWARD * shape.width
    return config


def _origin(name: str, shape: Shape) -> str:
    """Return the target's name of a tensor that a pruned draft model has under `name`."""
    layer = _LAYER.fullmatch(name)
    return name if layer is None else f"{layer[1]}{shape.layers[int(layer[2])]}{layer[3]}"


def _project(target: PreTrainedModel, student: PreTrainedModel) -> None:
    """Give the draft model the target's embedding on its principal axes: as near as so few dimensions come.

    A separate output layer is projected onto the axes of its own.
    """
    pairs = [(embedding(target), embedding(student))]
    if output_weight(target) is not embedding(target):
        pairs.append((output_weight(target), output_weight(student)))
    with torch.no_grad():
        for wide, narrow in pairs:
            weight = wide.float()
            _, axes = torch.linalg.eigh(weight.T @ weight)  # eigenvalues rise
            narrow.copy_(weight @ axes[:, -narrow.shape[1] :])
