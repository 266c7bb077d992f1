"""`models`: what lies in the model folders, and which file may draft for which."""

import sys
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

from draftlight import paths
from draftlight.cli.arguments import Arguments
from draftlight.cli.json_lines import write_line
from draftlight.errors import UserError
from draftlight.library.kinds import ModelKind
from draftlight.library.pairing import PairVerdict, check_pair
from draftlight.library.scanner import ModelFile, list_models

_MEGABYTE = 1_000_000


def run(arguments: Arguments) -> int:
    """List the models of our own folders and of those that were named; return the exit status. Raises UserError."""
    for folder in arguments.folders:
        if not folder.is_dir():
            raise UserError(f"{folder} is not a folder.", "Name a folder that holds GGUF files.")
    models = list_models((*paths.models_dirs(), *arguments.folders))
    verdicts = pair_verdicts(models)
    if arguments.json:
        _write_json(models, verdicts)
        return 0
    if not models:
        sys.stdout.write("No model files were found.\n")
    for model in models:
        _write_model(model)
        for draft, verdict in verdicts.get(model.path, ()):
            if verdict.ok:
                sys.stdout.write(f"    {draft.path.name} can draft for it\n")
            else:
                sys.stdout.write(f"    {draft.path.name} cannot: {' '.join(verdict.reasons)}\n")
    return 0


def pair_verdicts(models: Sequence[ModelFile]) -> dict[Path, list[tuple[ModelFile, PairVerdict]]]:
    """Judge every smaller file as a draft model for each chat model."""
    verdicts: dict[Path, list[tuple[ModelFile, PairVerdict]]] = {}
    for target, draft in permutations((model for model in models if not model.problem), 2):
        if target.kind is ModelKind.CHAT and draft.size < target.size and target.header and draft.header:
            verdicts.setdefault(target.path, []).append((draft, check_pair(target.header, draft.header)))
    return verdicts


def _write_model(model: ModelFile) -> None:
    about = [model.problem] if model.problem else [f"{model.size / _MEGABYTE:,.1f} MB"]
    if model.header is not None:
        header = model.header
        about += [model.kind.description, header.architecture, header.quantisation, f"{header.n_ctx_train:,} tokens"]
    described = " \u00b7 ".join(filter(None, about))
    sys.stdout.write(f"{model.path}\n    {described}\n")


def _write_json(models: Sequence[ModelFile], verdicts: dict[Path, list[tuple[ModelFile, PairVerdict]]]) -> None:
    listed = [
        {
            "path": model.path,
            "kind": model.kind,
            "size": model.size,
            "problem": model.problem,
            "architecture": model.header.architecture if model.header else None,
            "quantisation": model.header.quantisation if model.header else None,
            "n_ctx_train": model.header.n_ctx_train if model.header else None,
        }
        for model in models
    ]
    pairs = [
        {
            "target": target,
            "draft": draft.path,
            "ok": verdict.ok,
            "reasons": verdict.reasons,
            "warnings": verdict.warnings,
        }
        for target, judged in verdicts.items()
        for draft, verdict in judged
    ]
    write_line(sys.stdout, {"event": "models", "models": listed, "pairs": pairs})
