"""Writes a draft model as a GGUF file for llama.cpp, with its target's own vocabulary."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from draftlight.errors import UserError
from draftlight.forge.families import TensorForm, family_of, rope_factors, write_fields
from draftlight.forge.gguf_file import read_contents
from draftlight.forge.request import FACTS_PREFIX
from draftlight.forge.rope import FACTORS_TENSOR
from draftlight.forge.weights import EMBEDDING, OUTPUT
from draftlight.library.gguf import GgufHeader, read_header
from draftlight.library.header_file import shown_name

_FILE_TYPES = {
    "F32": gguf.LlamaFileType.ALL_F32,
    "Q8_0": gguf.LlamaFileType.MOSTLY_Q8_0,
    "Q4_0": gguf.LlamaFileType.MOSTLY_Q4_0,
}
_FACT_TYPES = {
    str: gguf.GGUFValueType.STRING,
    bool: gguf.GGUFValueType.BOOL,
    int: gguf.GGUFValueType.INT64,
    float: gguf.GGUFValueType.FLOAT64,
}
_KEPT = ("general.license", "general.license.name", "general.license.link")  # a draft model is derived from its target


def write_draft(
    model: PreTrainedModel,
    target: Path,
    out: Path,
    quantisation: str,
    facts: Mapping[str, str | int | float],
    kind: str = "draft",
) -> None:
    """Write the draft model `model` for the file `target` to `out`, whole or not at all.

    Vocabulary and chat template are copied from `target` as they are, and the context length is its own. Weights are
    stored as `quantisation` ("Q8_0", "Q4_0" or "F32"), norms and biases as F32, and matrices whose rows are no whole
    blocks as F16. `facts` become the entries `draftlight.forge.*`. The model's name is the target's and `kind`.

    Raises UserError where the disk is full or `out` cannot be written, and BadModelFile where `target` is damaged.
    """
    header = read_header(target)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with _written_whole(out) as part:
            _write(model, header, part, quantisation, facts, kind)
    except OSError as error:
        raise UserError(
            f"{shown_name(out)} could not be written to {out.parent}: {error.strerror or error}.",
            "Make room on the disk, or name another place, and try again.",
        ) from error


@contextmanager
def _written_whole(out: Path) -> Iterator[Path]:
    """Yield the name to write to. What is there at the end takes the place of `out`, unless something was raised."""
    part = out.with_name(f"{out.name}.part")
    try:
        yield part
        part.replace(out)
        _sync_folder(out.parent)
    finally:
        part.unlink(missing_ok=True)


def _write(
    model: PreTrainedModel,
    header: GgufHeader,
    part: Path,
    quantisation: str,
    facts: Mapping[str, str | int | float],
    kind: str,
) -> None:
    writer = gguf.GGUFWriter(part, family_of(model.config).architecture)
    try:
        writer.add_type("model")
        writer.add_name(f"{header.name} {kind}")
        writer.add_file_type(_FILE_TYPES[quantisation])
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
        for key in _KEPT:
            writer.add_string(key, header.get_str(key) or "")
        write_fields(writer, model.config, header.n_ctx_train, header.n_tokens)
        for key, entry in read_contents(header).entries.items():
            if entry.value != []:  # the writer refuses empty lists, and to llama.cpp they are nothing
                element_type = None if entry.element_type is None else gguf.GGUFValueType(entry.element_type)
                writer.add_key_value(key, entry.value, gguf.GGUFValueType(entry.value_type), element_type)
        for key, fact in facts.items():
            writer.add_key_value(FACTS_PREFIX + key, fact, _FACT_TYPES[type(fact)])
        _write_file(writer, _stored(model, header.n_tokens, gguf.GGMLQuantizationType[quantisation]))
    finally:
        writer.close()


@dataclass(frozen=True, slots=True)
class _Stored:
    """A tensor as it will be stored; `packed` does the work, when its turn has come."""

    name: str
    shape: tuple[int, ...]
    kind: gguf.GGMLQuantizationType
    packed: Callable[[], NDArray[np.generic]]

    @property
    def n_bytes(self) -> int:
        return prod(gguf.quant_shape_to_byte_shape(self.shape, self.kind))


def _stored(model: PreTrainedModel, n_tokens: int, wanted: gguf.GGMLQuantizationType) -> Iterator[_Stored]:
    """Yield all tensors. Rows of the vocabulary without a token, which some models are padded with, are left out."""
    factors = rope_factors(model.config)
    if factors is not None:
        yield _Stored(FACTORS_TENSOR, factors.shape, gguf.GGMLQuantizationType.F32, lambda: factors)
    form = TensorForm(model.config)
    for name, whole in model.state_dict().items():
        if name == OUTPUT and model.config.tie_word_embeddings:
            continue
        tensor = whole[:n_tokens] if name in {EMBEDDING, OUTPUT} else whole
        shape = tuple(tensor.shape)
        if name in {EMBEDDING, OUTPUT} and shape[0] != n_tokens:
            raise ValueError(f"{name} has {shape[0]} rows for {n_tokens} tokens")
        kind = _kind(shape, wanted)
        yield _Stored(form.name_in_file(name), shape, kind, partial(_pack, form, name, tensor, kind))


def _kind(shape: tuple[int, ...], wanted: gguf.GGMLQuantizationType) -> gguf.GGMLQuantizationType:
    if len(shape) == 1:
        return gguf.GGMLQuantizationType.F32
    block, _ = gguf.GGML_QUANT_SIZES[wanted]
    return gguf.GGMLQuantizationType.F16 if shape[-1] % block else wanted


def _pack(form: TensorForm, name: str, tensor: torch.Tensor, kind: gguf.GGMLQuantizationType) -> NDArray[np.generic]:
    laid_out = form.to_file(name, tensor.detach().float().cpu())
    return gguf.quants.quantize(laid_out.contiguous().numpy(), kind)


def _write_file(writer: gguf.GGUFWriter, tensors: Iterable[_Stored]) -> None:
    """Write all that the writer was told, then one tensor after the other, and wait until it is on the disk.

    The writer's own way would hold all tensors at once, and does not always notice a full disk.
    """
    listed = list(tensors)
    for tensor in listed:
        writer.add_tensor_info(tensor.name, tensor.shape, np.dtype(np.float32), tensor.n_bytes, tensor.kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    (file,) = writer.fout or []
    for tensor in listed:
        writer.write_padding(file, file.tell())
        file.write(tensor.packed().tobytes())
    writer.write_padding(file, file.tell())
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Have the new name on the disk as well, where folders can be opened (not on Windows)."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
