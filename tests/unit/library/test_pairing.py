"""The pair rule: every refusal names its reason, and what only looks different is let through."""

import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftlight.library.gguf import BadModelFile, GgufHeader, read_header
from draftlight.library.pairing import PairVerdict, check_pair

Write = Callable[..., Path]
Pair = Callable[..., PairVerdict]

TOKENS = (b"<unk>", b"<s>", b"</s>", b"a", b"b", b"ab", b"\xc3")
TYPES = (2, 3, 3, 1, 1, 1, 6)


@pytest.fixture
def pair(write_model: Write, build_gguf: Callable[..., bytes], build_metadata: Callable[..., dict[str, Any]]) -> Pair:
    """Judge a small draft with these changes for a larger target."""
    large = build_gguf(build_metadata(), tensors=[("a", (64,), 0, 0)], n_data=256)
    target = read_header(write_model("target.gguf", large))

    def judge(**changes: Any) -> PairVerdict:  # noqa: ANN401 - any metadata value
        return check_pair(target, read_header(write_model("draft.gguf", **changes)))

    return judge


def test_equal_vocabularies_pair_without_a_word(pair: Pair) -> None:
    assert pair() == PairVerdict(ok=True, reasons=(), warnings=())


def test_flags_do_not_matter(pair: Pair) -> None:
    verdict = pair(
        tokenizer__ggml__add_bos_token=True, tokenizer__ggml__pre="other", tokenizer__ggml__add_eos_token=True
    )
    assert verdict == PairVerdict(ok=True, reasons=(), warnings=())


@pytest.mark.parametrize("n_padding", [1, 500])
def test_padding_of_any_size_is_let_through(pair: Pair, n_padding: int) -> None:
    padded = TOKENS + tuple(b"[PAD%d]" % number for number in range(n_padding))
    assert pair(tokenizer__ggml__tokens=padded, tokenizer__ggml__token_type=TYPES + (5,) * n_padding).ok


def test_vocabularies_of_different_types_are_refused(pair: Pair) -> None:
    verdict = pair(tokenizer__ggml__model="gpt2")
    assert not verdict.ok
    assert verdict.reasons[0].startswith("The vocabularies are of different types: 'llama' for the target, 'gpt2'")


def test_the_first_token_that_differs_is_named_with_both_texts(pair: Pair) -> None:
    verdict = pair(tokenizer__ggml__tokens=(*TOKENS[:4], b"beta", b"other", TOKENS[6]))
    (reason,) = verdict.reasons
    assert reason.startswith('Token 4 differs: "b" for the target, "beta" for the draft. N-gram drafting works')


def test_a_token_among_the_first_five_counts_too(pair: Pair) -> None:
    assert "Token 3 differs" in pair(tokenizer__ggml__tokens=(*TOKENS[:3], b"x", *TOKENS[4:])).reasons[0]


def test_texts_that_cannot_be_printed_are_shown_as_escapes(pair: Pair) -> None:
    verdict = pair(tokenizer__ggml__tokens=(*TOKENS[:4], b"\n\xff" * 40, *TOKENS[5:]))
    assert r'"b" for the target, ' + "'" + r"\n\\xff" in verdict.reasons[0]
    assert len(verdict.reasons[0]) < 300


def test_a_renamed_control_token_is_a_warning_for_it_does_no_text(pair: Pair) -> None:
    verdict = pair(tokenizer__ggml__tokens=(TOKENS[0], b"<begin>", *TOKENS[2:]))
    assert verdict.ok
    assert verdict.warnings[0].startswith('Control token 1 differs: "<s>" for the target, "<begin>" for the draft')


def test_a_padding_token_may_be_called_anything(write_model: Write) -> None:
    other = read_header(
        write_model(
            "other.gguf", tokenizer__ggml__tokens=(*TOKENS[:6], b"<extra>"), tokenizer__ggml__token_type=(*TYPES[:6], 5)
        )
    )
    draft = read_header(
        write_model(
            "draft.gguf", tokenizer__ggml__tokens=(*TOKENS[:6], b"[PAD6]"), tokenizer__ggml__token_type=(*TYPES[:6], 5)
        )
    )
    assert check_pair(other, draft).ok


def test_a_raw_byte_is_not_the_text_of_the_same_name(pair: Pair) -> None:
    verdict = pair(tokenizer__ggml__token_type=(*TYPES[:6], 1))
    assert verdict.reasons[0].startswith("Token 6 is a raw byte for one model and text for the other.")


def test_other_ends_and_beginnings_are_warnings(pair: Pair) -> None:
    verdict = pair(tokenizer__ggml__eos_token_id=0, tokenizer__ggml__bos_token_id=2)
    assert verdict.ok
    assert [warning.split(";")[0] for warning in verdict.warnings] == [
        "The draft ends its answers with another token than the target",
        "The draft was trained to see another token at the beginning of a text",
    ]
    assert pair(tokenizer__ggml__eos_token_id=0, tokenizer__ggml__eot_token_id=2).warnings == ()


def test_a_shorter_context_is_a_warning_with_both_figures(pair: Pair) -> None:
    assert "trained for 64 tokens of context, the target for 128" in pair(llama__context_length=64).warnings[0]


@pytest.mark.parametrize("architecture", ["mamba", "rwkv7", "jamba", "falcon-h1", "lfm2", "qwen35", "granitehybrid"])
def test_models_that_cannot_roll_back_are_refused_on_either_side(write_model: Write, architecture: str) -> None:
    sound = read_header(write_model("sound.gguf"))
    running = read_header(write_model("running.gguf", general__architecture=architecture))
    for verdict, role in ((check_pair(running, sound), "target"), (check_pair(sound, running), "draft")):
        assert not verdict.ok
        assert verdict.reasons[0].startswith(f"The {role} model's architecture {architecture} keeps a running state")


def test_what_writes_no_text_is_refused_by_name(pair: Pair) -> None:
    assert pair(general__architecture="bert").reasons == (
        "The draft draft.gguf is an embedding model (it turns text into vectors and writes none).",
    )
    assert pair(tokenizer__ggml__tokens=()).reasons == ("The draft draft.gguf carries no vocabulary.",)


def test_a_draft_that_cannot_be_faster_is_a_warning(write_model: Write) -> None:
    path = write_model()
    link = path.with_name("link.gguf")
    link.symlink_to(path)
    header = read_header(path)
    assert "are the same file" in check_pair(header, read_header(link)).warnings[0]
    assert "is not smaller" in check_pair(header, read_header(write_model("copy.gguf"))).warnings[0]


def test_a_vocabulary_that_vanished_gives_a_sentence(write_model: Write) -> None:
    target = read_header(write_model("target.gguf"))
    draft = read_header(write_model("draft.gguf"))
    target.path.unlink()
    with pytest.raises(BadModelFile, match=r"target\.gguf is not there"):
        check_pair(target, draft)


def test_large_vocabularies_are_compared_quickly(write_model: Write) -> None:
    tokens = [b"token %d" % number for number in range(262_144)]

    def header(name: str, last: bytes) -> GgufHeader:
        return read_header(
            write_model(
                name,
                tokenizer__ggml__tokens=[*tokens[:-1], last],
                tokenizer__ggml__token_type=struct.unpack("<2i", struct.pack("<2i", 1, 1)) * 131_072,
            )
        )

    target, same, other = header("target.gguf", b"end"), header("same.gguf", b"end"), header("other.gguf", b"fin")
    begun = time.perf_counter()
    assert check_pair(target, same).ok
    assert time.perf_counter() - begun < 0.5
    assert check_pair(target, other).reasons[0].startswith('Token 262,143 differs: "end"')
