"""Where files are: the person's own folders, and what ships with the program. Knows no file's content.

The functions only name folders; whoever writes calls make_folder() first. Each of the four folders can be moved by an
environment variable, which is also how tests keep away from the person's files.
"""

import itertools
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import platformdirs

from draftlight.errors import UserError

APP_NAME = "draftlight"
STARTER_TARGET = "SmolLM2-135M-Instruct.Q4_1.gguf"
STARTER_DRAFT = "starter-draft.gguf"


def data_dir() -> Path:
    """Folder of the chats and the downloaded models (DRAFTLIGHT_DATA_DIR)."""
    return _folder("DRAFTLIGHT_DATA_DIR", platformdirs.user_data_path(APP_NAME, appauthor=False))


def config_dir() -> Path:
    """Folder of settings.toml (DRAFTLIGHT_CONFIG_DIR)."""
    return _folder("DRAFTLIGHT_CONFIG_DIR", platformdirs.user_config_path(APP_NAME, appauthor=False))


def cache_dir() -> Path:
    """Folder of what can be made again: measurements of this machine, scanned headers (DRAFTLIGHT_CACHE_DIR)."""
    return _folder("DRAFTLIGHT_CACHE_DIR", platformdirs.user_cache_path(APP_NAME, appauthor=False))


def log_dir() -> Path:
    """Folder of logs and crash reports (DRAFTLIGHT_LOG_DIR)."""
    return _folder("DRAFTLIGHT_LOG_DIR", platformdirs.user_log_path(APP_NAME, appauthor=False))


def settings_file() -> Path:
    """The person's settings."""
    return config_dir() / "settings.toml"


def chats_file() -> Path:
    """The database of all chats."""
    return data_dir() / "chats.db"


def models_dirs() -> tuple[Path, ...]:
    """Our own model folders: the shipped one first, then the one in the person's data folder."""
    return bundled("models"), data_dir() / "models"


def starter_target() -> Path:
    """Where the starter target lies, or belongs while it is not there: in the person's data folder if installed."""
    present = [folder / STARTER_TARGET for folder in models_dirs() if (folder / STARTER_TARGET).is_file()]
    if present:
        return present[0]
    shipped, own = models_dirs()
    return (shipped if _checkout() else own) / STARTER_TARGET


def starter_draft() -> Path:
    """The starter target's own draft model; it ships with the program."""
    return bundled(f"models/{STARTER_DRAFT}")


def asset(name: str) -> Path:
    """A file or folder below assets/, for example "icons/stop.svg"."""
    return bundled(f"assets/{name}")


def bench_suite() -> Path:
    """The benchmark's own prompts, one JSON object a line in MT-bench's form."""
    return asset("bench/suite.jsonl")


def bundled(name: str) -> Path:
    """A file or folder below models/ or assets/ as shipped: in a checkout, in an installed wheel, in a frozen build.

    The path may not exist; the caller who opens it says so.
    """
    frozen = getattr(sys, "_MEIPASS", None)
    if frozen is not None:
        return Path(frozen) / APP_NAME / "data" / name
    return (_checkout() or Path(__file__).resolve().parent / "data") / name


def project_file() -> Path:
    """The checkout's pyproject.toml; only there where the program runs from one."""
    return Path(__file__).resolve().parents[2] / "pyproject.toml"


def make_folder(folder: Path) -> Path:
    """Make `folder` with its parents if need be, and return it. Raises UserError where that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(
            f"The folder {folder} cannot be made: {reason}.", "Make it yourself, or choose one you may write to."
        ) from error
    return folder


def move_aside(file: Path, *companions: Path) -> Path:
    """Rename a damaged file so that a fresh one can take its place; return its new path. Raises UserError.

    `companions` are files that belong to it, named like it with something appended; missing ones are skipped.
    """
    stamp = datetime.now(tz=UTC).strftime("%Y%m%d-%H%M%S")
    names = (f"{file.name}.corrupt-{stamp}{'' if n == 1 else f'-{n}'}" for n in itertools.count(1))
    moved = next(path for path in map(file.with_name, names) if not path.exists())
    try:
        file.rename(moved)
        for companion in companions:
            if companion.exists():
                companion.rename(moved.with_name(moved.name + companion.name.removeprefix(file.name)))
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(
            f"{file} is damaged and cannot be moved aside: {reason}.", "Move it away yourself and start again."
        ) from error
    return moved


def _checkout() -> Path | None:
    """The repository's root when the program runs from a clone, None when it is installed."""
    root = Path(__file__).resolve().parents[2]
    return root if (root / "pyproject.toml").is_file() and (root / "app" / APP_NAME).is_dir() else None


def _folder(variable: str, usual: Path) -> Path:
    """The folder named by an environment variable, else the platform's usual one."""
    chosen = os.environ.get(variable, "")
    return Path(chosen).expanduser().absolute() if chosen else usual
