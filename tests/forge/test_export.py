"""A draft model's file computes in llama.cpp what the model computes in torch, and speaks its target's vocabulary."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from draftlight.errors import UserError
from draftlight.forge.export import write_draft
from draftlight.forge.gguf_file import read_contents
from draftlight.forge.recipe import Kind, Shape
from draftlight.forge.student import begin
from draftlight.forge.teacher import Parity, load_target, parity
from draftlight.library.formats import TENSOR_TYPES
from draftlight.library.gguf import BadModelFile, read_header
from draftlight.library.pairing import check_pair
from draftlight.llama.backend import LlamaModel, ModelOptions
from draftlight.settings import KvType
from findings import note
from small_disk import small_disk
from tiny_models import KINDS, N_CTX_TRAIN, tiny_config, tiny_model, write_tiny, write_vocabulary

N_PLACES = 100  # more than the tiny models' sliding windows and original contexts


def tokens_below(n_tokens: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(5).integers(n_tokens, size=N_PLACES)]


def parity_of(path: Path, model: PreTrainedModel) -> Parity:
    options = ModelOptions(n_ctx=256, n_threads=1, kv_type=KvType.F32)
    with LlamaModel(path, options) as loaded:
        return parity(model, loaded, tokens_below(loaded.n_vocab))


@pytest.mark.parametrize("kind", KINDS)
def test_llama_cpp_computes_the_same_logits_from_the_file(kind: str, tmp_path: Path) -> None:
    path, model = write_tiny(tmp_path, kind)
    found = parity_of(path, model)
    note(f"forge, tiny {kind}: F32 logits at most {found.largest:.1e} apart, mean {found.mean:.1e}")
    # ggml looks Gemma's activation up in a table of half precision.
    assert found.largest < (1e-2 if "gemma" in kind else 1e-4)
    assert found.same_choice == 1.0


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_read_again_gives_the_same_weights_and_the_same_description(kind: str, tmp_path: Path) -> None:
    path, model = write_tiny(tmp_path, kind)
    again = load_target(path, torch.float32)
    assert list(again.state_dict()) == list(model.state_dict())
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], weight, rtol=0, atol=2e-7, msg=name)
    for setting in ("rope_parameters", "layer_types", "sliding_window", "tie_word_embeddings", "head_dim"):
        assert getattr(again.config, setting, None) == getattr(model.config, setting, None), setting


@pytest.mark.parametrize(
    ("kind", "shape"),
    [(kind, Shape(Kind.PRUNED, layers=(0, 2))) for kind in KINDS]
    + [(kind, Shape(Kind.NARROW, n_layers=2, width=32)) for kind in ("llama", "qwen2", "gemma3")]
    + [("qwen3", Shape(Kind.NARROW, n_layers=2, width=48))],
    ids=str,
)
def test_a_draft_model_begun_from_a_target_computes_alike_in_llama_cpp(kind: str, shape: Shape, tmp_path: Path) -> None:
    target, _ = write_tiny(tmp_path, kind)
    draft = begin(load_target(target, torch.bfloat16), shape, seed=1)
    write_draft(draft, target, tmp_path / "draft.gguf", "F32", {})
    assert parity_of(tmp_path / "draft.gguf", draft).largest < (1e-2 if "gemma" in kind else 1e-4)


@pytest.mark.parametrize(("quantisation", "n_bits", "same"), [("Q8_0", 8.5, 0.9), ("Q4_0", 4.5, 0.4)])
def test_a_quantised_file_is_as_small_as_it_should_be_and_still_runs(
    quantisation: str, n_bits: float, same: float, tmp_path: Path
) -> None:
    path, model = write_tiny(tmp_path, "llama untied, wide heads", quantisation=quantisation)
    header = read_header(path)
    matrices = sum(weight.numel() for weight in model.parameters() if weight.ndim > 1)
    others = sum(weight.numel() for weight in model.parameters() if weight.ndim == 1)
    start = min(place.start for place in read_contents(header).tensors.values())
    assert header.size - start == pytest.approx(matrices * n_bits / 8 + others * 4, abs=32 * header.n_tensors)
    assert header.quantisation == quantisation
    found = parity_of(path, model)
    note(f"forge, tiny untied llama: {quantisation} chooses as torch does at {found.same_choice:.0%} of random places")
    assert found.same_choice > same


def test_matrices_whose_rows_are_no_whole_blocks_are_stored_as_halves(tmp_path: Path) -> None:
    vocabulary, path = tmp_path / "vocabulary.gguf", tmp_path / "odd.gguf"
    config = tiny_config("llama", write_vocabulary(vocabulary), intermediate_size=90)
    model = tiny_model(config)
    write_draft(model, vocabulary, path, "Q4_0", {})
    kinds = {
        name: TENSOR_TYPES[place.tensor_type].name for name, place in read_contents(read_header(path)).tensors.items()
    }
    assert kinds["blk.0.ffn_down.weight"] == "F16"
    assert kinds["blk.0.ffn_up.weight"] == "Q4_0"
    assert kinds["blk.0.attn_norm.weight"] == "F32"
    assert parity_of(path, model).same_choice > 0.4


def test_the_vocabulary_is_the_target_s_entry_by_entry(tmp_path: Path) -> None:
    path, _ = write_tiny(tmp_path, "qwen3")
    target, draft = read_header(tmp_path / "vocabulary.gguf"), read_header(path)
    assert read_contents(draft).entries == read_contents(target).entries
    assert draft.chat_template == target.chat_template
    assert draft.n_ctx_train == N_CTX_TRAIN
    assert check_pair(target, draft).ok


def test_odd_entries_of_a_vocabulary_are_copied_as_they_are(tmp_path: Path) -> None:
    target, path = tmp_path / "odd.gguf", tmp_path / "draft.gguf"
    writer = gguf.GGUFWriter(target, "llama")
    writer.add_context_length(N_CTX_TRAIN)
    writer.add_string("general.license", "apache-2.0")
    writer.add_tokenizer_model("llama")
    writer.add_token_list([b"<unk>", b"\xc3", b"\xff\xfe", "\u2581a".encode()])
    writer.add_token_scores([0.0, -1.5, -2.5, float("-inf")])
    writer.add_token_types([2, 6, 6, 1])
    writer.add_key_value(
        "tokenizer.ggml.precompiled_charsmap", [1, 255, 0], gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.UINT8
    )
    writer.add_key_value("tokenizer.ggml.eot_token_id", 2**40, gguf.GGUFValueType.UINT64)
    writer.add_key_value("tokenizer.some.flags", [True, False], gguf.GGUFValueType.ARRAY)
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    write_draft(tiny_model(tiny_config("llama", 4)), target, path, "Q8_0", {})
    copied = read_contents(read_header(path)).entries
    assert copied == read_contents(read_header(target)).entries
    assert copied["tokenizer.ggml.tokens"].value == [b"<unk>", b"\xc3", b"\xff\xfe", "\u2581a".encode()]
    assert read_header(path).get_str("general.license") == "apache-2.0"


def test_facts_are_kept_in_the_file_as_they_were_given(tmp_path: Path) -> None:
    facts: dict[str, str | int | float] = {"recipe": "width = 64", "n_chat_tokens": 5_000_000_000, "acceptance": 0.375}
    path, _ = write_tiny(tmp_path, "llama", facts=facts)
    metadata = read_header(path).metadata
    assert {key: metadata[f"draftlight.forge.{key}"] for key in facts} == facts


def test_rows_that_only_pad_the_vocabulary_are_left_out(tmp_path: Path) -> None:
    vocabulary, path = tmp_path / "vocabulary.gguf", tmp_path / "draft.gguf"
    n_tokens = write_vocabulary(vocabulary)
    padded = tiny_model(tiny_config("llama", n_tokens + 16))
    write_draft(padded, vocabulary, path, "F32", {})
    kept = load_target(path, torch.float32).state_dict()["model.embed_tokens.weight"]
    assert torch.equal(kept, padded.state_dict()["model.embed_tokens.weight"][:n_tokens])


def test_a_model_with_fewer_rows_than_tokens_is_not_written(tmp_path: Path) -> None:
    vocabulary, path = tmp_path / "vocabulary.gguf", tmp_path / "draft.gguf"
    model = tiny_model(tiny_config("llama", write_vocabulary(vocabulary) - 1))
    with pytest.raises(ValueError, match="rows for"):
        write_draft(model, vocabulary, path, "F32", {})
    assert list(tmp_path.iterdir()) == [vocabulary]


@pytest.mark.parametrize(
    ("kind", "changes", "reason"),
    [
        ("qwen2", {"head_dim": 32}, "as wide as the model"),
        ("gemma3", {"query_pre_attn_scalar": 64}, "scale this model's attention"),
        ("llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}, "rope type"),
    ],
    ids=str,
)
def test_a_model_that_llama_cpp_would_compute_differently_is_not_written(
    kind: str, changes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    vocabulary, path = tmp_path / "vocabulary.gguf", tmp_path / "draft.gguf"
    model = tiny_model(tiny_config(kind, write_vocabulary(vocabulary), **changes))
    with pytest.raises(ValueError, match=reason):
        write_draft(model, vocabulary, path, "F32", {})
    assert list(tmp_path.iterdir()) == [vocabulary]


def test_a_full_disk_is_a_sentence_and_leaves_what_was_there_before(tmp_path: Path) -> None:
    vocabulary, path = tmp_path / "vocabulary.gguf", tmp_path / "draft.gguf"
    model = tiny_model(tiny_config("llama", write_vocabulary(vocabulary)))
    path.write_bytes(b"an older draft model")
    with small_disk(), pytest.raises(UserError) as caught:
        write_draft(model, vocabulary, path, "F32", {})
    assert "draft.gguf could not be written" in caught.value.sentence
    assert sorted(tmp_path.iterdir()) == [path, vocabulary]
    assert path.read_bytes() == b"an older draft model"


def test_a_place_that_is_no_folder_is_a_sentence(tmp_path: Path) -> None:
    vocabulary = tmp_path / "vocabulary.gguf"
    model = tiny_model(tiny_config("llama", write_vocabulary(vocabulary)))
    with pytest.raises(UserError, match="could not be written"):
        write_draft(model, vocabulary, vocabulary / "draft.gguf", "F32", {})


def test_a_damaged_target_gives_its_own_sentence(tmp_path: Path) -> None:
    vocabulary = tmp_path / "vocabulary.gguf"
    model = tiny_model(tiny_config("llama", write_vocabulary(vocabulary)))
    vocabulary.write_bytes(vocabulary.read_bytes()[:5000])
    with pytest.raises(BadModelFile):
        write_draft(model, vocabulary, tmp_path / "draft.gguf", "F32", {})


def test_half_precision_models_are_written_too(tmp_path: Path) -> None:
    vocabulary, path = tmp_path / "vocabulary.gguf", tmp_path / "draft.gguf"
    model = tiny_model(tiny_config("gemma3", write_vocabulary(vocabulary))).bfloat16()
    write_draft(model, vocabulary, path, "F32", {})
    again = load_target(path, torch.bfloat16)
    assert all(torch.equal(again.state_dict()[name], weight) for name, weight in model.state_dict().items())
