"""Draft models tuned on the person's own chats: where they lie, what each was made from, how to be rid of them."""

import glob
import hashlib
import itertools
from dataclasses import replace
from pathlib import Path

from draftlight import paths
from draftlight.errors import UserError
from draftlight.forge.lock import RunAtWork, only_run
from draftlight.forge.request import FACTS_PREFIX, ForgeRequest, request_for
from draftlight.forge.run_folder import RunFolder
from draftlight.library.gguf import read_header
from draftlight.library.header_file import BadModelFile
from draftlight.settings import PairSettings, load_settings, save_settings

TUNING_MINUTES = 30.0
TUNED_FROM = "tuned_from"  # the entry with the path of the untuned draft model
TUNED_FOR = "target"  # the entry with the name of the target whose answers it has learned from
_ENTRY, _TARGET_ENTRY = FACTS_PREFIX + TUNED_FROM, FACTS_PREFIX + TUNED_FOR


def tuning_request(target: Path, draft: Path, *, minutes: float = TUNING_MINUTES) -> ForgeRequest:
    """Return the request that tunes a draft model for a target; a tuned one is tuned anew, from its beginning.

    So what it learned from chats that were deleted since is forgotten. Raises UserError where a file is missing.
    """
    draft = untuned(draft.absolute())
    plain = request_for(target, minutes=minutes)
    if not draft.is_file():
        raise UserError(f"{draft} cannot be read.", "Choose another draft model.")
    name = hashlib.sha256(f"{plain.folder.name} {draft}".encode("utf-8", "surrogateescape")).hexdigest()[:12]
    return replace(
        plain,
        folder=plain.folder.with_name(f"tune-{name}"),
        out=tuned(draft, target) or _free(draft),
        tune=draft,
    )


def untuned(draft: Path) -> Path:
    """Return what a draft model was tuned from: itself where it was not tuned, or cannot be read."""
    try:
        origin = read_header(draft).get_str(_ENTRY)
    except BadModelFile:
        return draft
    return draft if origin is None else Path(origin)


def tuned(draft: Path, target: Path) -> Path | None:
    """Return the file that was tuned from this draft model on the answers of this target; None where there is none.

    Targets are known by their names, as in the chats: what one file of that name has answered is learned for all.
    """
    names = sorted(_models().glob(f"{glob.escape(draft.stem)}-tuned*.gguf"))
    return next((path for path in names if path.is_file() and _is_of(path, draft, target)), None)


def _is_of(path: Path, draft: Path, target: Path) -> bool:
    try:
        header = read_header(path)
    except BadModelFile:
        return False
    return (header.get_str(_ENTRY), header.get_str(_TARGET_ENTRY)) == (str(draft), target.name)


def reset(draft: Path, target: Path) -> Path | None:
    """Delete what was tuned from this draft model for the target, or this tuned one itself; return it, or None.

    What tunings that were killed have left goes as well. Settings whose pair names it name the untuned draft model
    afterwards. Raises UserError.
    """
    forget_remains()
    draft = draft.absolute()
    found = tuned(draft, target) if untuned(draft) == draft else draft
    if found is None:
        return None
    file = paths.settings_file()
    settings = load_settings(file).settings
    if settings.pair is not None and settings.pair != (pair := without(found, settings.pair)):
        save_settings(settings.changed(pair=pair), file, since=settings)
    _delete(found)
    return found


def forget_remains() -> None:
    """Delete what tunings have left that were killed: weights that learned from chats. Raises UserError."""
    busy = False
    for lock in (paths.data_dir() / "forge").glob("tune-*.lock"):
        folder = lock.with_suffix("")
        try:
            with only_run(folder):
                RunFolder(folder).delete()
        except RunAtWork:
            busy = True
    for part in () if busy else _models().glob("*-tuned*.gguf.part"):  # a busy one may be writing it
        _delete(part)


def _delete(file: Path) -> None:
    try:
        file.unlink()
    except OSError as error:
        raise UserError(
            f"{file} cannot be deleted: {error.strerror}.", "Choose another draft model, so that it is not in use."
        ) from error


def without(tuned_file: Path, pair: PairSettings) -> PairSettings:
    """Return the pair with the untuned draft model where it has the tuned one."""
    return replace(pair, draft=untuned(tuned_file)) if pair.draft == tuned_file else pair


def _free(draft: Path) -> Path:
    """Return the first name that no file has."""
    return next(path for path in (_name(draft, n) for n in itertools.count(1)) if not path.exists())


def _name(draft: Path, n: int) -> Path:
    ending = "" if n == 1 else f"-{n}"
    return _models() / f"{draft.stem}-tuned{ending}.gguf"


def _models() -> Path:
    return paths.data_dir() / "models"
