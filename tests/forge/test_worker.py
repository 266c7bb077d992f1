"""The forge's own process: it waits, stops, and ends in a sentence where a person can do something about it."""

import errno
import io
import queue
import threading
from pathlib import Path

import pytest

from draftlight.errors import UserError
from draftlight.forge import worker
from draftlight.forge.reports import Failed, Held, Report, from_line
from draftlight.forge.request import ForgeRequest, as_argument
from draftlight.forge.worker import FAILED, Switch

REQUEST = as_argument(ForgeRequest(Path("target.gguf"), Path("run"), Path("draft.gguf")))


def test_a_paused_run_waits_and_a_stop_ends_it_even_then() -> None:
    told: queue.SimpleQueue[Report] = queue.SimpleQueue()
    switch = Switch(told.put)
    assert switch.go_on()
    assert told.empty()
    switch.obey("pause")
    answers: list[bool] = []
    asking = threading.Thread(target=lambda: answers.append(switch.go_on()))
    asking.start()
    assert told.get() == Held(waiting=True)
    assert answers == []
    switch.obey("go on")
    asking.join()
    assert answers == [True]
    assert told.get() == Held(waiting=False)
    switch.obey("pause")
    switch.obey("stop")
    assert not switch.go_on()


def test_a_run_ends_in_a_sentence_when_the_battery_runs_low(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "battery_low", lambda: True)
    monkeypatch.setattr(worker, "_BATTERY_SECONDS", -1.0)
    with pytest.raises(UserError, match="battery is low"):
        Switch(lambda _: None).go_on()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (UserError("It is too small.", "Choose another."), "It is too small."),
        (OSError(errno.ENOSPC, "No space left on device"), "The disk is full."),
        (MemoryError(), "Memory ran out."),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), "Memory ran out."),
        (RuntimeError("CUDA out of memory. Tried to allocate"), "Memory ran out."),
    ],
)
def test_what_a_person_can_mend_is_told_in_a_sentence(
    error: Exception, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(*_: object) -> None:
        raise error

    monkeypatch.setattr(worker, "_run", failing)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert worker.main([REQUEST]) == FAILED
    told = from_line(capsys.readouterr().out)
    assert isinstance(told, Failed)
    assert told.sentence == words
    assert told.remedy
    assert told.resumable


@pytest.mark.parametrize("error", [RuntimeError("a shape does not fit"), OSError(errno.EIO, "Input/output error")])
def test_a_bug_is_no_sentence(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise error

    monkeypatch.setattr(worker, "_run", failing)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(type(error)):
        worker.main([REQUEST])
