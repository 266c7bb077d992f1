"""A target's weights by transformers' names, read from its GGUF file or from a folder of safetensors."""

from dataclasses import replace
from pathlib import Path
from typing import Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from transformers import PreTrainedConfig

from draftlight.errors import UserError
from draftlight.forge.families import TensorForm, family_of
from draftlight.forge.gguf_file import read_contents, read_tensor
from draftlight.forge.rope import FACTORS_TENSOR
from draftlight.library.gguf import GgufHeader
from draftlight.library.header_file import AGAIN, BadModelFile, shown_name

EMBEDDING = "model.embed_tokens.weight"
OUTPUT = "lm_head.weight"


class Weights(Protocol):
    """A model's weights, one tensor at a time."""

    def read(self, name: str) -> torch.Tensor:
        """Return transformers' tensor `name`, laid out as transformers has it."""
        ...


def shapes_of(config: PreTrainedConfig) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a model's tensors by transformers' names. The output layer is left out if it is tied."""
    with torch.device("meta"):
        model = family_of(config).model_class(config)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if config.tie_word_embeddings:
        del shapes[OUTPUT]
    return shapes


class FileWeights:
    """The tensors of a GGUF file, unpacked as they are read. Use in a with block, which holds the file open."""

    def __init__(self, header: GgufHeader, dtype: torch.dtype) -> None:
        """Look where the tensors lie; they are read as `dtype`. Raises BadModelFile."""
        self._header = header
        self._places = read_contents(header).tensors
        self._dtype = dtype
        self._form: TensorForm | None = None
        self._file = header.path.open("rb")

    def __enter__(self) -> Self:
        """Return the weights; leaving the block closes the file."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self._file.close()

    @property
    def names(self) -> frozenset[str]:
        """The tensors' names in the file."""
        return frozenset(self._places)

    def rope_factors(self) -> NDArray[np.float32] | None:
        """Return the tensor that says how positions are stretched, (head size / 2,); None where there is none."""
        place = self._places.get(FACTORS_TENSOR)
        return None if place is None else read_tensor(self._file, place, torch.float32).numpy()

    def check(self, config: PreTrainedConfig) -> None:
        """Say which model the weights are of, before any is read. Raises UserError where the file's are others."""
        name = shown_name(self._header.path)
        form = self._form = TensorForm(config)
        left = self.names - {FACTORS_TENSOR}
        for tensor, shape in shapes_of(config).items():
            place = self._places.get(form.name_in_file(tensor))
            if place is None or place.shape != shape:
                found = "is not there" if place is None else f"has the shape {place.shape} instead of {shape}"
                what = f"the tensor {form.name_in_file(tensor)} {found}"
                raise BadModelFile(f"{name} does not hold the model it describes: {what}.", AGAIN)
            left -= {place.name}
        if left:
            raise UserError(
                f"{name} holds weights that other {self._header.architecture} models do not have, such as {min(left)}.",
                "Choose another target.",
            )

    def read(self, name: str) -> torch.Tensor:
        """Return transformers' tensor `name`, laid out as transformers has it."""
        form = self._checked_form()
        place = self._places[form.name_in_file(name)]
        # One is taken off some norms, for which their last digits are needed.
        dtype = self._dtype if len(place.shape) > 1 else torch.float32
        return form.from_file(name, read_tensor(self._file, place, dtype)).to(self._dtype)

    def read_rows(self, name: str, n_rows: int) -> torch.Tensor:
        """Return the first rows of transformers' tensor `name`, which is laid out alike in files."""
        place = self._places[self._checked_form().name_in_file(name)]
        return read_tensor(self._file, replace(place, shape=(min(n_rows, place.shape[0]), place.shape[1])), self._dtype)

    def _checked_form(self) -> TensorForm:
        if self._form is None:
            raise ValueError("check() comes first: it says which model this is")
        return self._form


class FolderWeights:
    """The tensors of a folder of safetensors, as models are published. A part that sees pictures is left aside."""

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        """Look into the folder's files; tensors are read as `dtype`. Raises UserError."""
        self._folder = folder
        self._dtype = dtype
        self._rows = 0
        self._places: dict[str, tuple[Path, str]] = {}
        for path in sorted(folder.glob("*.safetensors")):
            for name in self._names_in(path):
                # Models with pictures keep their text part under this name.
                self._places[name.replace("language_model.", "", 1)] = (path, name)
        if not self._places:
            raise UserError(f"{folder} holds no safetensors.", "Name the folder that the model was published in.")

    def __contains__(self, name: str) -> bool:
        """Tell whether the folder has transformers' tensor `name`."""
        return name in self._places

    def _names_in(self, path: Path) -> list[str]:
        try:
            with safe_open(path, framework="pt") as file:
                return list(file.keys())
        except (SafetensorError, OSError) as error:
            raise _unreadable(path, error) from error

    def check(self, config: PreTrainedConfig) -> None:
        """Raise UserError where the folder's model has other sizes than the file's. More rows of tokens are padding."""
        for name, shape in shapes_of(config).items():
            if name not in self._places:
                raise UserError(f"{self._folder} is of another model: it has no {name}.", _NAME_ANOTHER)
            path, stored = self._places[name]
            with safe_open(path, framework="pt") as file:
                found = tuple(file.get_slice(stored).get_shape())
            padded = name in {EMBEDDING, OUTPUT} and len(found) == len(shape) and found[0] > shape[0]
            if found != shape and not (padded and found[1:] == shape[1:]):
                what = f"its {name} has the shape {found} instead of {shape}"
                raise UserError(f"{self._folder} is of another model: {what}.", _NAME_ANOTHER)
        self._rows = config.vocab_size

    def read(self, name: str) -> torch.Tensor:
        """Return transformers' tensor `name`; of the vocabulary's only the rows that have tokens."""
        path, stored = self._places[name]
        try:
            with safe_open(path, framework="pt") as file:
                tensor: torch.Tensor = file.get_tensor(stored)
        except (SafetensorError, OSError) as error:
            raise _unreadable(path, error) from error
        return (tensor[: self._rows] if name in {EMBEDDING, OUTPUT} else tensor).to(self._dtype)


_NAME_ANOTHER = "Name the folder of the very model that the target's file was made from."


def _unreadable(path: Path, error: Exception) -> UserError:
    return UserError(f"{path} cannot be read: {error}.", "Download the folder again.")
