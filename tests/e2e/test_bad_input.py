"""Whatever is given to `generate`, a mistake ends with status 2 and a sentence that names what was wrong."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from program_process import ONE_THREAD, Program

pytestmark = [pytest.mark.e2e, pytest.mark.model]


def missing(folder: Path, _model: Path) -> Path:
    return folder / "missing.gguf"


def a_directory(folder: Path, _model: Path) -> Path:
    path = folder / "directory.gguf"
    path.mkdir()
    return path


def empty(folder: Path, _model: Path) -> Path:
    path = folder / "empty.gguf"
    path.touch()
    return path


def random_bytes(folder: Path, _model: Path) -> Path:
    path = folder / "random.gguf"
    path.write_bytes(hashlib.shake_128(b"noise").digest(100_000))
    return path


def cut_in_the_header(folder: Path, model: Path) -> Path:
    path = folder / "cut-header.gguf"
    path.write_bytes(model.read_bytes()[:5_000])
    return path


def cut_in_the_weights(folder: Path, model: Path) -> Path:
    path = folder / "cut-weights.gguf"
    path.write_bytes(model.read_bytes()[:-100_000])
    return path


def half_downloaded(folder: Path, model: Path) -> Path:
    path = folder / "model.gguf.part"
    path.write_bytes(model.read_bytes()[:1_000_000])
    return path


def without_a_chat_template(folder: Path, model: Path) -> Path:
    path = folder / "base.gguf"
    path.write_bytes(model.read_bytes().replace(b"tokenizer.chat_template", b"tokenizer.chat_tomplate"))
    return path


BAD_FILES = [
    missing,
    a_directory,
    empty,
    random_bytes,
    cut_in_the_header,
    cut_in_the_weights,
    half_downloaded,
    without_a_chat_template,
]


def refused(program: Program, *arguments: str | bytes | Path, text: str = "") -> dict[str, str]:
    """Run generate, expect it to refuse in words, and return its last line."""
    done = program.run("generate", *arguments, *ONE_THREAD, "--json", text=text)
    assert done.returncode == 2, f"{done.stdout}\n{done.stderr}"
    line: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    assert line["event"] == "error"
    assert line["sentence"].rstrip().endswith((".", ")"))
    assert line["sentence"] in done.stderr
    assert "Traceback" not in done.stderr
    return line


@pytest.mark.parametrize("make", BAD_FILES, ids=lambda make: make.__name__)
def test_a_bad_target_is_named(
    program: Program, starter_draft: Path, tmp_path: Path, make: Callable[[Path, Path], Path]
) -> None:
    path = make(tmp_path, starter_draft)
    line = refused(program, "Hello", "--target", path)
    assert path.name in line["sentence"]
    assert line["remedy"]


def test_a_bad_draft_model_is_named(
    program: Program, starter_target: Path, starter_draft: Path, tmp_path: Path
) -> None:
    path = cut_in_the_weights(tmp_path, starter_draft)
    line = refused(program, "Hello", "--target", starter_target, "--draft", path)
    assert path.name in line["sentence"]


def test_a_draft_model_with_another_vocabulary_is_refused_with_the_reason(
    program: Program, starter_target: Path, starter_draft: Path, tmp_path: Path
) -> None:
    path = tmp_path / "other-words.gguf"
    word = "\u0120the".encode()
    entry = len(word).to_bytes(8, "little") + word
    path.write_bytes(starter_draft.read_bytes().replace(entry, entry[:-1] + b"y", 1))
    line = refused(program, "Hello", "--target", starter_target, "--draft", path)
    assert path.name in line["sentence"]
    assert "differs" in line["sentence"]


def test_a_prompt_longer_than_the_context_is_refused(program: Program) -> None:
    line = refused(program, "-", "--ctx", "256", text="word " * 1_000)
    assert "token" in line["sentence"]
    raw = refused(program, "-", "--ctx", "256", "--raw", text="word " * 1_000)
    assert "token" in raw["sentence"]


def test_a_prompt_that_is_not_text_is_refused(program: Program) -> None:
    assert "UTF-8" in refused(program, b"caf\xe9 \xff")["sentence"]
    assert "NUL" in refused(program, "-", text="a\0b")["sentence"]
    assert "empty" in refused(program, "-", text=" \n")["sentence"]


def test_a_wrong_option_is_refused_the_same_way(program: Program) -> None:
    assert "--k" in refused(program, "Hello", "--k", "99")["sentence"]


def test_a_data_folder_that_cannot_be_made_is_named(program: Program, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = program.run("chat", DRAFTLIGHT_DATA_DIR=str(tmp_path / "file" / "data"))
    assert done.returncode == 2
    assert str(tmp_path / "file") in done.stderr
    assert "Traceback" not in done.stderr


def test_a_log_folder_that_cannot_be_made_does_not_stop_an_answer(program: Program, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = program.run(
        "generate", "Hello", *ONE_THREAD, "--max-tokens", "2", DRAFTLIGHT_LOG_DIR=str(tmp_path / "file" / "log")
    )
    assert done.returncode == 0
    assert "No log is kept" in done.stderr
