"""What every GUI test shares: an offscreen platform, a theme, and a watch on leaked threads."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

os.environ["QT_QPA_PLATFORM"] = "offscreen"  # before any Qt import, so that no test needs a display

import pytest
import shiboken6
from PySide6.QtCore import QThread
from PySide6.QtWidgets import QApplication

from draftlight.settings import ColorScheme, Palette
from draftlight.ui.theme import Theme


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the offscreen platform say that it has no window manager; every other Qt warning fails."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.qt_log_ignore("does not support propagateSizeHints"))


@pytest.fixture(autouse=True)
def no_leaked_qthreads(qapp: QApplication) -> Iterator[None]:  # noqa: ARG001 - the application must outlive the threads
    """Fail a test that leaves a QThread running; it would abort the process at exit."""
    yield
    threads = [thing for thing in gc.get_objects() if type(thing) is QThread and shiboken6.isValid(thing)]
    running = [thread.objectName() for thread in threads if thread.isRunning()]
    assert not running, f"threads still run: {running}"


@pytest.fixture
def theme(qapp: QApplication) -> Theme:
    made = Theme(qapp)
    made.set_look(ColorScheme.LIGHT, Palette.TEXTBOOK)
    return made
