"""A child process: how it ended is known by its status, and what it writes is read whatever else it does."""

import os
import signal
import sys

import pytest

from draftlight.child import Ending, NotStarted, ending, ending_name, running


@pytest.mark.parametrize(
    ("status", "how"),
    [
        (0, Ending.BY_ITSELF),
        (1, Ending.BY_ITSELF),
        (-signal.SIGSEGV, Ending.CRASHED),
        (-signal.SIGABRT, Ending.CRASHED),
        (0xC0000005, Ending.CRASHED),  # Windows: access violation
        (3, Ending.CRASHED),  # Windows: abort()
        (-9, Ending.KILLED),
        (-signal.SIGTERM, Ending.STOPPED),
    ],
)
def test_the_exit_status_tells_how_it_ended(status: int, how: Ending) -> None:
    if status == -9 and os.name != "posix":
        pytest.skip("there are no signals")
    assert ending(status) is how


def test_an_ending_has_a_name() -> None:
    assert ending_name(-signal.SIGSEGV) == "SIGSEGV"
    assert ending_name(-250) == "signal 250"
    assert ending_name(0xC0000005) == "status 0xc0000005"


def test_both_outputs_are_read_however_much_is_written() -> None:
    program = "import sys\nfor n in range(9000): print('out', n); print('err' * 50, n, file=sys.stderr)"
    with running([sys.executable, "-c", program], "child") as child:
        lines = [line for line in child.lines() if line is not None]
        assert child.wait(60) == 0
    assert len(lines) == 9000
    assert child.errors().splitlines()[-1].endswith(" 8999")
    assert len(child.errors().splitlines()) == 2000


def test_it_hears_lines_until_it_has_ended() -> None:
    with running([sys.executable, "-c", "print(input())"], "child", listens=True) as child:
        child.tell("hello")
        assert [line for line in child.lines() if line is not None] == [f"hello{os.linesep}".encode()]
        assert child.wait(60) == 0
        child.tell("nobody hears this")


def test_what_cannot_be_started_says_why() -> None:
    with pytest.raises(NotStarted, match="No such file"), running(["no-such-program"], "child"):
        pass
