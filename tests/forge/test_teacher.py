"""A target is loaded exactly, from its file or from its folder, or refused with a sentence that says why."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
import numpy as np
import psutil
import pytest
import torch
from safetensors.torch import save_file
from transformers import PreTrainedModel

from draftlight.errors import UserError
from draftlight.forge.teacher import load_target, parity
from draftlight.library.gguf import BadModelFile
from draftlight.llama.backend import LlamaModel, ModelOptions
from draftlight.settings import KvType
from findings import note
from tiny_models import tiny_config, tiny_model, write_tiny
from twins import write_twin

EMBEDDING = "model.embed_tokens.weight"
PROSE = "Why is the sky blue? Light from the sun is made of all colours, and air scatters the blue ones most. "


def equal(model: PreTrainedModel, other: PreTrainedModel) -> bool:
    ours, theirs = model.state_dict(), other.state_dict()
    return list(ours) == list(theirs) and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.model
@pytest.mark.slow
def test_the_starter_target_computes_the_same_in_torch(starter_target: Path, tmp_path: Path) -> None:
    from draftlight.forge.export import write_draft  # noqa: PLC0415

    model = load_target(starter_target, torch.float32)
    unpacked = tmp_path / "unpacked.gguf"
    write_draft(model, starter_target, unpacked, "F32", {})
    for name, file, kv_type, largest, mean, same in (
        ("F32, F32 cache", unpacked, KvType.F32, 1e-3, 1e-4, 1.0),
        ("F32, F16 cache", unpacked, KvType.F16, 0.1, 0.01, 1.0),
        ("as it is", starter_target, KvType.F16, 3.0, 0.4, 0.85),  # its kernels round their inputs to 8 bits
    ):
        with LlamaModel(file, ModelOptions(n_ctx=512, n_threads=1, kv_type=kv_type)) as loaded:
            found = parity(model, loaded, loaded.vocabulary.encode(PROSE * 10)[:230])
        note(
            f"forge, starter target, {name}: logits at most {found.largest:.1e} apart, mean {found.mean:.1e}, "
            f"same choice at {found.same_choice:.1%} of {found.n_places} places"
        )
        assert found.largest < largest
        assert found.mean < mean
        assert found.same_choice >= same


def test_the_type_of_the_weights_is_as_asked_for_and_nothing_is_written(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path, model = write_tiny(tmp_path, "llama")
    loaded = load_target(path, torch.bfloat16)
    assert {weight.dtype for weight in loaded.parameters()} == {torch.bfloat16}
    assert torch.equal(loaded.state_dict()[EMBEDDING], model.state_dict()[EMBEDDING].bfloat16())
    assert not loaded.training
    assert capfd.readouterr() == ("", "")


def test_no_token_is_kept_from_being_trained(tmp_path: Path) -> None:
    # The starter target pads with its end of turn, whose embedding torch would then never move.
    path, _ = write_tiny(tmp_path, "llama")
    embedding = load_target(path, torch.float32).get_input_embeddings()
    assert isinstance(embedding, torch.nn.Embedding)
    assert embedding.padding_idx is None


def write_small(path: Path, architecture: str = "llama", **entries: Any) -> None:  # noqa: ANN401 - any metadata value
    """Write a file that a header makes a chat model of, with one tensor. Dots in keys are two underscores."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_chat_template("{{ messages }}")
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["a", "b"])
    for key in ("context_length", "embedding_length", "block_count", "feed_forward_length", "attention.head_count"):
        writer.add_uint32(f"{architecture}.{key}", 2)
    for key, value in entries.items():
        writer.add_key_value(key.replace("__", "."), value, gguf.GGUFValueType.get_type(value))
    writer.add_tensor("token_embd.weight", np.zeros((2, 2), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize(
    ("architecture", "entries", "reason"),
    [
        ("mamba", {}, "of the mamba family"),
        ("qwen3moe", {}, "of the qwen3moe family"),
        ("qwen2vl", {}, "of the qwen2vl family"),
        ("llama", {"llama__expert_count": 8}, "mixture of experts"),
        ("llama", {"general__type": "mmproj"}, "is a projector"),
        ("llama", {"split__count": 3}, "one of 3 parts"),
        ("llama", {"llama__rope__dimension_count": 4}, "rope.dimension_count"),
        ("llama", {"llama__attention__value_length": 4}, "attention.value_length"),
        ("llama", {}, "attn_q.weight is not there"),
        ("gemma3", {"gemma3__block_count": 62}, "attention is scaled"),
        ("qwen3", {"qwen3__feed_forward_length": [4, 6]}, "feed_forward_length as one number"),
    ],
    ids=str,
)
def test_what_no_draft_can_be_made_for_is_refused_with_its_reason(
    architecture: str, entries: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "other.gguf"
    write_small(path, architecture, **entries)
    with pytest.raises(UserError, match=reason):
        load_target(path, torch.float32)


def test_a_file_cut_short_is_refused(tmp_path: Path) -> None:
    path, _ = write_tiny(tmp_path, "llama")
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(BadModelFile, match="incomplete"):
        load_target(path, torch.float32)


def test_weights_that_the_description_does_not_mention_are_refused(tmp_path: Path) -> None:
    # With two layers described, those of the third would be left out in silence.
    path, _ = write_tiny(tmp_path, "llama")
    entry = b"llama.block_count" + (4).to_bytes(4, "little")
    raw = path.read_bytes()
    assert raw.count(entry + (3).to_bytes(4, "little")) == 1
    path.write_bytes(raw.replace(entry + (3).to_bytes(4, "little"), entry + (2).to_bytes(4, "little")))
    with pytest.raises(UserError, match=r"blk\.2"):
        load_target(path, torch.float32)


def test_a_target_too_large_for_the_free_memory_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = write_tiny(tmp_path, "llama")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1_000_000))
    with pytest.raises(UserError, match=r"memory unpacked; 0\.0 GB are free"):
        load_target(path, torch.float32)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=2**40))
    load_target(path, torch.float32, beside=2**39)
    with pytest.raises(UserError, match="memory unpacked, with what is made from it; 1099"):
        load_target(path, torch.float32, beside=2**40)


@pytest.mark.parametrize("kind", ["llama", "llama untied, wide heads", "gemma3"])
def test_a_folder_s_weights_replace_the_file_s(kind: str, tmp_path: Path) -> None:
    path, model = write_tiny(tmp_path, kind, quantisation="Q8_0")
    model.save_pretrained(tmp_path / "folder")
    assert not equal(load_target(path, torch.float32), model)
    assert equal(load_target(path, torch.float32, tmp_path / "folder"), model)


def test_a_folder_may_share_what_the_file_holds_twice(tmp_path: Path) -> None:
    path, model = write_tiny(tmp_path, "llama untied, wide heads", quantisation="Q8_0")
    model.lm_head.weight = model.model.embed_tokens.weight
    model.config.tie_word_embeddings = True
    model.save_pretrained(tmp_path / "folder")
    loaded = load_target(path, torch.float32, tmp_path / "folder")
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight
    assert torch.equal(loaded.lm_head.weight, model.lm_head.weight)


@pytest.mark.parametrize("prefix", ["language_model.", "model.language_model."])
def test_the_text_part_of_a_model_that_sees_pictures_is_taken_from_its_folder(prefix: str, tmp_path: Path) -> None:
    path, model = write_tiny(tmp_path, "gemma3", quantisation="Q8_0")
    state = {name: tensor.contiguous() for name, tensor in model.state_dict().items() if name != "lm_head.weight"}
    published = {
        prefix + name.removeprefix("model." if prefix.startswith("model.") else ""): state[name] for name in state
    }
    (tmp_path / "folder").mkdir()
    save_file(published | {"vision_tower.weight": torch.ones(3)}, tmp_path / "folder" / "model.safetensors")
    assert equal(load_target(path, torch.float32, tmp_path / "folder"), model)


def test_rows_that_pad_a_folder_s_vocabulary_are_left_out(tmp_path: Path) -> None:
    path, model = write_tiny(tmp_path, "llama")
    padded = tiny_model(tiny_config("llama", model.config.vocab_size + 64))
    state = {name: tensor for name, tensor in model.state_dict().items() if name != "lm_head.weight"}
    state[EMBEDDING] = torch.cat([state[EMBEDDING], torch.ones(64, state[EMBEDDING].shape[1])])
    padded.load_state_dict(state, strict=False)
    padded.save_pretrained(tmp_path / "folder")
    assert equal(load_target(path, torch.float32, tmp_path / "folder"), model)


@pytest.mark.parametrize(
    ("changes", "seed", "reason"),
    [
        ({}, 2, "unlike the target file's"),
        ({"intermediate_size": 128}, 1, "has the shape"),
        ({"num_hidden_layers": 2}, 1, "it has no model.layers.2"),
        ({"vocab_size": 300}, 1, "has the shape"),
    ],
    ids=str,
)
def test_another_model_s_folder_is_refused(changes: dict[str, Any], seed: int, reason: str, tmp_path: Path) -> None:
    path, model = write_tiny(tmp_path, "llama", quantisation="Q4_0")
    other = tiny_config("llama", **({"n_tokens": model.config.vocab_size} | changes))
    tiny_model(other, seed).save_pretrained(tmp_path / "folder")
    with pytest.raises(UserError, match=f"is of another model.*{reason}"):
        load_target(path, torch.float32, tmp_path / "folder")


def test_a_folder_without_weights_or_with_damaged_ones_is_refused(tmp_path: Path) -> None:
    path, model = write_tiny(tmp_path, "llama")
    with pytest.raises(UserError, match="holds no safetensors"):
        load_target(path, torch.float32, tmp_path)
    model.save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    with pytest.raises(UserError, match="cannot be read"):
        load_target(path, torch.float32, tmp_path)


def test_parity_counts_every_place_once_and_finds_a_difference(tmp_path: Path) -> None:
    path, model = write_tiny(tmp_path, "llama")
    tokens = [1, 2, 3] * 23 + [4]  # 70: two whole passes of the target, and one of six
    with LlamaModel(path, ModelOptions(n_ctx=128, n_threads=1, kv_type=KvType.F32)) as loaded:
        loaded.forward([7, 8], 0)  # what it held before does not count
        same = parity(model, loaded, tokens)
        with torch.no_grad():
            model.lm_head.weight[5] += 1
        other = parity(model, loaded, tokens)
        assert loaded.n_past == 0
    assert (same.n_places, same.same_choice) == (70, 1.0)
    assert same.mean <= same.largest < 1e-4
    assert other.largest > 0.1


def test_a_type_of_weights_from_the_future_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "twin.gguf"
    write_twin(path)
    raw = path.read_bytes()
    name = b"output_norm.weight"
    place = raw.index(name) + len(name) + 4 + 8  # past the number of dimensions and the one length
    path.write_bytes(raw[:place] + (250).to_bytes(4, "little") + raw[place + 4 :])
    with pytest.raises(UserError, match="of an unknown type"):
        load_target(path, torch.float32)
