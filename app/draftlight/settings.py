"""The person's choices as values, and their TOML file. Knows no widget and no loaded model."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_serializer, field_validator

from draftlight.engine.decoding import Mode
from draftlight.engine.sampling import SamplingParams
from draftlight.errors import UserError
from draftlight.paths import make_folder, move_aside

NGRAM = "ngram"
NO_DRAFT = "none"
MAX_DRAFT_LENGTH = 16
SHOWN_LENGTH = 3  # what the starter pair opens with: AUTO would draft nothing for a target that small


class KvType(StrEnum):
    """How the cache of keys and values is stored: AUTO is whichever measures best."""

    AUTO = "auto"
    Q8_0 = "q8_0"
    F16 = "f16"
    F32 = "f32"


@dataclass(frozen=True, slots=True)
class PairSettings:
    """Which models to load, and how. Changing any of it means loading again.

    `draft` is a GGUF file or None, `ngram` whether the chat's own text is drafted from; AUTO mixes both.
    `n_gpu_layers` and `draft_n_gpu_layers` count from the model's end; `device` and `draft_device` name where they
    go, as ggml does ("CUDA0", "CPU"), and leave the choice to llama.cpp when empty.
    `n_ctx` 0 takes the model's training context, at most 8,192 tokens. `n_threads` 0 and the caches' AUTO are what
    measures best, each model's cache for itself; `exact` says that the target's must be exact at any price.
    """

    target: Path
    draft: Path | None = None
    ngram: bool = False
    n_ctx: int = 0
    n_threads: int = 0
    n_gpu_layers: int = 0
    draft_n_gpu_layers: int = 0
    device: str = ""
    draft_device: str = ""
    kv_type: KvType = KvType.AUTO
    draft_kv_type: KvType = KvType.AUTO
    exact: bool = False
    use_extra_buffers: bool = True


class Highlight(StrEnum):
    """Which drafted tokens the transcript marks."""

    ALL = "all"
    ACCEPTED = "accepted"
    OFF = "off"


class Palette(StrEnum):
    """The colours of the token fates; the shapes are the same in each."""

    TEXTBOOK = "textbook"
    SAFE = "safe"
    SHAPES = "shapes"


class ColorScheme(StrEnum):
    """Light or dark, or whatever the desktop says."""

    SYSTEM = "system"
    LIGHT = "light"
    DARK = "dark"


Probability: TypeAlias = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
Penalty: TypeAlias = Annotated[float, Field(ge=-2.0, le=2.0, allow_inf_nan=False)]
DraftLength: TypeAlias = Annotated[int, Field(ge=0, le=MAX_DRAFT_LENGTH)] | Literal["auto"]
AskedMode: TypeAlias = Mode | Literal["auto"]


class SamplingSettings(BaseModel):
    """The sampling a new answer starts with. Meanings: engine.sampling.SamplingParams."""

    model_config = ConfigDict(frozen=True)

    temperature: Annotated[float, Field(ge=0.0, le=5.0, allow_inf_nan=False)] = 0.8
    top_k: Annotated[int, Field(ge=0, le=1_000_000)] = 40
    top_p: Probability = 0.95
    min_p: Probability = 0.05
    repeat_penalty: Annotated[float, Field(ge=0.1, le=5.0, allow_inf_nan=False)] = 1.0
    frequency_penalty: Penalty = 0.0
    presence_penalty: Penalty = 0.0
    penalty_last_n: Annotated[int, Field(ge=0, le=1_000_000)] = 64

    def params(self) -> SamplingParams:
        """Return the same figures as the engine takes them."""
        return SamplingParams(**dict(self))


class Settings(BaseModel):
    """Everything the program remembers of the person's choices; a missing value is its default.

    `pair` is the last pair that was loaded, None for the starter pair. `draft_length` is K or "auto"; None, never
    chosen, means "auto" too, save for the starter pair, which shows drafts to look at. `mode` "auto" is what the pair
    does best. `learn_from_chats`: draft models may be tuned on the chats on this disk.
    """

    model_config = ConfigDict(frozen=True)

    sampling: SamplingSettings = SamplingSettings()
    draft_length: DraftLength | None = None
    mode: AskedMode = "auto"
    max_new_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = 1024
    system_prompt: str = ""
    highlight: Highlight = Highlight.ALL
    palette: Palette = Palette.TEXTBOOK
    color_scheme: ColorScheme = ColorScheme.SYSTEM
    pair: PairSettings | None = None
    last_conversation: int | None = None
    learn_from_chats: bool = False

    def changed(self, **changes: object) -> Self:
        """Return a copy with some values replaced, checked like the file's. Raises pydantic.ValidationError."""
        return type(self).model_validate({**dict(self), **changes})

    @property
    def asked_mode(self) -> Mode | None:
        """The mode as the engine takes it: None for the pair's own best."""
        return None if self.mode == "auto" else self.mode

    @field_validator("pair")
    @classmethod
    def _pair_counts(cls, pair: PairSettings | None) -> PairSettings | None:
        if pair is not None and min(pair.n_ctx, pair.n_threads, pair.n_gpu_layers, pair.draft_n_gpu_layers) < 0:
            raise ValueError("contexts, threads and layers count from 0")
        return pair

    @field_serializer("pair")
    def _pair_as_table(self, pair: PairSettings | None) -> dict[str, object] | None:
        if pair is None:
            return None
        return {
            "target": str(pair.target),
            "draft": None if pair.draft is None else str(pair.draft),
            "ngram": pair.ngram,
            "n_ctx": pair.n_ctx,
            "n_threads": pair.n_threads,
            "n_gpu_layers": pair.n_gpu_layers,
            "draft_n_gpu_layers": pair.draft_n_gpu_layers,
            "device": pair.device,
            "draft_device": pair.draft_device,
            "kv_type": pair.kv_type,
            "draft_kv_type": pair.draft_kv_type,
            "exact": pair.exact,
            "use_extra_buffers": pair.use_extra_buffers,
        }


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """The settings, and sentences about what could not be taken from the file."""

    settings: Settings
    notices: tuple[str, ...] = ()


def load_settings(file: Path) -> LoadedSettings:
    """Read the settings. Never fails: what is missing or unusable is replaced by its default, with a notice.

    A file that is not TOML is moved aside, so that the next save does not overwrite it.
    """
    try:
        return _checked(_read(file), file)
    except OSError as error:
        reason = error.strerror or str(error)
        return LoadedSettings(Settings(), (f"The settings in {file} cannot be read: {reason}. The defaults are used.",))
    except _NotToml:
        return LoadedSettings(Settings(), (_moved_notice(file),))


def save_settings(settings: Settings, file: Path, since: Settings | None = None) -> None:
    """Write the settings; keys of the file that this version does not know stay. Raises UserError.

    With `since` only what differs from that is written: the rest may have been changed by another process meanwhile.
    The new file replaces the old one in one step, so that a crash leaves one of the two, whole.
    """
    before = {} if since is None else since.model_dump()
    changed = {key: value for key, value in settings.model_dump().items() if key not in before or value != before[key]}
    if not changed:
        return
    file = file.resolve()  # a link to a file kept elsewhere stays a link
    make_folder(file.parent)
    try:
        _replace(file, tomli_w.dumps(_merged(_known(file), changed)).encode())
    except UnicodeEncodeError as error:
        raise UserError(
            f"The settings cannot be saved: {error.object[:80]!r} is not proper text.", "Rename that file or folder."
        ) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(
            f"The settings cannot be saved in {file}: {reason}.", "Free some space, or allow writing there."
        ) from error


class SettingsWriter:
    """Saves one window's settings, of them only what it has changed: other processes write the file, too."""

    def __init__(self, file: Path, saved: Settings) -> None:
        """Start from what was read from the file."""
        self._file = file
        self._saved = saved

    def save(self, settings: Settings) -> None:
        """Raises UserError."""
        save_settings(settings, self._file, since=self._saved)
        self._saved = settings


class _NotToml(Exception):
    """The file's content is not TOML."""


def _read(file: Path) -> dict[str, Any]:
    """The file's table; empty where there is no file. Raises OSError and _NotToml."""
    try:
        with file.open("rb") as stream:
            return tomllib.load(stream)
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:  # not UTF-8, not TOML, or nested without end
        raise _NotToml from error


def _moved_notice(file: Path) -> str:
    """Move a file that is not TOML aside; say so, or why that did not work."""
    try:
        moved = move_aside(file)
    except UserError as error:
        return str(error)
    return f"The settings in {file} are damaged: the defaults are used, the old file is kept as {moved.name}."


def _known(file: Path) -> dict[str, Any]:
    """What the file holds before it is written anew; a damaged one is moved aside first."""
    try:
        return _read(file)
    except _NotToml:
        move_aside(file)
        return {}


def _checked(table: dict[str, Any], file: Path) -> LoadedSettings:
    """Validate the table; drop each value that is not usable, with a notice, until the rest is."""
    notices: list[str] = []
    while True:
        try:
            return LoadedSettings(Settings.model_validate(table), tuple(notices))
        except ValidationError as error:
            for problem in error.errors():
                dropped = _drop(table, problem["loc"])
                if dropped is not None:
                    notices.append(f"{dropped} in {file} is not usable ({problem['msg']}): the default is used.")


def _drop(table: dict[str, Any], location: tuple[int | str, ...]) -> str | None:
    """Remove the deepest value on the way to `location`; return "key = value", or None where nothing is left there."""
    key = str(location[0])
    if key not in table:
        return None
    value = table[key]
    if isinstance(value, dict) and len(location) > 1:
        inner = _drop(value, location[1:])
        if inner is not None:
            return f"{key}.{inner}"
    del table[key]
    return f"{key} = {value!r}"


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """`old` with the values of `new` put in, tables merged key by key; None removes a key."""
    table = dict(old)
    for key, value in new.items():
        if value is None:
            table.pop(key, None)
        elif isinstance(value, dict):
            before = table.get(key)
            table[key] = _merged(before if isinstance(before, dict) else {}, value)
        else:
            table[key] = value
    return table


def _replace(file: Path, content: bytes) -> None:
    """Put `content` in the place of `file`, in one step. Raises OSError and leaves nothing behind."""
    fresh = file.with_name(f"{file.name}.{os.getpid()}.new")
    try:
        with fresh.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        fresh.replace(file)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
