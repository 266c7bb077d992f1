"""The process's edge: what each kind of end looks like from outside."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from draftlight.app import has_display

FAULTY = """
import sys
from draftlight import app
from draftlight.cli import commands

def fail(arguments, parts):
    {body}

commands.run = fail
sys.exit(app.main(["models", *sys.argv[1:]]))
"""


class Edge:
    """Runs the program in a process of its own whose command is replaced by a few lines."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        self._environment = {**os.environ, "DRAFTLIGHT_LOG_DIR": str(self.log), "DRAFTLIGHT_DATA_DIR": str(folder)}

    def run(self, body: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.python("-c", FAULTY.format(body=body), *arguments)

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: S603 - our own program
            [sys.executable, *arguments],
            capture_output=True,
            encoding="utf-8",
            env=self._environment,
            timeout=60,
            check=False,
        )


@pytest.fixture
def edge(tmp_path: Path) -> Edge:
    return Edge(tmp_path)


MISTAKE = "from draftlight.errors import UserError; raise UserError('The cup is empty.', 'Fill it.')"


def test_a_mistake_is_a_sentence_and_a_remedy_and_ends_with_2(edge: Edge) -> None:
    done = edge.run(MISTAKE)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "The cup is empty.\nFill it.\n")


def test_with_json_the_mistake_is_also_the_last_line(edge: Edge) -> None:
    done = edge.run(MISTAKE, "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "event": "error",
        "sentence": "The cup is empty.",
        "remedy": "Fill it.",
    }


def test_a_bug_leaves_a_report_that_is_named_and_ends_with_70(edge: Edge) -> None:
    done = edge.run("secret = 1 / 0")
    assert done.returncode == 70
    (report,) = edge.log.glob("crash-*.txt")
    assert str(report) in done.stderr
    assert "Traceback" not in done.stderr
    assert "ZeroDivisionError" in report.read_text("utf-8")
    assert "ZeroDivisionError" in (edge.log / "draftlight.log").read_text("utf-8")


def test_a_bug_in_a_thread_is_reported_too(edge: Edge) -> None:
    done = edge.run("import threading; t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join(); return 0")
    assert done.returncode == 0
    assert len(list(edge.log.glob("crash-*.txt"))) == 1


def test_a_bug_is_shown_where_no_report_can_be_written(edge: Edge) -> None:
    edge.log.write_text("in the way", encoding="utf-8")
    done = edge.run("1 / 0")
    assert done.returncode == 70
    assert "ZeroDivisionError" in done.stderr


def test_ctrl_c_ends_quietly_with_130(edge: Edge) -> None:
    done = edge.run("raise KeyboardInterrupt")
    assert (done.returncode, done.stderr) == (130, "")


def test_a_native_crash_leaves_a_stack(edge: Edge) -> None:
    done = edge.run("import ctypes; ctypes.string_at(0)")
    assert done.returncode < 0
    assert "Segmentation fault" in (edge.log / "crash.log").read_text("utf-8")


def test_a_reader_who_leaves_ends_it_quietly(edge: Edge) -> None:
    line = "[sys.stdout.write(chr(120) * 1000 + chr(10)) for _ in range(10_000)]; sys.stdout.flush(); return 0"
    script = f"{sys.executable} -c '{FAULTY.format(body=line)}' | head -n 1 > /dev/null; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(  # noqa: S603 - our own program
        ["/bin/bash", "-c", script],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
        env=edge._environment,
    )
    assert (done.stdout, done.stderr) == ("141\n", "")


@pytest.mark.parametrize(
    ("environment", "there"),
    [
        ({}, False),
        ({"DISPLAY": ":1"}, True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, True),
        ({"QT_QPA_PLATFORM": "offscreen"}, True),
        ({"QT_QPA_PLATFORM": "xcb"}, False),
        ({"DISPLAY": ""}, False),
    ],
)
@pytest.mark.skipif(sys.platform in {"win32", "darwin"}, reason="there a window can always open")
def test_a_window_needs_a_display(environment: dict[str, str], *, there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert has_display() is there
