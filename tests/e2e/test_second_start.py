"""`python3 app` in a checkout that is set up: it costs next to nothing, and works from anywhere."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from draftlight import __version__

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "packaging"))
import bootstrap  # noqa: E402 - the set-up's files belong to no package

sys.path.remove(str(ROOT / "packaging"))

BASE_PYTHON = getattr(sys, "_base_executable", sys.executable)  # a person starts it by no venv's Python
LAUNCHER = (BASE_PYTHON, str(ROOT / "app"), "--version")
PROGRAM = (str(bootstrap.PYTHON), "-P", "-m", "draftlight", "--version")
ADDED_SECONDS = 0.3
RUNS = 7


@pytest.fixture(autouse=True)
def is_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"):  # a window needs more to be set up
        monkeypatch.delenv(name, raising=False)
    if not bootstrap.is_ready((), os.environ):
        pytest.skip(
            f"{bootstrap.VENV} is not set up, so there is no second start; `python3 app --setup-only` does that"
        )


def start(command: Sequence[str], folder: Path) -> tuple[float, subprocess.CompletedProcess[str]]:
    began = time.perf_counter()
    done = subprocess.run(  # noqa: S603 - our own program
        command, cwd=folder, capture_output=True, encoding="utf-8", timeout=60, check=True
    )
    return time.perf_counter() - began, done


def test_a_second_start_adds_less_than_three_tenths_of_a_second(tmp_path: Path) -> None:
    pairs = [(start(LAUNCHER, tmp_path)[0], start(PROGRAM, tmp_path)[0]) for _ in range(RUNS)]
    launched, alone = map(statistics.median, zip(*pairs, strict=True))
    assert launched - alone < ADDED_SECONDS, f"{launched:.3f} s by the launcher, {alone:.3f} s without it"


def test_the_launcher_works_from_another_folder_and_says_nothing_of_its_own(tmp_path: Path) -> None:
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    _, done = start(LAUNCHER, elsewhere)
    assert (done.stdout, done.stderr) == (f"draftlight {__version__}\n", "")
