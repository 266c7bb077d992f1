"""Logits to the law that a token is drawn from."""

from dataclasses import dataclass, field
from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the target's law is made from its logits; the draft's is made the same way.

    Applied in llama.cpp's order: logit bias, penalties over the last `penalty_last_n` committed tokens, top-k, top-p,
    min-p, temperature. 0 (top_k), 1.0 (top_p), 0.0 (min_p), 1.0 (repeat_penalty) switch a part off. Temperature 0 is
    the one-hot law of the largest logit, the lowest id among equals.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    penalty_last_n: int = 64
    logit_bias: Mapping[int, float] = field(default_factory=dict)
