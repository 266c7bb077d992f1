"""A target as a torch model, from its GGUF file or from a folder of safetensors; and whether it computes the same.

Weights and description are read here, not by transformers: its own GGUF reader leaves out biases, head sizes, which
layers slide and how positions are stretched, and shows progress bars.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import torch
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

from draftlight.errors import UserError
from draftlight.forge.families import config_of, family_of, family_of_file
from draftlight.forge.weights import EMBEDDING, OUTPUT, FileWeights, FolderWeights, Weights, shapes_of
from draftlight.library.gguf import GgufHeader, read_header
from draftlight.library.header_file import shown_name
from draftlight.llama.backend import MAX_ROWS, LlamaModel

_SAMPLE_ROWS = 1024  # of a tensor, to see whether two models are the same
_LEAST_SIMILARITY = 0.5  # cosine; another model of the same shape is at 0, the coarsest quantisation above 0.8
_SPARE_BYTES = 1 << 28  # for all that is not weights


@dataclass(frozen=True, slots=True)
class Parity:
    """How far two models' logits are apart over `n_places` of a text.

    `largest` and `mean` are absolute differences; `same_choice` is the share of places with the same largest logit.
    """

    largest: float
    mean: float
    same_choice: float
    n_places: int


def load_target(path: Path, dtype: torch.dtype, weights: Path | None = None, beside: int = 0) -> PreTrainedModel:
    """Return the file's model with weights of `dtype`, in evaluation mode, on the processor.

    With `weights`, a folder of safetensors of the same model, these are taken instead of the file's quantised ones;
    what the model is like, its vocabulary above all, is the file's in any case. `beside` bytes of memory are to be
    left for what is made from it.

    Raises UserError (BadModelFile for a damaged file): not a model that drafts can be made for, too little memory, a
    folder that cannot be read or is another model's.
    """
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # only parts of transformers are typed
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    header = read_header(path)
    family_of_file(header)
    if header.unknown_tensor_types:
        raise UserError(f"{shown_name(path)} holds weights of an unknown type.", "Choose another file of the model.")
    with FileWeights(header, dtype) as of_file:
        config = config_of(header, of_file.names, of_file.rope_factors())
        of_file.check(config)
        _check_memory(header, dtype, beside)
        source: Weights = of_file
        if weights is not None:
            source = _checked_folder(weights, config, of_file, dtype)
        state = {name: source.read(name) for name in shapes_of(config)}
    model_class = family_of(config).model_class
    return model_class.from_pretrained(None, config=config, state_dict=state, dtype=dtype)


def _check_memory(header: GgufHeader, dtype: torch.dtype, beside: int) -> None:
    needed = header.n_parameters * dtype.itemsize + beside + _SPARE_BYTES
    free = psutil.virtual_memory().available
    if needed > free:
        what = "unpacked, with what is made from it" if beside else "unpacked"
        raise UserError(
            f"{shown_name(header.path)} needs {needed / 1e9:.1f} GB of memory {what}; {free / 1e9:.1f} GB are free.",
            "End other programs, or choose a smaller target.",
        )


def _checked_folder(folder: Path, config: PreTrainedConfig, of_file: FileWeights, dtype: torch.dtype) -> FolderWeights:
    """Return the folder's weights once they are seen to be the same model's. Shares the output layer as they do."""
    of_folder = FolderWeights(folder, dtype)
    if OUTPUT not in of_folder:
        config.tie_word_embeddings = True
    of_folder.check(config)
    for name in (EMBEDDING, "model.layers.0.mlp.gate_proj.weight"):
        ours = of_file.read_rows(name, _SAMPLE_ROWS).float().flatten()
        theirs = of_folder.read(name)[:_SAMPLE_ROWS].float().flatten()
        if torch.cosine_similarity(ours, theirs, dim=0) < _LEAST_SIMILARITY:
            raise UserError(
                f"{folder} is of another model: its {name} is unlike the target file's.",
                "Name the folder of the very model that the target's file was made from.",
            )
    return of_folder


def parity(model: PreTrainedModel, target: LlamaModel, tokens: Sequence[int]) -> Parity:
    """Compare the logits of both at every place of `tokens`, which must fit into the target's context.

    The target's cache is empty afterwards.
    """
    largest, total, same = 0.0, 0.0, 0
    with torch.inference_mode():
        ours = model(torch.tensor([tokens], device=model.device), use_cache=False).logits[0].float().cpu().numpy()
    target.rollback(0)
    for first in range(0, len(tokens), MAX_ROWS):
        part = tokens[first : first + MAX_ROWS]
        theirs = target.forward(part, len(part))
        mine = ours[first : first + len(part)]
        difference = np.abs(mine - theirs)
        largest = max(largest, float(difference.max()))
        total += float(difference.sum(dtype=np.float64))
        same += int((mine.argmax(1) == theirs.argmax(1)).sum())
    target.rollback(0)
    return Parity(largest, total / ours.size, same / len(tokens), len(tokens))
