"""Esc shows as stopped within 200 ms and frees the engine within 500 ms: the real window over the real starter pair.

In this process, not in one of its own, because only here can each step be timed. The best of a few tries counts: what
is promised is the program's doing, and another program may take the processor just then.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from PySide6.QtCore import QEventLoop, Qt, QTimer
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from draftlight.app import load_pair
from draftlight.chat.service import ChatService
from draftlight.forge.client import forge
from draftlight.history.store import HistoryStore
from draftlight.settings import PairSettings, SamplingSettings, Settings
from draftlight.ui.main_window import MainWindow, WindowParts
from draftlight.ui.theme import Theme
from program_process import wait_until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.model,
    pytest.mark.qt_log_ignore("does not support propagateSizeHints"),  # offscreen has no window manager
]

SHOWN_S = 0.2
FREE_S = 0.5
TRIES = 3
LONG_PROMPT_WORDS = 4_000  # a token each, and the template's


class Heartbeat:
    """The longest time for which the window did not come round to its events."""

    def __init__(self) -> None:
        self._timer = QTimer()
        self._timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._timer.setInterval(5)
        self._timer.timeout.connect(self._beat)
        self.longest = 0.0

    def start(self) -> None:
        self._last = time.perf_counter()
        self._timer.start()

    def stop(self) -> None:
        self._beat()
        self._timer.stop()

    def _beat(self) -> None:
        now = time.perf_counter()
        self.longest = max(self.longest, now - self._last)
        self._last = now


def run_events_until(condition: Callable[[], bool], what: str) -> None:
    """Let the window live until something is so."""

    def so() -> bool:
        QApplication.processEvents(QEventLoop.ProcessEventsFlag.AllEvents, 5)
        return condition()

    wait_until(so, what)


@pytest.fixture
def window(
    qtbot: QtBot,
    tmp_path: Path,
    shared_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    starter_target: Path,
    starter_draft: Path,
) -> Iterator[MainWindow]:
    monkeypatch.setenv("DRAFTLIGHT_CACHE_DIR", str(shared_cache))
    open_store = partial(HistoryStore.open, tmp_path / "chats.db")
    service = ChatService(open_store, load_pair)
    pair = PairSettings(target=starter_target, draft=starter_draft, n_threads=1)
    settings = Settings(sampling=SamplingSettings(temperature=0.0))
    application = QApplication.instance()
    assert isinstance(application, QApplication)
    with open_store() as store:
        parts = WindowParts(
            service, open_store, store, settings, lambda _settings: None, tuple, forge, pair, tmp_path / "window.ini"
        )
        window = MainWindow(parts, Theme(application))
        qtbot.addWidget(window)
        window.show()
        window.start(None)
        run_events_until(lambda: window.picker.has_pair and not window.loader.loading, "the models")
        yield window
        window.close()
        assert window.shutdown(), "a thread did not end"
        service.unload()


def ask(window: MainWindow, text: str) -> None:
    window.controller.new_chat()
    window.controller.send(text)
    assert window.controller.busy


def stop_seconds(window: MainWindow, busy: Callable[[MainWindow], bool]) -> tuple[float, float]:
    """Press Esc and return after how long the screen said so, and after how long the engine was free.

    The first holds the longest wait for the window's attention that was seen before, as a key press may meet it.
    """
    heart = Heartbeat()
    heart.start()
    run_for(0.3)
    assert busy(window), "it was over before Esc was pressed"
    pressed = time.perf_counter()
    QTest.keyClick(window, Qt.Key.Key_Escape)
    run_events_until(lambda: "Stopped" in window.status.text, "the word on the screen")
    window.repaint()
    shown = time.perf_counter() - pressed
    run_events_until(lambda: not window.controller.busy, "a free engine")
    free = time.perf_counter() - pressed
    heart.stop()
    return heart.longest + shown, heart.longest + free


def run_for(seconds: float) -> None:
    end = time.monotonic() + seconds
    run_events_until(lambda: time.monotonic() > end, "the time to pass")


def is_answering(window: MainWindow) -> bool:
    return "Answering" in window.status.text


def is_reading(window: MainWindow) -> bool:
    running = window.controller._running
    prompt = running.answer.trace.prompt if running is not None and running.answer.trace is not None else None
    return prompt is not None and prompt.n_evaluated < prompt.n_tokens


@pytest.mark.parametrize(
    ("text", "begun"),
    [
        pytest.param("Write a long story about a lighthouse.", is_answering, id="while tokens come"),
        pytest.param("tell " * LONG_PROMPT_WORDS, is_reading, id="while 4,000 tokens are read"),
    ],
)
def test_esc_is_obeyed_at_once(window: MainWindow, text: str, begun: Callable[[MainWindow], bool]) -> None:
    tries = []
    for number in range(TRIES):
        ask(window, f"{number} {text}")  # each its own, or what was read before would be reused
        run_events_until(lambda: begun(window), "the work to begin")
        tries.append(stop_seconds(window, begun))
    shown, free = min(seconds for seconds, _ in tries), min(seconds for _, seconds in tries)
    told = ", ".join(f"shown {each[0]:.3f} s, free {each[1]:.3f} s" for each in tries)
    assert shown < SHOWN_S, told
    assert free < FREE_S, told
