"""Tiny GGUF files, written byte by byte, so that a test can also write wrong ones."""

import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

TOKENS = (b"<unk>", b"<s>", b"</s>", b"a", b"b", b"ab", b"\xc3")
TYPES = (2, 3, 3, 1, 1, 1, 6)


def text(value: str | bytes) -> bytes:
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(item: Any) -> bytes:  # noqa: ANN401 - any metadata value
    if isinstance(item, bool):
        return struct.pack("<I?", 7, item)
    if isinstance(item, int):
        return struct.pack("<II", 4, item)
    if isinstance(item, float):
        return struct.pack("<If", 6, item)
    if isinstance(item, str | bytes):
        return struct.pack("<I", 8) + text(item)
    if item and isinstance(item[0], str | bytes):
        return struct.pack("<IIQ", 9, 8, len(item)) + b"".join(text(part) for part in item)
    return struct.pack("<IIQ", 9, 5, len(item)) + b"".join(struct.pack("<i", part) for part in item)


def metadata(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - any metadata value
    """A small chat model's metadata. Dots in keys are written as two underscores; None takes an entry away."""
    entries: dict[str, Any] = {
        "general.architecture": "llama",
        "general.name": "Tiny",
        "llama.context_length": 128,
        "llama.block_count": 2,
        "llama.embedding_length": 4,
        "llama.attention.head_count": 2,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": TYPES,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": "{{ messages }}",
    }
    entries |= {key.replace("__", "."): item for key, item in changes.items()}
    return {key: item for key, item in entries.items() if item is not None}


def gguf_bytes(
    entries: Mapping[str, Any] | None = None,
    tensors: Sequence[tuple[str, tuple[int, ...], int, int]] = (("a.weight", (4, 2), 0, 0), ("b.weight", (3,), 0, 32)),
    n_data: int = 44,
    version: int = 3,
) -> bytes:
    """A GGUF file; tensors are (name, shape, type, offset)."""
    entries = metadata() if entries is None else entries
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(entries))
    head += b"".join(text(key) + value(item) for key, item in entries.items())
    for name, shape, kind, offset in tensors:
        head += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape) + struct.pack("<IQ", kind, offset)
    return head + bytes(-len(head) % 32) + bytes(n_data)


@pytest.fixture
def write_model(tmp_path: Path) -> Callable[..., Path]:
    """Write a model file below the test's folder: `write_model(name, bytes or None, **metadata changes)`."""

    def write(name: str = "tiny.gguf", content: bytes | None = None, **changes: Any) -> Path:  # noqa: ANN401
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gguf_bytes(metadata(**changes)) if content is None else content)
        return path

    return write


@pytest.fixture(scope="session")
def build_gguf() -> Callable[..., bytes]:
    """Make a GGUF file's bytes: see `gguf_bytes`."""
    return gguf_bytes


@pytest.fixture(scope="session")
def build_metadata() -> Callable[..., dict[str, Any]]:
    """Make a small chat model's metadata: see `metadata`."""
    return metadata
