"""One window for one folder of chats."""

import subprocess
import sys
from pathlib import Path

from PySide6.QtCore import QLockFile
from pytestqt.qtbot import QtBot

from draftlight.ui.single_instance import SingleInstance


def test_a_second_start_raises_the_first(qtbot: QtBot, tmp_path: Path) -> None:
    first, second = SingleInstance(tmp_path), SingleInstance(tmp_path)
    assert first.acquire()
    with qtbot.waitSignal(first.raised, timeout=3000):
        assert not second.acquire()
    first.release()
    assert second.acquire()
    second.release()


def test_another_folder_has_its_own_window(tmp_path: Path) -> None:
    one, other = SingleInstance(tmp_path / "one"), SingleInstance(tmp_path / "other")
    assert one.acquire()
    assert other.acquire()
    one.release()
    other.release()


def test_the_lock_of_a_crashed_program_is_taken_over(tmp_path: Path) -> None:
    crash = (
        "import os, sys; from PySide6.QtCore import QLockFile; "
        "lock = QLockFile(sys.argv[1]); assert lock.tryLock(0); os._exit(1)"
    )
    lock = tmp_path / "window.lock"
    subprocess.run([sys.executable, "-c", crash, str(lock)], check=False)  # noqa: S603 - our own interpreter
    assert lock.exists()
    instance = SingleInstance(tmp_path)
    assert instance.acquire()
    assert not QLockFile(str(lock)).tryLock(0)
    instance.release()
