"""What a GGUF file is for, judged from its header: not every GGUF can chat. Knows no file and no vocabulary."""

from collections.abc import Mapping
from enum import StrEnum


class ModelKind(StrEnum):
    """What a file can be used for. Only CHAT and BASE write text."""

    CHAT = "chat"
    BASE = "base"
    EMBEDDING = "embedding"
    PROJECTOR = "projector"
    ADAPTER = "adapter"
    VOCAB_ONLY = "vocab-only"
    DRAFT_HEAD = "draft-head"
    OTHER = "other"
    UNREADABLE = "unreadable"

    @property
    def writes_text(self) -> bool:
        """Tell whether the file is a whole model that predicts the next token."""
        return self in {ModelKind.CHAT, ModelKind.BASE}

    @property
    def description(self) -> str:
        """Return what it is, to stand after "is ": a noun with its article and the reason in brackets."""
        return _DESCRIPTIONS[self]


_DESCRIPTIONS = {
    ModelKind.CHAT: "a chat model",
    ModelKind.BASE: "a base model (it continues text, but has no chat template)",
    ModelKind.EMBEDDING: "an embedding model (it turns text into vectors and writes none)",
    ModelKind.PROJECTOR: "a projector (the image or sound part of another model)",
    ModelKind.ADAPTER: "an adapter (a change to another model, of no use alone)",
    ModelKind.VOCAB_ONLY: "a vocabulary without a model (it holds no weights)",
    ModelKind.DRAFT_HEAD: "a draft head (it needs the inner states of one particular target model)",
    ModelKind.OTHER: "a model of a kind that does not write text token by token",
    ModelKind.UNREADABLE: "a file that cannot be read as a model",
}

EMBEDDING_ARCHITECTURES = frozenset(
    {
        "bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2", "jina-bert-v3", "eurobert",
        "gemma-embedding", "llama-embed", "t5encoder",
    }
)  # fmt: skip
PROJECTOR_ARCHITECTURES = frozenset({"clip", "mmproj"})
DRAFT_HEAD_ARCHITECTURES = frozenset({"eagle3", "dflash", "gemma4-assistant"})
NOT_TOKEN_BY_TOKEN_ARCHITECTURES = frozenset(
    {"t5", "dream", "llada", "llada-moe", "rnd1", "wavtokenizer-dec", "qwen3tts", "pockettts"}
)
"""Encoder-decoder, diffusion and speech models: none of them continues a text by one token after another."""


def kind_of(metadata: Mapping[str, object], n_tensors: int) -> ModelKind:
    """Judge what a file with this metadata and this number of tensors (of all its shards) is for.

    The order matters: an adapter of a chat model carries that model's architecture and perhaps its chat template.
    """
    architecture = metadata.get("general.architecture")
    general_type = metadata.get("general.type")
    pooling = metadata.get(f"{architecture}.pooling_type")
    rules = (
        (general_type == "adapter" or "adapter.type" in metadata, ModelKind.ADAPTER),
        (general_type == "mmproj" or architecture in PROJECTOR_ARCHITECTURES, ModelKind.PROJECTOR),
        (general_type not in {None, "model"}, ModelKind.OTHER),
        (architecture in DRAFT_HEAD_ARCHITECTURES, ModelKind.DRAFT_HEAD),
        (architecture in EMBEDDING_ARCHITECTURES, ModelKind.EMBEDDING),
        (isinstance(pooling, int) and pooling > 0, ModelKind.EMBEDDING),
        (architecture in NOT_TOKEN_BY_TOKEN_ARCHITECTURES, ModelKind.OTHER),
        (not isinstance(architecture, str) or "tokenizer.ggml.model" not in metadata, ModelKind.OTHER),
        (n_tensors == 0, ModelKind.VOCAB_ONLY),
        (bool(metadata.get("tokenizer.chat_template")), ModelKind.CHAT),
    )
    return next((kind for holds, kind in rules if holds), ModelKind.BASE)
