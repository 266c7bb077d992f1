import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "packaging"))
import bootstrap  # noqa: E402 - the set-up's files belong to no package

sys.path.remove(str(ROOT / "packaging"))


def program(folder: Path, name: str, code: str) -> Path:
    file = folder / name
    file.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c \'{code}\' "$@"\n', encoding="utf-8")
    file.chmod(0o755)
    return file


@pytest.fixture
def ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with nothing left to set up, whose programs are scripts of ours."""
    folder = tmp_path / "bin of it"
    folder.mkdir()
    monkeypatch.setattr(bootstrap, "BIN", folder)
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    monkeypatch.setattr(bootstrap, "is_ready", lambda _extras, _environ: True)
    return folder


SAY = 'import sys, os; print("ran", sys.argv[1:], os.getcwd(), os.environ["QT_QPA_PLATFORM"])'


def test_every_check_runs_even_if_one_fails_and_the_failure_counts(
    ready: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("QT_QPA_PLATFORM", raising=False)
    program(ready, "bad", f"{SAY}; sys.exit(2)")
    program(ready, "good", SAY)
    checks = [("style", ["bad", "x"]), ("types", ["good"]), ("tests", ["good", "y"])]
    assert bootstrap.run_tests(checks, []) == 1
    lines = [line for line in capfd.readouterr().out.splitlines() if line]
    assert lines == [
        "== style: bad x",
        f"ran ['x'] {ready.parent} offscreen",
        "== types: good",
        f"ran [] {ready.parent} offscreen",
        "Failed so far: style",
        "== tests: good y",
        f"ran ['y'] {ready.parent} offscreen",
    ]
    assert bootstrap.run_tests(checks[1:], []) == 0


def test_with_arguments_only_the_tests_run_and_get_them(ready: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program(ready, "bad", "import sys; sys.exit(2)")
    program(ready, "good", SAY)
    assert bootstrap.run_tests([("style", ["bad"]), ("tests", ["good"])], ["tests/unit", "-k", "a b"]) == 0
    assert "ran ['tests/unit', '-k', 'a b']" in capfd.readouterr().out


def test_the_app_gets_its_arguments_and_the_callers_folder(tmp_path: Path) -> None:
    python = program(tmp_path, "python", "import sys, os; print(sys.argv[1:], os.getcwd())")
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'packaging')!r}); import bootstrap; from pathlib import Path; "
        f"bootstrap.PYTHON = Path({str(python)!r}); bootstrap.is_ready = lambda extras, environ: True; "
        "sys.exit(bootstrap.run_app(['generate', 'two words', '--k', '3']))"
    )
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=elsewhere, capture_output=True, text=True, check=True)  # noqa: S603 - as above
    expected = ["-P", "-m", "draftlight", "generate", "two words", "--k", "3"]
    assert done.stdout == f"{expected} {elsewhere}\n"
    assert done.stderr == ""


def test_the_launchers_read_nothing_but_the_standard_library(tmp_path: Path) -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'packaging')!r}); import bootstrap, installation"
    environ = {"PATH": os.environ["PATH"]}
    command = [sys.executable, "-I", "-S", "-B", "-c", code]
    subprocess.run(command, cwd=tmp_path, env=environ, check=True)  # noqa: S603 - as above


def test_an_old_python_is_told_what_is_needed() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'packaging')!r}); "
        "sys.version_info = (3, 10, 2); sys.version = '3.10.2 (main)'; import bootstrap"
    )
    command = [sys.executable, "-B", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - as above
    assert done.returncode == 1
    assert done.stderr.startswith("Draftlight needs Python 3.11 or newer, and this is Python 3.10.2.")
