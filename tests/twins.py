"""Makes GGUF pairs with random weights: a real llama-architecture target, and a draft that is the target plus noise.

Small (2 layers, width 256, 320 tokens, under 3 MB), the same for the same seed, made in well under a second. The noise
sets how often the draft agrees: 0 makes both models compute the same. The text is babble, but it does not get stuck.
"""

from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

WIDTH = 256
N_LAYERS = 2
N_HEADS = 4
N_KV_HEADS = 2
FEED_FORWARD = 512
N_CTX_TRAIN = 4096

BOS = "<|start|>"
TURN = "<|im_start|>"
END_OF_TURN = "<|im_end|>"
CONTROL = (BOS, TURN, END_OF_TURN)
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_WORDS = ("the", "and", "draft", "model", "target", "round", "token", "user", "text", "chat")


@dataclass(frozen=True, slots=True)
class Twins:
    """The two files of a pair."""

    target: Path
    draft: Path


def make_twins(folder: Path, *, noise: float = 0.08, seed: int = 1, weights: str = "Q8_0") -> Twins:
    """Write a pair into `folder`. `noise` is the standard deviation of the draft's error, in units of each weight's."""
    twins = Twins(folder / f"twin-target-{weights}.gguf", folder / f"twin-draft-{noise:g}-{weights}.gguf")
    write_twin(twins.target, seed=seed, weights=weights)
    write_twin(twins.draft, seed=seed, noise=noise, weights=weights)
    return twins


def write_twin(  # noqa: PLR0913 - each one is a trait that some rule needs to vary
    path: Path,
    *,
    seed: int = 1,
    noise: float = 0.0,
    weights: str = "Q8_0",
    n_layers: int = N_LAYERS,
    n_ctx_train: int = N_CTX_TRAIN,
    chat_template: str | None = CHAT_TEMPLATE,
    extra_tokens: tuple[str, ...] = (),
) -> None:
    """Write one model. `extra_tokens` are user-defined ones, added at the end of the vocabulary."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(path.stem)
    writer.add_context_length(n_ctx_train)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(n_layers)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(N_HEADS)
    writer.add_head_count_kv(N_KV_HEADS)
    writer.add_rope_dimension_count(WIDTH // N_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{weights}"])
    n_vocab = _add_vocabulary(writer, extra_tokens)
    if chat_template is not None:
        writer.add_chat_template(chat_template)
    kind = gguf.GGMLQuantizationType[weights]
    for name, tensor in _tensors(seed, noise, n_layers, n_vocab):
        if tensor.ndim == 1:
            writer.add_tensor(name, tensor)
        else:
            writer.add_tensor(name, gguf.quants.quantize(tensor, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_vocabulary(writer: gguf.GGUFWriter, extra_tokens: tuple[str, ...]) -> int:
    """Add a byte-level BPE vocabulary: every byte, a few words with the merges that lead to them, control tokens."""
    tokens = list(_byte_spellings())
    merges = []
    for word in _WORDS:
        for spelling in (word, "\u0120" + word):  # U+0120 spells a space in byte-level BPE
            for end in range(2, len(spelling) + 1):
                merge = f"{spelling[: end - 1]} {spelling[end - 1]}"
                if merge not in merges:
                    merges.append(merge)
                    tokens.append(spelling[:end])
    types = [gguf.TokenType.NORMAL] * len(tokens)
    first_control = len(tokens)
    tokens += [*CONTROL, *extra_tokens]
    types += [gguf.TokenType.CONTROL] * len(CONTROL) + [gguf.TokenType.USER_DEFINED] * len(extra_tokens)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(first_control)
    writer.add_eos_token_id(first_control + CONTROL.index(END_OF_TURN))
    writer.add_add_bos_token(False)
    writer.add_vocab_size(len(tokens))
    return len(tokens)


def _byte_spellings() -> list[str]:
    """How byte-level BPE writes each byte as one printable character: itself, or one from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    spelling = {byte: chr(byte) for byte in printable} | {byte: chr(0x100 + i) for i, byte in enumerate(others)}
    return [spelling[byte] for byte in range(256)]


def _tensors(seed: int, noise: float, n_layers: int, n_vocab: int) -> list[tuple[str, NDArray[np.float32]]]:
    """Draw the weights. The noise comes from its own generator, so the target is the same under every draft."""
    weights = np.random.default_rng(seed)
    errors = np.random.default_rng([seed, 1])
    drawn: list[tuple[str, NDArray[np.float32]]] = []

    def draw(name: str, rows: int, columns: int, scale: float) -> None:
        matrix = weights.standard_normal((rows, columns), dtype=np.float32)
        matrix += noise * errors.standard_normal((rows, columns), dtype=np.float32)
        drawn.append((name, matrix * np.float32(scale / np.sqrt(columns))))

    def ones(name: str) -> None:
        drawn.append((name, np.ones(WIDTH, dtype=np.float32)))

    kv_width = WIDTH // N_HEADS * N_KV_HEADS
    draw("token_embd.weight", n_vocab, WIDTH, 1.5 * np.sqrt(WIDTH))
    for layer in range(n_layers):
        block = f"blk.{layer}"
        ones(f"{block}.attn_norm.weight")
        draw(f"{block}.attn_q.weight", WIDTH, WIDTH, 1.6)
        draw(f"{block}.attn_k.weight", kv_width, WIDTH, 1.6)
        draw(f"{block}.attn_v.weight", kv_width, WIDTH, 1.0)
        draw(f"{block}.attn_output.weight", WIDTH, WIDTH, 1.0)
        ones(f"{block}.ffn_norm.weight")
        draw(f"{block}.ffn_gate.weight", FEED_FORWARD, WIDTH, 1.0)
        draw(f"{block}.ffn_up.weight", FEED_FORWARD, WIDTH, 1.0)
        draw(f"{block}.ffn_down.weight", WIDTH, FEED_FORWARD, 1.0)
    ones("output_norm.weight")
    draw("output.weight", n_vocab, WIDTH, 4.0)
    # Control and added tokens score 0, far below the best of the others: answers do not end by themselves.
    name, output = drawn[-1]
    output[-len(CONTROL) :] = 0.0
    drawn[-1] = (name, output)
    return drawn
