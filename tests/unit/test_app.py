"""The process's edge: what each kind of end looks like from outside."""

import json
import os
import shlex
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from draftlight.app import has_display, tidy_chats
from draftlight.errors import UserError
from draftlight.history.database import open_database
from draftlight.history.store import HistoryStore

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

    def run(
        self, body: str, *arguments: str, text: bytes = b"", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-c", FAULTY.format(body=body), *arguments],
            input=text,
            capture_output=True,
            env=self._environment | environment,
            timeout=60,
            check=False,
        )
        output, errors = done.stdout.decode(), done.stderr.decode()
        return subprocess.CompletedProcess(done.args, done.returncode, output, errors)


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
        "notes": [],
    }


def test_what_else_went_wrong_is_told_with_the_mistake(edge: Edge) -> None:
    body = (
        "from draftlight.errors import UserError; e = UserError('The cup is empty.', 'Fill it.'); "
        "e.add_note('It broke, too.'); raise e"
    )
    assert edge.run(body).stderr == "The cup is empty.\nFill it.\nIt broke, too.\n"
    assert json.loads(edge.run(body, "--json").stdout.splitlines()[-1])["notes"] == ["It broke, too."]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "ascii"])
def test_an_answer_that_the_terminal_cannot_encode_is_written_all_the_same(edge: Edge, encoding: str) -> None:
    done = edge.run(r"sys.stdout.write(chr(0x2713) + ' done ' + chr(0xdce9)); return 0", PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stdout, done.stderr) == (0, r"\u2713 done \udce9", "")


def test_bytes_that_are_no_text_can_be_read_so_that_a_sentence_can_refuse_them(edge: Edge) -> None:
    body = "sys.stdout.write(ascii(sys.stdin.readline())); return 0"
    done = edge.run(body, text=b"caf\xe9\n", PYTHONIOENCODING="utf-8")
    assert (done.returncode, done.stdout) == (0, r"'caf\udce9\n'")


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
    program = f"{shlex.quote(sys.executable)} -c '{FAULTY.format(body=line)}'"
    script = f"{program} | head -n 1 > /dev/null; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(  # noqa: S603 - our own program
        ["/bin/bash", "-c", script],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
        env=edge._environment,
    )
    assert (done.stdout, done.stderr) == ("141\n", "")


@pytest.fixture
def no_display(monkeypatch: pytest.MonkeyPatch) -> None:
    if sys.platform in {"win32", "darwin"}:
        pytest.skip("there a window can always open")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_display")
@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"DISPLAY": ""},
        {"DISPLAY": ":987654"},
        {"DISPLAY": "nonsense"},
        {"DISPLAY": "localhost:50000.0"},
        {"DISPLAY": "localhost:987654"},
        {"DISPLAY": "a..b:0"},
        {"WAYLAND_DISPLAY": "wayland-nowhere"},
        {"QT_QPA_PLATFORM": "xcb"},
    ],
)
def test_without_a_display_that_answers_no_window_can_open(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert not has_display()


@pytest.mark.usefixtures("no_display")
def test_a_display_that_answers_or_is_not_needed_lets_a_window_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "wayland-7"))
        server.listen()
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-7")
        assert has_display()
    assert not has_display()
    monkeypatch.setenv("QT_QPA_PLATFORM", "offscreen")
    assert has_display()


@pytest.mark.usefixtures("no_display")
def test_an_x_server_may_be_a_socket_or_on_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    if sys.platform != "linux":
        pytest.skip("addresses without a file are Linux' own")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0/tmp/.X11-unix/X7654321")
        server.listen()
        monkeypatch.setenv("DISPLAY", ":7654321.0")
        assert has_display()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if port >= 6000:
            monkeypatch.setenv("DISPLAY", f"127.0.0.1:{port - 6000}")
            assert has_display()
    assert not has_display()


def _ago(age: float) -> float:
    return time.time() - age


def test_a_deleted_chat_is_kept_for_a_day_and_then_forgotten_at_a_start(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    for age, kept in ((86_000.0, True), (87_000.0, False)):
        with HistoryStore(path, open_database(path), now=partial(_ago, age)) as store:
            chat = store.create_conversation()
            store.delete(chat.id)
        with HistoryStore.open(path) as store:
            tidy_chats(store)
            if kept:
                store.restore(chat.id)
                assert chat.id in {left.id for left in store.conversations()}
            else:
                with pytest.raises(UserError):
                    store.restore(chat.id)
