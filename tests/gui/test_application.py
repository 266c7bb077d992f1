"""The edge of the window's process: what nobody caught is logged and told once, Qt's messages reach the log."""

import logging
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from PySide6.QtCore import QMessageLogContext, QTimer, QtMsgType
from PySide6.QtWidgets import QApplication, QMessageBox
from pytestqt.qtbot import QtBot

from draftlight.errors import UserError
from draftlight.history.store import HistoryStore
from draftlight.settings import PairSettings, Settings
from draftlight.ui.application import Parts, _FaultReporter, _log_message, _show
from draftlight.ui.main_window import MainWindow
from draftlight.ui.single_instance import SingleInstance
from gui.forging import ScriptedForge
from gui.scripted import PAIR, StoryDecoder, scripted_service


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


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    """The window's parts over chats that another version of the program wrote, in tables of its own."""
    chats = tmp_path / "chats.db"
    with closing(sqlite3.connect(chats)) as connection:
        connection.execute("PRAGMA user_version = 7")
        connection.execute("CREATE TABLE letters (id INTEGER)")
    service, _ = scripted_service(chats, StoryDecoder())
    return Parts(
        service=service,
        open_store=lambda: HistoryStore.open(chats),
        settings=Settings().changed(last_conversation=3),
        save_settings=lambda _settings: None,
        list_models=lambda: (),
        forge=ScriptedForge(),
        default_pair=PAIR,
        notices=(),
        log_dir=tmp_path,
        data_dir=tmp_path,
    )


def show(qapp: QApplication, parts: Parts) -> bool:
    with parts.open_store() as store:
        return _show(qapp, parts, store, SingleInstance(parts.data_dir))


def windows() -> list[MainWindow]:
    return [window for window in QApplication.topLevelWidgets() if isinstance(window, MainWindow)]


def test_chats_that_cannot_be_read_are_told_in_the_window(qapp: QApplication, parts: Parts) -> None:
    told: list[str] = []

    def look() -> None:
        for window in windows():
            told.extend(window.notices.sentences)
            window.close()

    QTimer.singleShot(0, look)
    assert show(qapp, parts)
    assert any("Another version of Draftlight wrote the chats" in sentence for sentence in told)


def test_a_start_that_fails_leaves_no_thread_behind(
    qapp: QApplication, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = MainWindow.start

    def start_and_fail(window: MainWindow, pair: PairSettings | None) -> None:
        start(window, pair)
        assert window._engine.busy
        raise UserError("The chats cannot be opened.")

    monkeypatch.setattr(MainWindow, "start", start_and_fail)
    with pytest.raises(UserError, match="cannot be opened"):  # a thread left running fails every test, in conftest
        show(qapp, parts)
