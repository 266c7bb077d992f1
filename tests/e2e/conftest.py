"""What the end-to-end tests share: the program as a process, and one measurement of this machine."""

import os
from collections.abc import Iterator
from pathlib import Path

os.environ["QT_QPA_PLATFORM"] = "offscreen"  # before any Qt import, for the windows in this process

import pytest

from program_process import Program


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What was measured about this machine is measured once for all tests."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def program(tmp_path: Path, shared_cache: Path) -> Iterator[Program]:
    environment = {
        **os.environ,
        "DRAFTLIGHT_DATA_DIR": str(tmp_path / "data"),
        "DRAFTLIGHT_CONFIG_DIR": str(tmp_path / "config"),
        "DRAFTLIGHT_LOG_DIR": str(tmp_path / "log"),
        "DRAFTLIGHT_CACHE_DIR": str(shared_cache),
    }
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"):
        environment.pop(name, None)
    started = Program(tmp_path, environment)
    yield started
    started.end()
