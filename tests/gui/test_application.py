"""The edge of the window's process: what nobody caught is logged and told once, Qt's messages reach the log."""

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QMessageLogContext, QtMsgType
from PySide6.QtWidgets import QMessageBox
from pytestqt.qtbot import QtBot

from draftlight.errors import UserError
from draftlight.ui.application import _FaultReporter, _log_message


@pytest.fixture
def boxes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    shown: list[str] = []
    monkeypatch.setattr(QMessageBox, "critical", lambda _parent, _title, text: shown.append(text))
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    reporter = _FaultReporter(tmp_path)
    reporter.install()
    yield shown
    del reporter


def test_what_nobody_caught_is_logged_and_told(
    qtbot: QtBot, boxes: list[str], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    sys.excepthook(ValueError, ValueError("odd"), None)
    qtbot.waitUntil(lambda: bool(boxes))
    assert "ValueError: odd" in boxes[0]
    assert str(tmp_path) in boxes[0]
    assert "odd" in caplog.text


def test_a_fault_in_another_thread_is_told_in_the_gui_thread(qtbot: QtBot, boxes: list[str]) -> None:
    def fail() -> None:
        raise UserError("The disk is full.", "Free some space.")

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    assert boxes == []
    qtbot.waitUntil(lambda: bool(boxes))
    assert "The disk is full. Free some space." in boxes[0]


def test_qts_messages_go_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        _log_message(QtMsgType.QtWarningMsg, QMessageLogContext(), "a warning of Qt's")
    assert "a warning of Qt's" in caplog.text


def test_a_display_that_does_not_answer_is_told_on_the_terminal(tmp_path: Path) -> None:
    script = (
        "from PySide6.QtCore import qInstallMessageHandler as install; from PySide6.QtWidgets import QApplication; "
        "from draftlight.ui.application import _log_message; install(_log_message); QApplication([])"
    )
    environment = os.environ | {"QT_QPA_PLATFORM": "xcb", "DISPLAY": ":65000", "HOME": str(tmp_path)}
    done = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", script], env=environment, capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode != 0
    assert "The window cannot open" in done.stderr
    assert "draftlight chat" in done.stderr
