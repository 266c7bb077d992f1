"""The rules of jobs: in order, one after another, nothing lost, everything told in the GUI thread."""

import sys
import threading
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from PySide6.QtCore import QObject, QThread, Slot
from PySide6.QtGui import QTextCharFormat, QTextCursor, QTextDocument
from PySide6.QtWidgets import QScrollBar
from pytestqt.qtbot import QtBot

from draftlight.engine.cancel import CancelToken
from draftlight.errors import UserError
from draftlight.ui import jobs
from draftlight.ui.jobs import Job, JobThread, Work

N_EVENTS = 25_000
# A bad PySide6 drops one reference of None for each void call; other tests of the process move a handful at most.
TOLERATED = 500


@dataclass(frozen=True)
class Numbered:
    number: int


class Listener(QObject):
    """Keeps what a job says, and in which thread it heard it."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[object] = []
        self.threads: set[QThread] = set()

    def listen(self, job: Job) -> Job:
        job.reported.connect(self.on_reported)
        job.failed.connect(self.on_failed)
        job.finished.connect(self.on_finished)
        return job

    @Slot(object)
    def on_reported(self, value: object) -> None:
        self.heard.append(value)
        self.threads.add(QThread.currentThread())

    @Slot(object)
    def on_failed(self, error: BaseException) -> None:
        self.heard.append(error)

    @Slot()
    def on_finished(self) -> None:
        self.heard.append("finished")


@pytest.fixture
def thread() -> Iterator[JobThread]:
    made = JobThread("test")
    yield made
    assert made.shutdown()


def counting(n: int) -> Work:
    def work(_cancel: CancelToken) -> Iterator[Numbered]:
        for number in range(n):
            yield Numbered(number)

    return work


def run(qtbot: QtBot, thread: JobThread, work: Work) -> Listener:
    listener = Listener()
    job = listener.listen(Job(work))
    with qtbot.waitSignal(job.finished, timeout=30_000):
        thread.start(job)
    return listener


def test_25_000_events_arrive_in_order_in_the_gui_thread(qtbot: QtBot, thread: JobThread) -> None:
    listener = run(qtbot, thread, counting(N_EVENTS))
    assert listener.heard == [*map(Numbered, range(N_EVENTS)), "finished"]
    assert listener.threads == {QThread.currentThread()}


def test_emitting_keeps_the_reference_counts_of_none_true_and_false(qtbot: QtBot, thread: JobThread) -> None:
    shared = (None, True, False)
    run(qtbot, thread, counting(100))  # whatever is made once is made now
    before = [sys.getrefcount(value) for value in shared]
    run(qtbot, thread, counting(N_EVENTS))
    after = [sys.getrefcount(value) for value in shared]
    assert all(abs(new - old) < TOLERATED for old, new in zip(before, after, strict=True)), (before, after)


def test_void_calls_keep_the_reference_count_of_none(qtbot: QtBot) -> None:
    document, bar, drawn = QTextDocument(), QScrollBar(), QTextCharFormat()
    qtbot.addWidget(bar)
    cursor = QTextCursor(document)
    before = sys.getrefcount(None)
    for number in range(5000):
        cursor.insertText("x")
        bar.setValue(number % 100)
        drawn.setProperty(0x100001, number)
    assert abs(sys.getrefcount(None) - before) < TOLERATED


@pytest.mark.parametrize(("python", "allowed"), [("3.11", False), ("3.12", False)])
def test_pyside6_6_12_0_cannot_be_installed(python: str, *, allowed: bool) -> None:
    pyproject = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    requirements = [Requirement(line) for line in pyproject["project"]["dependencies"] if line.startswith("PySide6")]
    marked = [one for one in requirements if one.marker is None or one.marker.evaluate({"python_version": python})]
    assert marked
    assert all(one.specifier.contains("6.12.0") for one in marked) is allowed


def test_a_failure_is_told_and_finished_comes_last(qtbot: QtBot, thread: JobThread) -> None:
    error = UserError("It broke.", "Mend it.")

    def work(_cancel: CancelToken) -> Iterator[int]:
        yield 1
        raise error

    assert run(qtbot, thread, work).heard == [1, error, "finished"]


def test_a_bug_is_logged_as_well_as_told(qtbot: QtBot, thread: JobThread, caplog: pytest.LogCaptureFixture) -> None:
    def work(_cancel: CancelToken) -> Iterator[int]:
        yield 1 // 0

    heard = run(qtbot, thread, work).heard
    assert isinstance(heard[0], ZeroDivisionError)
    assert heard[1:] == ["finished"]
    assert "ZeroDivisionError" in caplog.text


def test_a_job_cancelled_before_its_turn_never_runs_but_finishes(qtbot: QtBot, thread: JobThread) -> None:
    gate = threading.Event()
    first, second = Listener(), Listener()

    def waiting(_cancel: CancelToken) -> Iterator[str]:
        gate.wait(5)
        yield "first"

    blocker = first.listen(Job(waiting))
    waiting_job = second.listen(Job(counting(3)))
    with qtbot.waitSignal(waiting_job.finished):
        thread.start(blocker)
        thread.start(waiting_job)
        waiting_job.cancel()
        gate.set()
    assert first.heard == ["first", "finished"]
    assert second.heard == ["finished"]


def test_jobs_run_one_after_another_in_one_thread(qtbot: QtBot, thread: JobThread) -> None:
    places: list[int] = []

    def noting(_cancel: CancelToken) -> Iterator[int]:
        places.append(threading.get_ident())
        yield len(places)

    listener = Listener()
    last = [listener.listen(Job(noting)) for _ in range(3)]
    with qtbot.waitSignal(thread.idle):
        for job in last:
            thread.start(job)
    assert listener.heard == [1, "finished", 2, "finished", 3, "finished"]
    assert len(set(places)) == 1
    assert places[0] != threading.get_ident()


def test_even_a_lambda_is_called_in_the_gui_thread(qtbot: QtBot, thread: JobThread) -> None:
    seen: list[int] = []
    job = Job(counting(1))
    job.reported.connect(lambda _value: seen.append(threading.get_ident()))
    with qtbot.waitSignal(job.finished):
        thread.start(job)
    assert seen == [threading.get_ident()]


def test_shutdown_cancels_what_runs(qtbot: QtBot) -> None:
    thread = JobThread("cancelled")
    running = threading.Event()

    def endless(cancel: CancelToken) -> Iterator[int]:
        while not cancel.cancelled:
            running.set()
            yield 1

    thread.start(Job(endless))
    qtbot.waitUntil(running.is_set)
    assert thread.shutdown()


def test_shutdown_tells_when_the_work_is_stuck(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "LONGEST_WAIT_MS", 20)
    thread = JobThread("stuck")
    running, gate = threading.Event(), threading.Event()

    def stuck(_cancel: CancelToken) -> Iterator[int]:
        running.set()
        gate.wait(5)
        yield 1

    thread.start(Job(stuck))
    qtbot.waitUntil(running.is_set)
    assert not thread.shutdown()
    gate.set()
    monkeypatch.undo()
    assert thread.shutdown()


@pytest.mark.parametrize("keep", [lambda job: job, lambda _job: None], ids=["kept", "not kept by anybody"])
def test_a_job_lives_until_it_has_finished(qtbot: QtBot, thread: JobThread, keep: Callable[[Job], object]) -> None:
    listener = Listener()
    job = listener.listen(Job(counting(10)))
    with qtbot.waitSignal(thread.idle):
        thread.start(job)
        kept = keep(job)
        del job
    assert listener.heard[-1] == "finished"
    assert len(listener.heard) == 11
    del kept
