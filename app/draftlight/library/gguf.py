"""What a GGUF file says about itself: reads the header and nothing else. Knows no llama.cpp.

The header is read through a growing window, not mapped: a mapped file that another program cuts short ends the whole
process with SIGBUS. Arrays are stepped over and only their place is kept, so that a header costs a few kilobytes.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from draftlight.library.formats import FILE_TYPES, FOREIGN_FILES, SCALARS, TENSOR_TYPES, ValueType
from draftlight.library.header_file import (
    AGAIN,
    BadModelFile,
    HeaderFile,
    is_unfinished,
    open_model_file,
    shown_name,
    split_strings,
)
from draftlight.library.kinds import ModelKind, kind_of

__all__ = ["BadModelFile", "GgufArray", "GgufHeader", "Value", "read_header"]

KEY_BYTES = 65_535
NAME_BYTES = 63  # llama.cpp keeps tensor names in 64 bytes, the last of them zero
MAX_DIMENSIONS = 4
MAX_ELEMENTS = 2**63
DEFAULT_ALIGNMENT = 32
SMALL_ARRAY = 1_024
SMALLEST_ENTRY = 8 + 1 + 4 + 1  # key length, one letter, value type, one byte of value
SMALLEST_TENSOR = 8 + 4 + 4 + 8  # name length, number of dimensions, type, offset
BIG_ENDIAN_MASK = 0xFFFF


@dataclass(frozen=True, slots=True)
class GgufArray:
    """A long or textual array, left in the file: `count` elements in the bytes from `start` to `end`."""

    element_type: ValueType
    count: int
    start: int
    end: int


Value: TypeAlias = "str | int | float | bool | tuple[int | float | bool, ...] | GgufArray"


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What a model file says about itself. Holds no open file; long arrays are read from the file when asked for.

    `size` and `n_parameters` are this file's: a shard's own share where the model is split. `file_id` is the file's
    device and inode: the same for two names of one file.
    """

    path: Path
    size: int
    modified_ns: int
    file_id: tuple[int, int]
    version: int
    n_tensors: int
    n_parameters: int
    main_tensor_type: str
    unknown_tensor_types: tuple[int, ...]
    metadata: Mapping[str, Value]

    def get_str(self, key: str) -> str | None:
        """Return a text value; None where it is absent or not text."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) else None

    def get_int(self, key: str) -> int | None:
        """Return a whole number; None where it is absent or something else."""
        value = self.metadata.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def get_bool(self, key: str) -> bool | None:
        """Return a yes or no; None where it is absent or something else."""
        value = self.metadata.get(key)
        return value if isinstance(value, bool) else None

    def get_ints(self, key: str) -> tuple[int, ...]:
        """Return whole numbers given once or per layer; empty where absent or something else."""
        value = self.metadata.get(key)
        numbers = value if isinstance(value, tuple) else (value,)
        return tuple(number for number in numbers if isinstance(number, int) and not isinstance(number, bool))

    @property
    def architecture(self) -> str:
        """Architecture in llama.cpp's words, such as "llama"; empty where the file does not say."""
        return self.get_str("general.architecture") or ""

    @property
    def name(self) -> str:
        """The name the model's makers gave it, else the file's."""
        return self.get_str("general.name") or shown_name(self.path)

    @property
    def n_ctx_train(self) -> int:
        """Tokens the model was trained to look at; 0 where unknown."""
        return self.get_int(f"{self.architecture}.context_length") or 0

    @property
    def n_tokens(self) -> int:
        """Entries of the vocabulary in the file; 0 where it carries none."""
        tokens = self.metadata.get("tokenizer.ggml.tokens")
        return tokens.count if isinstance(tokens, GgufArray) and tokens.element_type is ValueType.STRING else 0

    @property
    def n_vocab(self) -> int:
        """Width of a row of logits: the entries of the vocabulary, else what the file says; 0 where unknown."""
        return self.n_tokens or self.get_int(f"{self.architecture}.vocab_size") or 0

    @property
    def tokenizer_model(self) -> str:
        """Type of the vocabulary, such as "gpt2" (byte pairs) or "llama" (SentencePiece); empty where there is none."""
        return self.get_str("tokenizer.ggml.model") or ""

    @property
    def chat_template(self) -> str | None:
        """The Jinja template that turns messages into a prompt."""
        return self.get_str("tokenizer.chat_template") or None

    @property
    def quantisation(self) -> str:
        """How the weights are stored, in the words people choose files by, such as "Q4_K_M"."""
        return FILE_TYPES.get(self.get_int("general.file_type") or -1, self.main_tensor_type)

    @property
    def bos(self) -> int | None:
        """Id of the token that begins a text, if the file says."""
        return self.get_int("tokenizer.ggml.bos_token_id")

    @property
    def eos(self) -> int | None:
        """Id of the token that ends a text, if the file says."""
        return self.get_int("tokenizer.ggml.eos_token_id")

    @property
    def eot(self) -> int | None:
        """Id of the token that ends a turn, if the file says."""
        return self.get_int("tokenizer.ggml.eot_token_id")

    @property
    def add_bos(self) -> bool | None:
        """Whether texts are to begin with `bos`; None where the file leaves it to the type of the vocabulary."""
        return self.get_bool("tokenizer.ggml.add_bos_token")

    @property
    def split_count(self) -> int:
        """Shards the model is split into; 1 for a whole file."""
        return self.get_int("split.count") or 1

    @property
    def kind(self) -> ModelKind:
        """What the file can be used for."""
        return kind_of(self.metadata, self.get_int("split.tensors.count") or self.n_tensors)

    def array_bytes(self, key: str) -> bytes:
        """Read an array's bytes from the file; empty where there is no such array.

        Raises BadModelFile where the file cannot be read any more or has changed since.
        """
        place = self.metadata.get(key)
        if not isinstance(place, GgufArray):
            return b""
        with open_model_file(self.path) as file:
            if (file.size, file.modified_ns) != (self.size, self.modified_ns):
                raise BadModelFile(f"{shown_name(self.path)} was changed after it was looked at.", "Choose it again.")
            return file.read_range(place.start, place.end)

    def token_bytes(self) -> bytes:
        """Read the vocabulary as it lies in the file: for each token 8 bytes of length, then its text."""
        return self.array_bytes("tokenizer.ggml.tokens") if self.n_tokens else b""

    def tokens(self) -> list[bytes]:
        """Read the vocabulary's texts by id, as stored; not always UTF-8."""
        return list(split_strings(self.token_bytes()))

    def token_types(self) -> NDArray[np.int64]:
        """Read what each token is for (`formats.TokenType`), by id; empty where the file does not say."""
        key = "tokenizer.ggml.token_type"
        place = self.metadata.get(key)
        if isinstance(place, GgufArray) and place.element_type in {ValueType.INT32, ValueType.UINT32}:
            return np.frombuffer(self.array_bytes(key), dtype="<i4").astype(np.int64)
        return np.array(self.get_ints(key), dtype=np.int64)


def read_header(path: Path) -> GgufHeader:
    """Read a model file's header and check that all its weights are there.

    Weights are checked by place and size, not by content. A tensor type newer than `formats.TENSOR_TYPES` has no
    known size: such a tensor, and the order of those after it, is not checked, and its number is kept.

    Raises BadModelFile, whose sentence says what is wrong and where.
    """
    if is_unfinished(path):
        raise BadModelFile(f"{shown_name(path)} is an unfinished download.", "Let the download finish first.")
    with open_model_file(path) as file:
        version = _read_version(file)
        n_tensors, n_entries = file.number(ValueType.UINT64), file.number(ValueType.UINT64)
        _check_count(file, n_entries, SMALLEST_ENTRY, "entries")
        metadata = _read_metadata(file, n_entries)
        _check_count(file, n_tensors, SMALLEST_TENSOR, "tensors")
        weights, unknown = _read_tensors(file, n_tensors, _alignment(file, metadata))
        main = weights.most_common(1)
        return GgufHeader(
            path=path,
            size=file.size,
            modified_ns=file.modified_ns,
            file_id=file.file_id,
            version=version,
            n_tensors=n_tensors,
            n_parameters=weights.total(),
            main_tensor_type=main[0][0] if main else "",
            unknown_tensor_types=unknown,
            metadata=metadata,
        )


def _read_version(file: HeaderFile) -> int:
    beginning = file.peek(32)
    if not beginning:
        raise BadModelFile(f"{file.name} is empty (0 bytes).", AGAIN, offset=0)
    if not beginning.startswith(b"GGUF"):
        if not any(beginning):
            what = "begins with zeros where a model should be: an unfinished or lost download"
        else:
            foreign = (text for magic, text in FOREIGN_FILES if beginning.startswith(magic))
            what = next(foreign, "is not a GGUF model: it does not begin with the letters GGUF")
        raise BadModelFile(f"{file.name} {what}.", "Choose a model in GGUF format.", offset=0)
    file.skip(4)
    version = file.number(ValueType.UINT32)
    if version & BIG_ENDIAN_MASK == 0:
        raise BadModelFile(
            f"{file.name} is in big-endian byte order, which this machine cannot use.",
            "Choose the little-endian file of the same model.",
            offset=4,
        )
    if version == 1:
        raise BadModelFile(f"{file.name} is GGUF version 1, of August 2023.", "Choose a newer file.", offset=4)
    if version not in {2, 3}:
        raise BadModelFile(
            f"{file.name} is GGUF version {version}; versions 2 and 3 are known.",
            "Update Draftlight, or choose another file.",
            offset=4,
        )
    return version


def _check_count(file: HeaderFile, count: int, smallest: int, what: str) -> None:
    left = file.size - file.position
    if count * smallest > left:
        file.fail(f"it announces {count:,} {what}, more than the {left:,} bytes that follow can hold")


def _read_metadata(file: HeaderFile, n_entries: int) -> dict[str, Value]:
    metadata: dict[str, Value] = {}
    for _ in range(n_entries):
        start = file.position
        key = file.text("the name of an entry", KEY_BYTES)
        if not key:
            file.fail("an entry has no name", start)
        if key in metadata:
            file.fail(f"the entry {key!r} is there twice", start)
        metadata[key] = _read_value(file, key)
    return metadata


def _value_type(file: HeaderFile, key: str) -> ValueType:
    start = file.position
    number = file.number(ValueType.UINT32)
    try:
        return ValueType(number)
    except ValueError:
        file.fail(f"the entry {key!r} has the unknown type {number}", start)


def _read_value(file: HeaderFile, key: str) -> Value:
    value_type = _value_type(file, key)
    if value_type is ValueType.STRING:
        return file.text(f"the entry {key!r}")
    if value_type is not ValueType.ARRAY:
        return file.scalar(value_type)
    at = file.position
    element_type = _value_type(file, key)
    if element_type is ValueType.ARRAY:
        file.fail(f"the entry {key!r} is an array of arrays, which GGUF readers refuse", at)
    count = file.number(ValueType.UINT64)
    start = file.position
    if element_type is ValueType.STRING:
        _check_count(file, count, 8, f"texts in {key!r}")
        file.skip_strings(count, key)
    else:
        width = SCALARS[element_type].size
        _check_count(file, count, width, f"numbers in {key!r}")
        if count <= SMALL_ARRAY:
            return tuple(file.scalar(element_type) for _ in range(count))
        file.skip(count * width)
    return GgufArray(element_type, count, start, file.position)


def _alignment(file: HeaderFile, metadata: Mapping[str, Value]) -> int:
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or isinstance(alignment, bool) or alignment < 1 or alignment & (alignment - 1):
        file.fail(f"its alignment is {alignment!r}, which is not a power of two")
    return alignment


def _read_tensors(file: HeaderFile, n_tensors: int, alignment: int) -> tuple[Counter[str], tuple[int, ...]]:
    """Return the number of weights by tensor type, and the type numbers that are not known."""
    weights: Counter[str] = Counter()
    unknown: set[int] = set()
    names: set[str] = set()
    end = 0  # of the tensor before, from the beginning of the data
    for _ in range(n_tensors):
        start = file.position
        name = file.text("a tensor's name", NAME_BYTES)
        if name in names:
            file.fail(f"the tensor {name!r} is there twice", start)
        names.add(name)
        row, n_elements = _read_shape(file, name)
        number, offset = file.number(ValueType.UINT32), file.number(ValueType.UINT64)
        expected = -(-end // alignment) * alignment
        if offset % alignment or (offset != expected and not unknown):
            wrong = f"the tensor {name!r} lies at {offset:,} of the data instead of {expected:,}"
            file.fail(f"{wrong} (alignment {alignment:,})", start)
        if number not in TENSOR_TYPES:
            unknown.add(number)
            weights[f"type {number}"] += n_elements
            end = max(end, offset)
            continue
        tensor_type = TENSOR_TYPES[number]
        if row % tensor_type.block:
            blocks = f"are not whole {tensor_type.name} blocks of {tensor_type.block}"
            file.fail(f"the {row:,} numbers in a row of the tensor {name!r} {blocks}", start)
        weights[tensor_type.name] += n_elements
        end = offset + n_elements // tensor_type.block * tensor_type.n_bytes
    data_start = -(-file.position // alignment) * alignment
    if n_tensors and data_start + end > file.size:
        raise BadModelFile(f"{file.name} is incomplete: {file.size:,} of {data_start + end:,} bytes.", AGAIN)
    return weights, tuple(sorted(unknown))


def _read_shape(file: HeaderFile, name: str) -> tuple[int, int]:
    """Return the length of a tensor's rows and its number of elements."""
    start = file.position
    n_dimensions = file.number(ValueType.UINT32)
    if n_dimensions > MAX_DIMENSIONS:
        file.fail(f"the tensor {name!r} has {n_dimensions:,} dimensions; at most {MAX_DIMENSIONS} are possible", start)
    shape = [file.number(ValueType.UINT64) for _ in range(n_dimensions)]
    n_elements = 1
    for length in shape:
        n_elements *= length
    if n_elements >= MAX_ELEMENTS or any(length >= MAX_ELEMENTS for length in shape):
        file.fail(f"the tensor {name!r} would have {n_elements:,} elements", start)
    return (shape[0] if shape else 1), n_elements
