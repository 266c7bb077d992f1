"""The parts of a GGUF file that the header reader leaves in it: its weights, unpacked, and entries with their types.

`gguf.GGUFReader` takes 16 s and 690 MB for a vocabulary of 262,000 tokens, this a fifth of a second.
"""

from dataclasses import dataclass
from io import BufferedReader
from math import prod
from pathlib import Path
from typing import Final

import gguf
import numpy as np
import torch
from numpy.typing import NDArray

from draftlight.library.formats import SCALAR_CODES, SCALARS, TENSOR_TYPES, ValueType
from draftlight.library.gguf import GgufHeader
from draftlight.library.header_file import AGAIN, BadModelFile, HeaderFile, open_model_file, shown_name, split_strings

_BLOCK_ELEMENTS: Final = 1 << 22  # unpacked at a time: 16 MB of float32
_FIRST_ENTRY = 4 + 4 + 8 + 8  # bytes: letters, version, number of tensors, number of entries


@dataclass(frozen=True, slots=True)
class Entry:
    """A metadata value as it is stored. Texts inside arrays are bytes: vocabularies hold halves of letters."""

    value: str | int | float | list[bytes] | list[int] | list[float]
    value_type: ValueType
    element_type: ValueType | None = None


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """Where a tensor lies in the file; `shape` has the rows' length last, as in torch."""

    name: str
    shape: tuple[int, ...]
    tensor_type: int
    start: int

    @property
    def n_elements(self) -> int:
        """How many numbers it holds."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class Contents:
    """What a file holds: the entries that were asked for, and all tensors, both in the file's order."""

    path: Path
    entries: dict[str, Entry]
    tensors: dict[str, TensorPlace]


def read_contents(header: GgufHeader, prefix: str = "tokenizer.") -> Contents:
    """Read the entries whose names begin with `prefix`, and where the tensors lie. Raises BadModelFile."""
    entries: dict[str, Entry] = {}
    with open_model_file(header.path) as file:
        if (file.size, file.modified_ns) != (header.size, header.modified_ns):
            raise BadModelFile(f"{shown_name(header.path)} was changed after it was looked at.", "Choose it again.")
        file.skip(_FIRST_ENTRY)
        for _ in range(len(header.metadata)):
            key = file.text("the name of an entry")
            entry = _read_entry(file, key)
            if key.startswith(prefix):
                entries[key] = entry
        places = [_read_place(file) for _ in range(header.n_tensors)]
        alignment = header.get_int("general.alignment") or gguf.GGUF_DEFAULT_ALIGNMENT
        start = -(-file.position // alignment) * alignment
    tensors = {name: TensorPlace(name, shape, number, start + offset) for name, shape, number, offset in places}
    return Contents(header.path, entries, tensors)


def _read_entry(file: HeaderFile, key: str) -> Entry:
    value_type = ValueType(file.number(ValueType.UINT32))
    if value_type is ValueType.STRING:
        return Entry(file.text(key), value_type)
    if value_type is not ValueType.ARRAY:
        return Entry(file.scalar(value_type), value_type)
    element_type = ValueType(file.number(ValueType.UINT32))
    count, start = file.number(ValueType.UINT64), file.position
    if element_type is ValueType.STRING:
        file.skip_strings(count, key)
    else:
        file.skip(count * SCALARS[element_type].size)
    raw = file.read_range(start, file.position)
    if element_type is ValueType.STRING:
        return Entry(list(split_strings(raw)), value_type, element_type)
    return Entry(np.frombuffer(raw, dtype="<" + SCALAR_CODES[element_type]).tolist(), value_type, element_type)


def _read_place(file: HeaderFile) -> tuple[str, tuple[int, ...], int, int]:
    name = file.text("a tensor's name")
    n_dimensions = file.number(ValueType.UINT32)
    lengths = [file.number(ValueType.UINT64) for _ in range(n_dimensions)]
    return name, tuple(reversed(lengths)), file.number(ValueType.UINT32), file.number(ValueType.UINT64)


def read_tensor(file: BufferedReader, place: TensorPlace, dtype: torch.dtype) -> torch.Tensor:
    """Unpack a tensor from the open file. A block at a time, so little more than the result is ever in memory.

    Read, not mapped: a mapped file that is cut short kills the process. Raises BadModelFile.
    """
    kind = TENSOR_TYPES[place.tensor_type]
    width = place.shape[-1] if place.shape else 1
    row_bytes = width // kind.block * kind.n_bytes
    n_rows = place.n_elements // width
    rows = torch.empty((n_rows, width), dtype=dtype)
    step = max(1, _BLOCK_ELEMENTS // width)
    file.seek(place.start)
    for first in range(0, n_rows, step):
        last = min(first + step, n_rows)
        packed = np.empty((last - first, row_bytes), dtype=np.uint8)
        if file.readinto(packed.data) < packed.nbytes:
            raise BadModelFile(f"{shown_name(Path(file.name))} was cut short while it was being read.", AGAIN)
        rows[first:last] = torch.from_numpy(_unpack(packed, place.name, place.tensor_type))
    return rows.reshape(place.shape)


def _unpack(packed: NDArray[np.uint8], name: str, tensor_type: int) -> NDArray[np.float32]:
    try:
        return gguf.quants.dequantize(packed, gguf.GGMLQuantizationType(tensor_type))
    except (NotImplementedError, ValueError):
        raise BadModelFile(
            f"The weights {name!r} are stored as {TENSOR_TYPES[tensor_type].name}, which cannot be unpacked here.",
            "Choose another file of the same model, such as one in Q8_0 or Q4_K_M.",
        ) from None
