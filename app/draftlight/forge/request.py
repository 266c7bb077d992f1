"""What a run is asked for, and where it lies. A run that was begun remembers what it was asked for. Knows no torch."""

import hashlib
import itertools
import json
import stat
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from draftlight import paths
from draftlight.errors import UserError
from draftlight.forge.run_folder import RunFolder
from draftlight.library.gguf import read_header
from draftlight.library.header_file import BadModelFile, shown_name

FACTS_PREFIX = "draftlight.forge."  # of the entries that tell how a draft model was made
RUN = "run"  # the entry with the name of the run's folder
_ASKED = "request.json"


@dataclass(frozen=True, slots=True)
class ForgeRequest:
    """What to make, and how. `folder` is the run's own: what a resumed run goes on from.

    `recipe` is a configuration that decides instead of `minutes` and `size` ("auto", "narrow", "pruned"). `weights` is
    a folder of safetensors with the same model, read instead of the GGUF file's weights. With `only_outlook` the run
    ends once it is known what is possible. With `tune`, a draft model, that one is tuned on
    the person's own chats and written to `out`.
    """

    target: Path
    folder: Path
    out: Path
    minutes: float = 60.0
    size: str = "auto"
    recipe: Path | None = None
    weights: Path | None = None
    only_outlook: bool = False
    tune: Path | None = None


_REQUEST = TypeAdapter(ForgeRequest)


def as_argument(request: ForgeRequest) -> str:
    """Return the request as the child's argument."""
    return _REQUEST.dump_json(request).decode()


def from_argument(text: str) -> ForgeRequest:
    """Return the request that as_argument() wrote. Raises pydantic.ValidationError for anything else."""
    return _REQUEST.validate_json(text)


def request_for(
    target: Path,
    *,
    minutes: float = 60.0,
    size: str = "auto",
    out: Path | None = None,
    recipe: Path | None = None,
    weights: Path | None = None,
) -> ForgeRequest:
    """Return the request with the usual places: a run's folder for each state of the target, a file that is free.

    Raises UserError where there is no such target, or where `out` cannot be the draft model's file.
    """
    target = target.absolute()
    try:
        str(target).encode()
        facts = target.stat()
    except UnicodeEncodeError as error:
        raise UserError(
            f"The path of {shown_name(target)} is not proper text.", "Rename that file or folder."
        ) from error
    except OSError as error:
        raise UserError(f"{target} cannot be read: {error.strerror}.", "Choose another model file.") from error
    if stat.S_ISDIR(facts.st_mode):
        raise UserError(
            f"{shown_name(target)} is a folder; a draft model is made for a GGUF file.",
            "Name the file that you chat with. A folder with the same model's safetensors goes with it as --weights.",
        )
    if out is None:
        out = free_name(paths.data_dir() / "models", f"{target.stem}-draft")
    elif out.suffix.lower() != ".gguf":
        raise UserError(f"{out} is no name for a model file.", "Choose a name that ends in .gguf.")
    state = json.dumps([str(target), facts.st_size, facts.st_mtime_ns])
    name = f"{target.stem}-{hashlib.sha256(state.encode()).hexdigest()[:12]}"
    folder = paths.data_dir() / "forge" / name
    if out.exists() and (RunFolder(folder).done.exists() or not is_of_run(out, folder)):
        raise UserError(f"{out} exists.", "Choose another name for the draft model, or move that file away first.")
    return ForgeRequest(
        target=target,
        folder=folder,
        out=out.absolute(),
        minutes=minutes,
        size=size,
        recipe=None if recipe is None else recipe.absolute(),
        weights=None if weights is None else weights.absolute(),
    )


def is_of_run(draft: Path, folder: Path) -> bool:
    """Whether this file is what the run of that folder has made."""
    try:
        return read_header(draft).get_str(FACTS_PREFIX + RUN) == folder.name
    except BadModelFile:
        return False


def note(request: ForgeRequest) -> None:
    """Note in the run's folder what it was asked for: gone on with, it keeps to that."""
    (request.folder / _ASKED).write_text(as_argument(request), encoding="utf-8")


def unfinished(request: ForgeRequest) -> ForgeRequest | None:
    """Return what an earlier run for this target was asked for, where there is something of it to go on from."""
    folder = request.folder
    if RunFolder(folder).done.exists() or not any((folder / name).is_file() for name in ("held-out.json", "plan.json")):
        return None
    try:
        return from_argument((folder / _ASKED).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError):  # another version's, or damaged
        return request


def free_name(folder: Path, stem: str) -> Path:
    """Return the first name in the folder that no file has: STEM.gguf, STEM-2.gguf and so on."""
    names = (f"{stem}.gguf" if n == 1 else f"{stem}-{n}.gguf" for n in itertools.count(1))
    return next(path for path in map(folder.joinpath, names) if not path.exists())
