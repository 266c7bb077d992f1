"""The scan: finds each model once, says what is wrong with the rest, and survives everything a disk can hold."""

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from draftlight.library.kinds import ModelKind
from draftlight.library.scanner import list_models

Write = Callable[..., Path]


def names(*folders: Path) -> list[str]:
    return [model.path.name for model in list_models(folders)]


def test_models_are_found_at_any_depth_by_name(tmp_path: Path, write_model: Write) -> None:
    write_model("b.gguf")
    write_model("deep/er/still/A.GGUF")
    write_model("notes.txt", b"no model")
    models = list_models([tmp_path])
    assert [model.path.name for model in models] == ["A.GGUF", "b.gguf"]
    assert all(model.kind is ModelKind.CHAT and not model.problem and model.header for model in models)
    assert models[1].size == (tmp_path / "b.gguf").stat().st_size


def test_a_folder_that_does_not_exist_holds_no_models(tmp_path: Path) -> None:
    assert names(tmp_path / "nowhere") == []


def test_a_file_seen_by_two_ways_is_listed_once(tmp_path: Path, write_model: Write) -> None:
    path = write_model("models/a.gguf")
    (tmp_path / "models" / "again.gguf").symlink_to(path)
    (tmp_path / "models" / "round").symlink_to(tmp_path / "models")
    os.link(path, tmp_path / "models" / "hard.gguf")
    assert names(tmp_path / "models", tmp_path, tmp_path / "models" / "round") == ["a.gguf"]


def test_a_link_out_of_the_folder_is_followed(tmp_path: Path, write_model: Write) -> None:
    write_model("elsewhere/a.gguf")
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "there").symlink_to(tmp_path / "elsewhere")
    assert names(tmp_path / "ours") == ["a.gguf"]


def test_bad_files_are_listed_with_their_reason(tmp_path: Path, write_model: Write) -> None:
    write_model("empty.gguf", b"")
    write_model("half.gguf.part")
    write_model("model.part")
    (tmp_path / "lost.gguf").symlink_to("nowhere")
    (tmp_path / "loop.gguf").symlink_to("loop.gguf")
    reasons = {model.path.name: model.problem for model in list_models([tmp_path])}
    assert "empty.gguf is empty (0 bytes)." in reasons["empty.gguf"]
    assert "is an unfinished download." in reasons["half.gguf.part"]
    assert "is an unfinished download." in reasons["model.part"]
    assert "is a link to a file that is not there." in reasons["lost.gguf"]
    assert "cannot be opened" in reasons["loop.gguf"]
    assert {model.kind for model in list_models([tmp_path])} == {ModelKind.UNREADABLE}


@pytest.fixture
def stranger() -> Iterator[Path]:
    """A folder with a locked folder in it, seen by somebody who may not enter that one."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        locked = Path(folder) / "locked"
        locked.mkdir(mode=0)
        if os.geteuid() == 0:
            os.seteuid(65_534)
        try:
            yield Path(folder)
        finally:
            os.seteuid(os.getuid())
            locked.chmod(0o700)


def test_a_folder_that_may_not_be_entered_says_so(stranger: Path) -> None:
    (model,) = list_models([stranger])
    assert model.problem == "The folder locked cannot be read: Permission denied."


def test_what_cannot_chat_says_what_it_is(tmp_path: Path, write_model: Write) -> None:
    write_model("embed.gguf", general__architecture="bert")
    write_model("chat.gguf")
    chat, embed = list_models([tmp_path])
    assert (embed.kind, embed.problem) == (ModelKind.EMBEDDING, "")
    assert embed.why_not_chat.startswith("embed.gguf is an embedding model")
    assert chat.why_not_chat == ""


def test_shards_are_one_model(tmp_path: Path, write_model: Write) -> None:
    for number in (1, 2, 3):
        write_model(f"big-0000{number}-of-00003.gguf", split__no=number - 1, split__count=3)
    (model,) = list_models([tmp_path])
    assert model.path.name == "big-00001-of-00003.gguf"
    assert (len(model.shards), model.problem, model.kind) == (3, "", ModelKind.CHAT)
    assert model.size == sum(path.stat().st_size for path in tmp_path.iterdir())
    (tmp_path / "big-00002-of-00003.gguf").unlink()
    (model,) = list_models([tmp_path])
    assert model.problem == "big-00001-of-00003.gguf is incomplete: of its 3 parts, these are missing: 2."
    (tmp_path / "big-00001-of-00003.gguf").unlink()
    assert "missing: 1, 2." in list_models([tmp_path])[0].problem


def test_a_bad_shard_makes_a_bad_model(tmp_path: Path, write_model: Write) -> None:
    write_model("big-00001-of-00002.gguf")
    write_model("big-00002-of-00002.gguf", b"")
    (model,) = list_models([tmp_path])
    assert "big-00002-of-00002.gguf is empty" in model.problem


def test_headers_are_remembered_until_the_file_changes(tmp_path: Path, write_model: Write) -> None:
    path = write_model("a.gguf", general__name="One")
    (first,) = list_models([tmp_path])
    assert list_models([tmp_path])[0].header is first.header
    write_model("a.gguf", general__name="Other")
    (second,) = list_models([tmp_path])
    assert second.header is not None
    assert second.header.name == "Other"
    assert second.path == path
