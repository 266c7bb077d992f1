"""The person's choices as values, and their TOML file. Knows no widget and no loaded model."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

NGRAM = "ngram"
NO_DRAFT = "none"


class KvType(StrEnum):
    """How the cache of keys and values is stored."""

    Q8_0 = "q8_0"
    F16 = "f16"


@dataclass(frozen=True, slots=True)
class PairSettings:
    """Which models to load, and how. Changing any of it means loading again.

    `draft` is a GGUF file, or None with `ngram` saying whether the answer's own text is drafted from.
    `n_ctx` 0 takes the model's training context, at most 8,192 tokens; `n_threads` 0 the physical cores.
    """

    target: Path
    draft: Path | None = None
    ngram: bool = False
    n_ctx: int = 0
    n_threads: int = 0
    n_gpu_layers: int = 0
    kv_type: KvType = KvType.Q8_0
    use_extra_buffers: bool = True
