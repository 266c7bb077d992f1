"""A run's own folder: what was decided and how far it is, each file whole or not there. Knows no torch."""

import json
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from draftlight.errors import UserError
from draftlight.forge.acceptance import HeldOut
from draftlight.forge.recipe import Recipe, Shape
from draftlight.forge.reports import AcceptanceMeasured, Outlook

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run has decided for good once it has begun: killed and resumed, it keeps to it."""

    recipe: Recipe
    outlook: Outlook
    look_every: int  # answer tokens of training between two looks at the acceptance
    dtype: str  # that products are computed in


@dataclass(frozen=True, slots=True)
class Prospect:
    """What was measured before the run, and for which wishes: `asked` names the size or the recipe, and the minutes."""

    asked: str
    shape: Shape
    outlook: Outlook
    dtype: str


_PLAN = TypeAdapter(Plan)
_PROSPECT = TypeAdapter(Prospect)
_PATH = TypeAdapter(Path)
_LOOKS = TypeAdapter(list[AcceptanceMeasured])
_HELD_OUT = TypeAdapter(list[HeldOut])
_SECONDS = TypeAdapter(float)


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The files of a run."""

    folder: Path

    @property
    def chats(self) -> Path:
        """The folder of the shards."""
        return self.folder / "chats"

    @property
    def checkpoint(self) -> Path:
        """Where the training stands."""
        return self.folder / "checkpoint.pt"

    @property
    def best(self) -> Path:
        """The draft model as it was best, in torch's form."""
        return self.folder / "best.pt"

    @property
    def trial(self) -> Path:
        """A draft model to be looked at; not to be listed, so it is no .gguf by name."""
        return self.folder / "trial.gguf.tmp"

    @property
    def done(self) -> Path:
        """There once the run has ended well."""
        return self.folder / "done"

    def keep_plan(self, plan: Plan) -> None:
        """Raises OSError."""
        self._write("plan.json", _PLAN.dump_json(plan, indent=1))

    def plan(self) -> Plan | None:
        """Return the plan, None where none was made yet."""
        return self._read("plan.json", _PLAN)

    def keep_prospect(self, prospect: Prospect) -> None:
        """Raises OSError."""
        self._write("outlook.json", _PROSPECT.dump_json(prospect, indent=1))

    def prospect(self) -> Prospect | None:
        """Return what was measured before, None where nothing was."""
        return self._read("outlook.json", _PROSPECT)

    def keep_held_out(self, held_out: list[HeldOut]) -> None:
        """Raises OSError."""
        self._write("held-out.json", _HELD_OUT.dump_json(held_out))

    def held_out(self) -> list[HeldOut] | None:
        """Return the held-out chats, None where there are none yet."""
        return self._read("held-out.json", _HELD_OUT)

    def keep_looks(self, looks: list[AcceptanceMeasured]) -> None:
        """Raises OSError."""
        self._write("looks.json", _LOOKS.dump_json(looks, indent=1))

    def looks(self) -> list[AcceptanceMeasured]:
        """Return what was measured during the training so far."""
        return self._read("looks.json", _LOOKS) or []

    def keep_out(self, out: Path) -> None:
        """Note where the draft model is about to be written, a name that was free. Raises OSError."""
        self._write("out.json", _PATH.dump_json(out))

    def out(self) -> Path | None:
        """Return where the draft model was about to be written, None where it was not yet."""
        return self._read("out.json", _PATH)

    def end(self) -> None:
        """Note that the run has ended well, and delete what only going on needed. Raises OSError."""
        self.done.touch()
        for file in (self.checkpoint, self.best, *self.folder.glob("*.gguf.tmp"), *self.chats.glob("*")):
            file.unlink(missing_ok=True)

    def delete(self) -> None:
        """Delete all of it, if it is there. Raises UserError."""
        try:
            shutil.rmtree(self.folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise UserError(
                f"The earlier run in {self.folder} cannot be deleted: {error.strerror}.", "Delete that folder yourself."
            ) from error

    def log(self, **values: object) -> None:
        """Add a line to the run's log. Raises OSError."""
        line = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **values}
        with (self.folder / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def keep_spent(self, seconds: float) -> None:
        """Raises OSError."""
        self._write("spent.json", _SECONDS.dump_json(seconds))

    def spent(self) -> float:
        """Return the seconds that this run has taken so far, pauses left out; what a kill cut off is not in it."""
        return self._read("spent.json", _SECONDS) or 0.0

    def _write(self, name: str, content: bytes) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        part = self.folder / f"{name}.part"
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self.folder / name)

    def _read(self, name: str, kind: TypeAdapter[_Value]) -> _Value | None:
        try:
            content = (self.folder / name).read_bytes()
        except FileNotFoundError:
            return None
        try:
            return kind.validate_json(content)
        except ValidationError as error:
            raise UserError(
                f"The run in {self.folder} was begun by another version of the program, or is damaged.",
                "Start over: what it has done cannot be gone on with.",
            ) from error
