"""Weights are unpacked as gguf unpacks them, whole or in parts, and files that change meanwhile are noticed."""

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from draftlight.forge import gguf_file
from draftlight.forge.gguf_file import read_contents, read_tensor
from draftlight.library.gguf import BadModelFile, read_header
from twins import write_twin


@pytest.mark.parametrize("weights", ["Q8_0", "Q4_0", "F16", "BF16"])
def test_every_tensor_and_entry_is_as_gguf_s_own_reader_finds_it(
    weights: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf_file, "_BLOCK_ELEMENTS", 3000)  # so that tensors come in many blocks, the last one short
    path = tmp_path / "twin.gguf"
    write_twin(path, weights=weights)
    contents = read_contents(read_header(path))
    theirs = gguf.GGUFReader(path)
    assert list(contents.tensors) == [tensor.name for tensor in theirs.tensors]
    with path.open("rb") as file:
        for tensor in theirs.tensors:
            expected = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            found = read_tensor(file, contents.tensors[tensor.name], torch.float32)
            assert np.array_equal(found.numpy(), expected), tensor.name
    assert list(contents.entries) == [key for key in theirs.fields if key.startswith("tokenizer.")]
    for key, entry in contents.entries.items():
        field = theirs.fields[key]
        assert [entry.value_type, *filter(None, [entry.element_type])] == [int(kind) for kind in field.types]
        value = field.contents()
        assert entry.value == ([text.encode() for text in value] if key.endswith(("tokens", "merges")) else value)


def test_a_file_that_was_changed_after_its_header_was_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "twin.gguf"
    write_twin(path)
    header = read_header(path)
    write_twin(path, n_layers=3)
    with pytest.raises(BadModelFile, match="was changed"):
        read_contents(header)


def test_a_file_cut_short_under_the_reader_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "twin.gguf"
    write_twin(path)
    place = read_contents(read_header(path)).tensors["output.weight"]
    with path.open("r+b") as file:
        file.truncate(place.start + 100)
    with path.open("rb") as opened, pytest.raises(BadModelFile, match="cut short"):
        read_tensor(opened, place, torch.float32)


def test_weights_that_nobody_can_unpack_are_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "odd.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("a.weight", np.zeros((40, 18), dtype=np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    place = gguf_file.TensorPlace("a.weight", (2, 256), 15, read_contents(read_header(path)).tensors["a.weight"].start)
    with path.open("rb") as opened, pytest.raises(BadModelFile, match="cannot be unpacked"):
        read_tensor(opened, place, torch.float32)  # 15: Q8_K, which only lives in memory
