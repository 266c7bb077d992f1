"""What a run needs before it begins: a target it can learn from, packages, power, room on the disks. Knows no torch."""

import importlib.util
import re
import shutil
import sys
import tomllib
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Protocol

import psutil

from draftlight import paths
from draftlight.errors import UserError
from draftlight.forge.recipe import Recipe
from draftlight.library.gguf import GgufHeader
from draftlight.library.header_file import shown_name
from draftlight.library.pairing import check_pair

FAMILIES = ("llama", "qwen2", "qwen3", "gemma3")  # general.architecture of the targets that can be learned from
_FORGE_EXTRA = re.compile(r"""extra\s*==\s*["']forge["']""")
_PACKAGE_NAME = re.compile(r"[\w.-]+")

_LOWEST_BATTERY = 20.0  # per cent

_BYTES_PER_LABEL = 6  # a token's number and its log-probability in half precision
_BYTES_PER_TOKEN = 14  # the token itself, its log-probability, and its share of what is noted of each chat
_BYTES_PER_KEPT = 4  # a parameter of the best draft model so far, in single precision
_BYTES_PER_TRAINED = 12  # the same and AdamW's two averages
_BYTES_IN_TRAINING = 20  # the same, a gradient, and the weights as they are rounded towards the end
_BYTES_PER_WRITTEN = 2  # a parameter at Q8_0 and at Q4_0, one beside the other until the faster is known
_TOKENS_PER_SECOND = 1500  # more than a small target writes on a processor, chats in batches
_WRITING_SHARE = 0.5  # of the time, the rest is training
_USUAL_LABELS = 16
_KEPT_LAYERS = 8  # a pruned draft model keeps one layer of so many
_UNTIED = 2e9  # parameters from which a target usually has an output layer apart from its embedding


class _Battery(Protocol):
    """What psutil tells of a battery."""

    @property
    def percent(self) -> float: ...
    @property
    def power_plugged(self) -> bool | None: ...


def require_family(header: GgufHeader) -> None:
    """Raise UserError for a target that nothing can be learned from."""
    name = shown_name(header.path)
    if not header.kind.writes_text:
        raise UserError(f"{name} is {header.kind.description}.", "Choose a model that writes text.")
    if header.architecture not in FAMILIES:
        raise UserError(
            f"{name} is of the {header.architecture or 'nameless'} family, for which no draft model can be made.",
            f"Choose a model of one of these families: {', '.join(FAMILIES)}.",
        )


def require_tunable(target: GgufHeader, draft: GgufHeader) -> None:
    """Raise UserError for a draft model that cannot be tuned for this target."""
    require_family(draft)
    verdict = check_pair(target, draft)
    if not verdict.ok:
        raise UserError(
            f"{shown_name(draft.path)} cannot draft for {shown_name(target.path)}: {verdict.reasons[0]}",
            "Choose a draft model that fits.",
        )


def require_packages() -> None:
    """Raise UserError, whose remedy is the command that installs them, where packages of the extra are missing.

    Nothing is imported: that would bring torch into this process.
    """
    requirements = _requirements()
    names = [found[0] for each in requirements if (found := _PACKAGE_NAME.match(each))]
    missing = [name for name in names if importlib.util.find_spec(name.replace("-", "_")) is None]
    if missing:
        listed = " ".join(f'"{each}"' for each in requirements)
        raise UserError(
            f"Making a draft model needs packages that are not installed: {', '.join(missing)}.",
            f'Install them, a download of up to 3 GB, with: "{sys.executable}" -m pip install {listed}',
        )


def _requirements() -> list[str]:
    """Return what the extra asks for: by the installed package, else, run from a checkout as it is, by its project."""
    try:
        named = metadata.requires("draftlight") or ()
    except metadata.PackageNotFoundError:
        project = tomllib.loads(paths.project_file().read_text("utf-8"))["project"]
        return list(project["optional-dependencies"]["forge"])
    return [each.partition(";")[0].strip() for each in named if _FORGE_EXTRA.search(each)]


def battery_low() -> bool:
    """Whether the machine runs on its battery, and that is nearly empty."""
    return is_low(psutil.sensors_battery())


def is_low(battery: _Battery | None) -> bool:
    """Whether this battery is in use and nearly empty; None is a machine without one."""
    return battery is not None and battery.power_plugged is False and battery.percent < _LOWEST_BATTERY


def folder_bytes(header: GgufHeader, minutes: float, recipe: Recipe | None) -> int:
    """Return about how many bytes the folder of a run takes: chats, a checkpoint beside the next one, the best model.

    Without a recipe the chats are what can be written in half the time.
    """
    n_labels = _USUAL_LABELS if recipe is None else recipe.chats.n_labels
    n_tokens = 60 * minutes * _WRITING_SHARE * _TOKENS_PER_SECOND if recipe is None else recipe.chats.n_tokens
    chats = n_tokens * (_BYTES_PER_TOKEN + n_labels * _BYTES_PER_LABEL)
    return round(chats) + (2 * _BYTES_PER_TRAINED + _BYTES_PER_KEPT) * _draft_parameters(header)


def out_bytes(header: GgufHeader) -> int:
    """Return about how many bytes are written where the draft model is to lie."""
    return _BYTES_PER_WRITTEN * _draft_parameters(header)


def training_bytes(header: GgufHeader) -> int:
    """Return about how much memory the training of a draft model takes, for a target that none was made for yet."""
    return _BYTES_IN_TRAINING * _draft_parameters(header)


def tuning_bytes(draft: GgufHeader) -> int:
    """Return about how much memory it takes to train a draft model on."""
    return _BYTES_IN_TRAINING * draft.n_parameters


def tuned_bytes(draft: GgufHeader) -> int:
    """Return about how many bytes a tuned draft model takes, where it is tried out and where it is to lie."""
    return max(draft.size, _BYTES_PER_WRITTEN * draft.n_parameters)


def require_room(needs: Mapping[Path, int]) -> None:
    """Raise UserError where a folder's disk has less room than this; folders on one disk share it."""
    on_disk: dict[int, tuple[Path, int]] = {}
    for folder, n_bytes in needs.items():
        present = next(each for each in (folder, *folder.absolute().parents) if each.is_dir())
        disk = present.stat().st_dev
        first, total = on_disk.get(disk, (present, 0))
        on_disk[disk] = (first, total + n_bytes)
    for present, n_bytes in on_disk.values():
        free = shutil.disk_usage(present).free
        if free < n_bytes:
            raise UserError(
                f"Making this draft model takes about {n_bytes / 1e9:,.1f} GB on the disk of {present}, "
                f"and {free / 1e9:,.1f} GB are free there.",
                "Free some space, or give it less time: then there are fewer chats to keep.",
            )


def _draft_parameters(header: GgufHeader) -> int:
    """Return about how many parameters the largest draft model has that is made for a target.

    That is a pruned one: the embedding and some of the layers. A narrow one has a third of it.
    """
    embedding = header.n_vocab * (header.get_int(f"{header.architecture}.embedding_length") or 0)
    n_layers = header.get_int(f"{header.architecture}.block_count") or 1
    kept = min(n_layers, max(4, n_layers // _KEPT_LAYERS))
    embedding *= 2 if header.n_parameters > _UNTIED else 1
    return embedding + max(0, header.n_parameters - embedding) * kept // n_layers
