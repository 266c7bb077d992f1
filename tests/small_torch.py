"""Small random torch models of each family, the same at every call. What they say is babble, but not all alike."""

from typing import Any

import numpy as np
import torch
from transformers import Gemma3TextConfig, LlamaConfig, PreTrainedModel, Qwen2Config, Qwen3Config

from draftlight.forge.chats import Chats, joined
from draftlight.forge.torch_model import fresh, learning
from draftlight.forge.writing import ATTENTION, Manner, write

N_VOCAB = 320
_CONFIGS = {"llama": LlamaConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config, "gemma3": Gemma3TextConfig}


def small_model(family: str, *, attention: str = "eager", n_layers: int = 3, **changes: Any) -> PreTrainedModel:  # noqa: ANN401 - as transformers' own
    """Return a model of 3 layers, 64 wide, whose heads share keys; `changes` are its configuration's."""
    special: dict[str, Any] = {}
    if family == "gemma3":
        kinds = ["sliding_attention", "full_attention", "sliding_attention"]
        special = {"sliding_window": 8, "layer_types": [kinds[layer % 3] for layer in range(n_layers)]}
    config = _CONFIGS[family](
        **{
            "vocab_size": N_VOCAB,
            "hidden_size": 64,
            "num_hidden_layers": n_layers,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "intermediate_size": 128,
            "initializer_range": 0.15,
            "tie_word_embeddings": True,
            **special,
            **changes,
        }
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        model = fresh(config, attention)
    learning(model, on=False)
    return model


def chats_of(n: int, *, length: int = 20, labels: int = 16) -> Chats:
    """Chats that a small target has written, with no question but a token."""
    target = small_model("llama", attention=ATTENTION)
    prompts = [[1 + number % 50, 60] for number in range(n)]
    answers = write(target, prompts, [0.7] * n, Manner(length, frozenset(), n_labels=labels), 5, lambda: True)
    assert answers is not None
    return joined(
        [
            Chats(
                np.array([*prompt, *answer.tokens], np.int32),
                np.array([0, len(prompt) + len(answer.tokens)]),
                np.array([len(prompt)]),
                answer.label_ids,
                answer.label_logprobs,
            )
            for prompt, answer in zip(prompts, answers, strict=True)
        ]
    )
