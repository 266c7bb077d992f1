"""Which model files lie in these folders. Reads headers, never writes, never follows a link twice.

A file that is no usable model is listed too, with the reason: a model that just does not appear helps nobody.
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from draftlight.library.gguf import BadModelFile, GgufHeader, read_header
from draftlight.library.header_file import is_unfinished, shown_name
from draftlight.library.kinds import ModelKind

SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)
CACHED_HEADERS = 4_096


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model found on disk. `problem` says why it cannot be used at all; it is empty for a sound file of any kind.

    `path` is the file to load: the first shard of a split model, whose `size` (bytes) is that of all `shards`.
    """

    path: Path
    header: GgufHeader | None
    problem: str
    kind: ModelKind
    size: int
    shards: tuple[Path, ...] = ()

    @property
    def why_not_chat(self) -> str:
        """Return a sentence saying why it is not a chat model; empty for one that is."""
        if self.problem or self.kind is ModelKind.CHAT:
            return self.problem
        return f"{shown_name(self.path)} is {self.kind.description}, not a chat model."


def list_models(folders: Sequence[Path]) -> tuple[ModelFile, ...]:
    """List the models in these folders, at any depth, by name. A folder that does not exist holds none.

    The same file under two names is listed once. Headers are remembered by path, size and times of change.
    """
    found: list[ModelFile] = []
    shards: dict[tuple[Path, str, int], dict[int, Path]] = {}
    for path, fault in _walk(folders):
        shard = SHARD.fullmatch(path.name)
        if fault:
            found.append(ModelFile(path, None, fault, ModelKind.UNREADABLE, 0))
        elif shard:
            split = (path.parent, shard["stem"], int(shard["count"]))
            shards.setdefault(split, {})[int(shard["number"])] = path
        else:
            found.extend(_look_at(path))
    found.extend(_join(count, parts) for (_, _, count), parts in shards.items())
    return tuple(sorted(found, key=lambda model: (model.path.name.lower(), model.path)))


def _walk(folders: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """Yield each model file once; with a sentence in place of a folder that cannot be read."""
    visited: set[tuple[int, int]] = set()
    waiting = list(reversed(folders))
    while waiting:
        folder = waiting.pop()
        try:
            if _seen(folder.stat(), visited):
                continue
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda entry: (entry.is_symlink(), entry.name))
        except (FileNotFoundError, NotADirectoryError):  # it vanished, or was never made
            continue
        except OSError as error:
            yield folder, f"The folder {shown_name(folder)} cannot be read: {error.strerror}."
            continue
        below = []
        for entry in entries:
            path = folder / entry.name
            try:
                if entry.is_dir():
                    below.append(path)
                elif _is_model_name(path) and not _seen(entry.stat(), visited):
                    yield path, ""
            except OSError:  # a broken link, or no permission to follow it: reading it will say which
                if _is_model_name(path):
                    yield path, ""
        waiting.extend(reversed(below))


def _seen(facts: os.stat_result, visited: set[tuple[int, int]]) -> bool:
    identity = (facts.st_dev, facts.st_ino)
    if identity in visited:
        return True
    visited.add(identity)
    return False


def _is_model_name(path: Path) -> bool:
    return path.suffix.lower() in {".gguf", ".part"} or (is_unfinished(path) and ".gguf" in path.name.lower())


def _look_at(path: Path) -> Iterator[ModelFile]:
    """Yield what the file is; nothing where it has vanished."""
    try:
        facts = path.stat()
    except OSError:
        outcome, size = _read(path), 0
        if not path.is_symlink() and not path.exists():
            return
    else:
        outcome, size = _remembered(path, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns), facts.st_size
    if isinstance(outcome, BadModelFile):
        yield ModelFile(path, None, str(outcome), ModelKind.UNREADABLE, size)
    else:
        yield ModelFile(path, outcome, "", outcome.kind, size)


def _read(path: Path) -> GgufHeader | BadModelFile:
    try:
        return read_header(path)
    except BadModelFile as problem:
        return problem


@lru_cache(maxsize=CACHED_HEADERS)
def _remembered(path: Path, size: int, modified_ns: int, changed_ns: int) -> GgufHeader | BadModelFile:  # noqa: ARG001 - the rest of the key
    return _read(path)


def _join(count: int, parts: dict[int, Path]) -> ModelFile:
    """Make one model of the shards that were found."""
    paths = tuple(path for _, path in sorted(parts.items()))
    models = [model for path in paths for model in _look_at(path)]
    first = paths[0]
    header = next((model.header for model in models if model.path == parts.get(1)), None)
    size = sum(model.size for model in models)
    missing = [number for number in range(1, count + 1) if number not in parts]
    problem = next((model.problem for model in models if model.problem), "")
    if missing:
        listed = ", ".join(str(number) for number in missing[:5]) + (", ..." if len(missing) > 5 else "")  # noqa: PLR2004 - enough to see
        problem = f"{shown_name(first)} is incomplete: of its {count:,} parts, these are missing: {listed}."
    elif not problem and len(models) < count:
        problem = f"{shown_name(first)} is incomplete: a part vanished while it was being read."
    kind = header.kind if header and not problem else ModelKind.UNREADABLE
    return ModelFile(first, header, problem, kind, size, paths)
