"""Tiny random models of every kind that drafts can be made for, as torch models and as GGUF files.

Two or three layers, some numbers odd on purpose: heads wider than width / heads, rows that are no whole blocks.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
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

from draftlight.forge.export import write_draft
from draftlight.library.gguf import read_header
from twins import write_twin

N_CTX_TRAIN = 16_384

_MODELS: dict[type[PreTrainedConfig], type[PreTrainedModel]] = {
    LlamaConfig: LlamaForCausalLM,
    Qwen2Config: Qwen2ForCausalLM,
    Qwen3Config: Qwen3ForCausalLM,
    Gemma3TextConfig: Gemma3ForCausalLM,
}
_LLAMA3 = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
_MIXED = ["sliding_attention", "full_attention", "sliding_attention"]
_GEMMA_ROPE = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 20_000.0},
}

KINDS: dict[str, tuple[type[PreTrainedConfig], dict[str, Any]]] = {
    "llama": (LlamaConfig, {"tie_word_embeddings": True}),
    "llama untied, wide heads": (LlamaConfig, {"head_dim": 48, "rope_parameters": {"rope_theta": 5e5}}),
    "llama with biases": (LlamaConfig, {"attention_bias": True, "mlp_bias": True}),
    "llama 3": (
        LlamaConfig,
        {"head_dim": 64, "rope_parameters": _LLAMA3 | {"rope_theta": 5e5, "original_max_position_embeddings": 64}},
    ),
    "llama, linear": (LlamaConfig, {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}}),
    "qwen2": (Qwen2Config, {"tie_word_embeddings": True, "head_dim": 16, "rope_parameters": {"rope_theta": 1e6}}),
    "qwen2, yarn": (
        Qwen2Config,
        {
            "head_dim": 16,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1e6,
                "factor": 4.0,
                "original_max_position_embeddings": 32,
                "beta_fast": 16.0,
                "beta_slow": 2.0,
            },
        },
    ),
    "qwen3": (Qwen3Config, {"tie_word_embeddings": True, "head_dim": 48, "rope_parameters": {"rope_theta": 1e6}}),
    "gemma3": (Gemma3TextConfig, {"sliding_window": 16, "layer_types": _MIXED, "rope_parameters": _GEMMA_ROPE}),
    "gemma3, all sliding": (Gemma3TextConfig, {"sliding_window": 16, "layer_types": ["sliding_attention"] * 3}),
    "gemma3, none sliding": (
        Gemma3TextConfig,
        {"sliding_window": N_CTX_TRAIN, "layer_types": ["full_attention"] * 3, "final_logit_softcapping": 5.0},
    ),
}
"""By name: a configuration's class, and what differs from tiny_config()'s own settings."""


def tiny_config(kind: str, n_tokens: int, **changes: Any) -> PreTrainedConfig:  # noqa: ANN401 - as transformers' own
    """Describe a tiny model of one of KINDS, as load_target() would."""
    config_class, special = KINDS[kind]
    settings: dict[str, Any] = {
        "vocab_size": n_tokens,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": N_CTX_TRAIN,
        "rms_norm_eps": 1e-5,
        "pad_token_id": None,
    }
    if config_class is Gemma3TextConfig:
        settings["query_pre_attn_scalar"] = settings["head_dim"]
    return config_class(**(settings | special | changes))


def tiny_model(config: PreTrainedConfig, seed: int = 1) -> PreTrainedModel:
    """Draw a model whose every weight matters: norms and biases are random, too."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = _MODELS[type(config)](config)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if weight.ndim == 1:
                    weight.add_(0.2 * torch.randn_like(weight))
                elif "embed" in name:
                    weight.copy_(torch.randn_like(weight))
                else:
                    weight.copy_(torch.randn_like(weight) / weight.shape[1] ** 0.5)
    return model


def write_vocabulary(path: Path) -> int:
    """Write a target of which only the vocabulary and the context length matter; return the number of tokens."""
    write_twin(path, n_layers=1, n_ctx_train=N_CTX_TRAIN)
    return read_header(path).n_tokens


def write_tiny(
    folder: Path, kind: str, *, quantisation: str = "F32", seed: int = 1, facts: Mapping[str, str | int | float] = {}
) -> tuple[Path, PreTrainedModel]:
    """Write a tiny model of one of KINDS; return its file and the model."""
    vocabulary = folder / "vocabulary.gguf"
    model = tiny_model(tiny_config(kind, write_vocabulary(vocabulary)), seed)
    path = folder / f"{kind}-{quantisation}-{seed}.gguf"
    write_draft(model, vocabulary, path, quantisation, facts)
    return path, model
