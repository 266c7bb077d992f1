"""What the pickers offer: the models found on disk, and which of them may draft for the chosen target, and why not."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from draftlight.engine.cancel import CancelToken
from draftlight.library.gguf import BadModelFile, GgufHeader, read_header
from draftlight.library.pairing import PairVerdict, can_roll_back, check_pair
from draftlight.library.scanner import ModelFile
from draftlight.ui.jobs import Work

ListModels = Callable[[], Sequence[ModelFile]]


@dataclass(frozen=True, slots=True)
class ModelsFound:
    """Every model file that was found."""

    models: tuple[ModelFile, ...]


@dataclass(frozen=True, slots=True)
class DraftsChecked:
    """Which files may draft for a target. `no_draft` says why none can at all; empty where some could."""

    target: Path
    verdicts: dict[Path, PairVerdict]
    no_draft: str = ""


def find_models(list_models: ListModels) -> Work:
    """Return the work of looking for models."""

    def work(_cancel: CancelToken) -> Iterator[ModelsFound]:
        yield ModelsFound(tuple(list_models()))

    return work


def check_drafts(target: Path, models: Sequence[ModelFile]) -> Work:
    """Return the work of checking every model against a target; it reads vocabularies, so it takes a moment."""

    def work(cancel: CancelToken) -> Iterator[DraftsChecked]:
        header = read_header(target)
        if not can_roll_back(header):
            reason = (
                f"{target.name} keeps a running state that cannot be rolled back, so nothing can be drafted for it."
            )
            yield DraftsChecked(target, {}, reason)
            return
        verdicts: dict[Path, PairVerdict] = {}
        for model in models:
            if cancel.cancelled:
                return
            verdicts[model.path] = _verdict(header, model)
        yield DraftsChecked(target, verdicts)

    return work


def _verdict(target: GgufHeader, model: ModelFile) -> PairVerdict:
    """Return the verdict on one file; one that cannot be read cannot draft either."""
    if model.header is None:
        return PairVerdict(ok=False, reasons=(model.problem,))
    try:
        return check_pair(target, model.header)
    except BadModelFile as problem:
        return PairVerdict(ok=False, reasons=(str(problem),))
