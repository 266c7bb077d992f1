"""Preflight as the tests run it: with a child that has little time, or one that a script plays."""

import sys
from collections.abc import Sequence
from pathlib import Path

from draftlight.engine.cancel import CancelToken
from draftlight.llama import preflight
from draftlight.llama.report import Preflight
from draftlight.llama.trial import PROBE_COMMAND, Stage
from draftlight.settings import KvType, PairSettings
from twins import Twins

FORBIDDEN = """
raise SystemExit("no child should have been started")
"""


def settled(twins: Twins) -> PairSettings:
    """Settings that leave nothing to be chosen by measurement."""
    return PairSettings(
        target=twins.target,
        draft=twins.draft,
        n_ctx=512,
        n_threads=1,
        kv_type=KvType.Q8_0,
        draft_kv_type=KvType.Q8_0,
    )


def checked(
    settings: PairSettings,
    cancel: CancelToken | None = None,
    *,
    command: Sequence[str] = (*PROBE_COMMAND, "--seconds", "1"),
    limit_seconds: float | None = None,
    busy: float = 0.0,
) -> Preflight:
    """What preflight comes to, by default from a child with little time to measure."""
    *stages, found = preflight.run(
        settings, cancel or CancelToken(), command=command, limit_seconds=limit_seconds, busy=lambda: busy
    )
    assert all(isinstance(stage, Stage) for stage in stages)
    assert isinstance(found, Preflight)
    return found


def command(folder: Path, script: str) -> list[str]:
    """A child that runs `script`, as preflight starts it."""
    path = folder / "child.py"
    path.write_text(script)
    return [sys.executable, str(path)]
