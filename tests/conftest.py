"""What every test shares: folders of its own, a watch on leaked threads, the starter pair and the twins."""

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftlight import paths

sys.path.insert(0, str(Path(__file__).parent))  # tests are no packages: this is how they find twins.py

import findings
from twins import Twins, make_twins

_THREAD_GRACE_SECONDS = 2.0


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what was measured on the way."""
    if findings.noted():
        terminalreporter.section("findings")
        for sentence in findings.noted():
            terminalreporter.write_line(sentence)


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the person's own chats, settings, measurements or logs."""
    for kind in ("data", "config", "cache", "log"):
        monkeypatch.setenv(f"DRAFTLIGHT_{kind.upper()}_DIR", str(tmp_path_factory.mktemp(kind)))
    monkeypatch.setenv("DRAFTLIGHT_PROBE_SECONDS", "5")  # what is measured for a test need not be measured well


@pytest.fixture(autouse=True)
def no_leaked_threads() -> Iterator[None]:
    """A test that leaves a thread running fails: it would hold up the end of the program, too."""
    before = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate() if thread not in before and not thread.daemon]
    for thread in left:
        thread.join(_THREAD_GRACE_SECONDS)
    running = [thread.name for thread in left if thread.is_alive()]
    assert not running, f"threads still running after the test: {running}"


def _needed(path: Path) -> Path:
    if path.is_file():
        return path
    sentence = f"{path} is missing; `python3 tests` fetches it, or set DRAFTLIGHT_STARTER_TARGET to where it lies"
    if os.environ.get("CI"):
        pytest.fail(sentence)
    pytest.skip(sentence)


@pytest.fixture(scope="session")
def starter_target() -> Path:
    """SmolLM2-135M-Instruct, the target that the set-up fetches."""
    return _needed(Path(os.environ.get("DRAFTLIGHT_STARTER_TARGET") or paths.starter_target()))


@pytest.fixture(scope="session")
def starter_draft() -> Path:
    """The starter target's own draft model."""
    return _needed(paths.starter_draft())


@pytest.fixture(scope="session")
def twin_pair(tmp_path_factory: pytest.TempPathFactory) -> Twins:
    """A small random-weight pair; the draft agrees about four times in five."""
    return make_twins(tmp_path_factory.mktemp("twins"))
