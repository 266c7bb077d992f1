"""What differs between the kinds of models that drafts can be made for, in GGUF files and in transformers."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from draftlight.errors import UserError
from draftlight.forge import rope
from draftlight.forge.conditions import require_family
from draftlight.library.gguf import GgufHeader
from draftlight.library.header_file import shown_name

OTHER_TARGET = "Choose another target."
GEMMA3_SCALED_LAYERS = 62  # llama.cpp scales attention differently in Gemma 3 27B, which it knows by this
GEMMA3_PERIOD = 6  # every sixth layer sees everything, where the file does not say
GEMMA3_LOCAL_BASE = 10_000.0


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of model. `architecture` is llama.cpp's word, `config_class.model_type` transformers'.

    `permuted`: files hold the rows of q and k in pairs, transformers in halves. `norm_offset` is what files add to the
    weights of norms.
    """

    architecture: str
    config_class: type[PreTrainedConfig]
    model_class: type[PreTrainedModel]
    permuted: bool = False
    norm_offset: float = 0.0


FAMILIES = (
    Family("llama", LlamaConfig, LlamaForCausalLM, permuted=True),
    Family("qwen2", Qwen2Config, Qwen2ForCausalLM),
    Family("qwen3", Qwen3Config, Qwen3ForCausalLM),
    Family("gemma3", Gemma3TextConfig, Gemma3ForCausalLM, norm_offset=1.0),
)


def family_of(config: PreTrainedConfig) -> Family:
    """Return the family of a model that load_target() made, or of a draft model made like it."""
    return next(family for family in FAMILIES if isinstance(config, family.config_class))


def family_of_file(header: GgufHeader) -> Family:
    """Return a file's family. Raises UserError where there is none, or where its weights are not all here and alike."""
    require_family(header)
    name = shown_name(header.path)
    if header.get_int(f"{header.architecture}.expert_count"):
        raise UserError(f"{name} is a mixture of experts, for which drafts cannot be made.", OTHER_TARGET)
    if header.split_count > 1:
        raise UserError(
            f"{name} is one of {header.split_count} parts of a model.",
            "Merge them into one file first, with llama.cpp's llama-gguf-split --merge.",
        )
    return next(family for family in FAMILIES if family.architecture == header.architecture)


def config_of(header: GgufHeader, tensors: Collection[str], factors: NDArray[np.float32] | None) -> PreTrainedConfig:
    """Describe the file's model for transformers. `tensors` are its tensors' names, `factors` its rope_freqs.

    No padding token is set: torch would never train its embedding, and some models pad with the end of turn.
    Raises UserError where the file leaves something out or wants something that transformers does not compute.
    """
    family = family_of_file(header)
    n_heads = _required(header, "attention.head_count")
    width = _required(header, "embedding_length")
    n_layers = _required(header, "block_count")
    head_dim = int(rope.read_number(header, "attention.key_length", width // n_heads))
    for key in ("attention.value_length", "rope.dimension_count"):
        if rope.read_number(header, key, head_dim) != head_dim:
            raise _odd(header, f"{key} is not the size of a head, {head_dim}")
    settings: dict[str, Any] = {
        "vocab_size": header.n_tokens,
        "hidden_size": width,
        "intermediate_size": _required(header, "feed_forward_length"),
        "num_hidden_layers": n_layers,
        "num_attention_heads": n_heads,
        "num_key_value_heads": int(rope.read_number(header, "attention.head_count_kv", n_heads)),
        "head_dim": head_dim,
        "max_position_embeddings": _required(header, "context_length"),
        "rms_norm_eps": rope.read_number(header, "attention.layer_norm_rms_epsilon", 1e-6),
        "tie_word_embeddings": "output.weight" not in tensors,
        "rope_parameters": rope.read_parameters(header, head_dim, factors),
        "bos_token_id": header.bos,
        "eos_token_id": header.eos,
        "pad_token_id": None,
    }
    if family.architecture == "llama":
        settings["attention_bias"] = "blk.0.attn_output.bias" in tensors
        settings["mlp_bias"] = "blk.0.ffn_down.bias" in tensors
    if family.architecture == "gemma3":
        settings |= _gemma3(header, n_layers, head_dim, settings["rope_parameters"])
    return family.config_class(**settings)


def _gemma3(header: GgufHeader, n_layers: int, head_dim: int, rope_parameters: rope.Parameters) -> dict[str, Any]:
    if n_layers == GEMMA3_SCALED_LAYERS:
        raise _odd(header, "its attention is scaled in a way of its own")
    window = int(rope.read_number(header, "attention.sliding_window", 0))
    key = "gemma3.attention.sliding_window_pattern"
    pattern = header.metadata.get(key, GEMMA3_PERIOD)
    if isinstance(pattern, tuple):
        slides = [bool(layer) for layer in pattern][:n_layers]
    elif isinstance(pattern, int) and pattern > 0:
        slides = [bool((layer + 1) % pattern) for layer in range(n_layers)]
    else:
        slides = [True] * n_layers
    local = rope.read_number(header, "rope.freq_base_swa", GEMMA3_LOCAL_BASE)
    return {
        "sliding_window": window or header.n_ctx_train,  # transformers wants one even where no layer slides
        "layer_types": ["sliding_attention" if window and slide else "full_attention" for slide in slides],
        "query_pre_attn_scalar": head_dim,
        "final_logit_softcapping": rope.read_number(header, "final_logit_softcapping", 0) or None,
        "rope_parameters": {
            "full_attention": rope_parameters,
            "sliding_attention": {"rope_type": "default", "rope_theta": local},
        },
    }


def _required(header: GgufHeader, key: str) -> int:
    value = header.get_int(f"{header.architecture}.{key}")
    if not value:
        raise _odd(header, f"it does not give {key} as one number")
    return value


def _odd(header: GgufHeader, what: str) -> UserError:
    return UserError(f"Drafts cannot be made for {shown_name(header.path)}: {what}.", OTHER_TARGET)


def write_fields(writer: gguf.GGUFWriter, config: PreTrainedConfig, n_ctx_train: int, n_tokens: int) -> None:
    """Add to a file's metadata what config_of() reads, and what else llama.cpp needs."""
    heads_width = config.num_attention_heads * config.head_dim
    if isinstance(config, Qwen2Config) and heads_width != config.hidden_size:
        raise ValueError(f"llama.cpp wants qwen2's heads, {heads_width} wide, as wide as the model")
    writer.add_vocab_size(n_tokens)
    writer.add_context_length(n_ctx_train)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    rope.write_parameters(writer, _main_rope(config))
    if isinstance(config, Gemma3TextConfig):
        _write_gemma3(writer, config)


def _write_gemma3(writer: gguf.GGUFWriter, config: Any) -> None:  # noqa: ANN401 - its class leaves much untyped
    if config.query_pre_attn_scalar != config.head_dim or config.num_hidden_layers == GEMMA3_SCALED_LAYERS:
        raise ValueError("llama.cpp would scale this model's attention differently")
    if len(config.layer_types) != config.num_hidden_layers:
        raise ValueError(f"{len(config.layer_types)} layer types for {config.num_hidden_layers} layers")
    if config.final_logit_softcapping:
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    slides = [layer_type == "sliding_attention" for layer_type in config.layer_types]
    if any(slides):
        writer.add_sliding_window(config.sliding_window)
        writer.add_sliding_window_pattern(slides)
        writer.add_rope_freq_base_swa(config.rope_parameters["sliding_attention"]["rope_theta"])


def _main_rope(config: PreTrainedConfig) -> rope.Parameters:
    parameters: rope.Parameters = config.rope_parameters
    full: rope.Parameters = parameters.get("full_attention", parameters)
    return full


def rope_factors(config: PreTrainedConfig) -> NDArray[np.float32] | None:
    """Return the tensor `rope_freqs.weight` that the model's file has to hold, if it has to."""
    return rope.rope_factors(_main_rope(config), config.head_dim)


class TensorForm:
    """How a model's tensors are named and laid out in files, and back."""

    def __init__(self, config: PreTrainedConfig) -> None:
        """Take names and layout from the model's family."""
        self._family = family_of(config)
        self._n_heads = {"q": config.num_attention_heads, "k": config.num_key_value_heads}
        architecture = next(known for known, name in gguf.MODEL_ARCH_NAMES.items() if name == self._family.architecture)
        self._names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)

    def name_in_file(self, name: str) -> str:
        """Return what files call transformers' `name`."""
        found = self._names.get_name(name, try_suffixes=(".weight", ".bias"))
        if found is None:
            raise ValueError(f"{name} has no name in GGUF files of the architecture {self._family.architecture}")
        return found

    def to_file(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """Lay a tensor out as files do."""
        n_heads = self._n_heads_of(name)
        if n_heads:
            return tensor.reshape(n_heads, 2, -1, *tensor.shape[1:]).transpose(1, 2).reshape(tensor.shape)
        return tensor + self._family.norm_offset if name.endswith("norm.weight") else tensor

    def from_file(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """Lay a file's tensor out as transformers does; `name` is transformers' too."""
        n_heads = self._n_heads_of(name)
        if n_heads:
            return tensor.reshape(n_heads, -1, 2, *tensor.shape[1:]).transpose(1, 2).reshape(tensor.shape)
        return tensor - self._family.norm_offset if name.endswith("norm.weight") else tensor

    def _n_heads_of(self, name: str) -> int:
        """Return over how many heads a tensor's rows are permuted; 0 where they are not."""
        which = re.search(r"\.([qk])_proj\.(?:weight|bias)$", name)
        return self._n_heads[which[1]] if which and self._family.permuted else 0
