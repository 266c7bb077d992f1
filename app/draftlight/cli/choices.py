"""The command line's choices as the values that loader, engine and service take."""

import secrets
from pathlib import Path

from draftlight import paths
from draftlight.cli.arguments import Arguments
from draftlight.engine.decoding import Mode
from draftlight.engine.sampling import SamplingParams
from draftlight.errors import UserError
from draftlight.settings import NGRAM, NO_DRAFT, KvType, PairSettings


def pair_settings(arguments: Arguments) -> PairSettings:
    """Return the pair that was named; the starter pair where nothing was. Raises UserError where that is missing.

    A target alone runs plain; a draft alone drafts for the starter target. Beside a draft model n-grams are loaded too,
    for AUTO to choose from.
    """
    draft: Path | None = None
    if arguments.draft is not None and arguments.draft not in {NGRAM, NO_DRAFT}:
        draft = Path(arguments.draft)
    elif arguments.draft is None and arguments.target is None:
        draft = paths.starter_draft()
    return PairSettings(
        target=arguments.target if arguments.target is not None else starter_target(),
        draft=draft,
        ngram=draft is not None or arguments.draft == NGRAM,
        n_ctx=arguments.ctx,
        n_threads=arguments.threads,
        n_gpu_layers=arguments.gpu_layers,
        draft_n_gpu_layers=arguments.draft_gpu_layers,
        device=arguments.device,
        draft_device=arguments.draft_device,
        kv_type=KvType(arguments.kv),
        draft_kv_type=KvType(arguments.kv),
        exact=arguments.mode == Mode.EXACT,
    )


def starter_target() -> Path:
    """Return the starter target's file. Raises UserError where it was never fetched."""
    path = paths.starter_target()
    if not path.is_file():
        raise UserError(
            f"The starter target {path} is missing.",
            "Start Draftlight once with a network to fetch it, or name a model with --target FILE.",
        )
    return path


def asked_mode(arguments: Arguments) -> Mode | None:
    """Return the mode as the engine takes it: None for the pair's own best."""
    return None if arguments.mode == "auto" else Mode(arguments.mode)


def sampling_params(arguments: Arguments) -> SamplingParams:
    """Return how tokens are drawn."""
    return SamplingParams(
        temperature=arguments.temperature,
        top_k=arguments.top_k,
        top_p=arguments.top_p,
        min_p=arguments.min_p,
        repeat_penalty=arguments.repeat_penalty,
    )


def seed_or_fresh(seed: int | None) -> int:
    """Return the seed that was asked for, or a fresh one."""
    return secrets.randbits(32) if seed is None else seed
