"""The rules of where files are."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from draftlight import paths
from draftlight.errors import UserError

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["data", "config", "cache", "log"])
def test_each_folder_can_be_moved_by_its_variable(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = getattr(paths, f"{name}_dir")
    monkeypatch.delenv(f"DRAFTLIGHT_{name.upper()}_DIR", raising=False)
    assert "draftlight" in folder().parts
    monkeypatch.setenv(f"DRAFTLIGHT_{name.upper()}_DIR", str(tmp_path / "a b"))
    assert folder() == tmp_path / "a b"
    assert not folder().exists()


def test_a_moved_folder_is_absolute_and_knows_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFTLIGHT_DATA_DIR", "chats")
    assert paths.data_dir() == Path.cwd() / "chats"
    monkeypatch.setenv("DRAFTLIGHT_DATA_DIR", "~/chats")
    assert paths.data_dir() == Path.home() / "chats"


def test_a_checkout_ships_its_models_and_assets_at_the_root() -> None:
    assert paths.bundled("models") == ROOT / "models"
    assert paths.asset("icons/stop.svg") == ROOT / "assets" / "icons" / "stop.svg"
    assert paths.starter_draft() == ROOT / "models" / "starter-draft.gguf"


def test_a_frozen_build_looks_where_it_was_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_MEIPASS", str(tmp_path), raising=False)
    assert paths.bundled("models") == tmp_path / "draftlight" / "data" / "models"


def test_an_installed_wheel_looks_inside_its_package(tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "draftlight"
    package.mkdir(parents=True)
    for name in ("__init__.py", "errors.py", "paths.py"):
        shutil.copy(ROOT / "app" / "draftlight" / name, package)
    code = "from draftlight import paths; print(paths.bundled('models')); print(paths.starter_target())"
    out = subprocess.run(  # noqa: S603 - our own code, our own interpreter
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(package.parent), "DRAFTLIGHT_DATA_DIR": str(tmp_path / "data")},
    ).stdout.splitlines()
    assert out == [
        str(package / "data" / "models"),
        str(tmp_path / "data" / "models" / paths.STARTER_TARGET),
    ]


def test_a_starter_target_in_the_persons_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_MEIPASS", str(tmp_path / "frozen"), raising=False)
    monkeypatch.setenv("DRAFTLIGHT_DATA_DIR", str(tmp_path))
    target = tmp_path / "models" / paths.STARTER_TARGET
    target.parent.mkdir()
    target.write_bytes(b"GGUF")
    assert paths.starter_target() == target
    assert paths.models_dirs() == (tmp_path / "frozen" / "draftlight" / "data" / "models", tmp_path / "models")


def test_a_folder_below_a_file_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be made"):
        paths.make_folder(tmp_path / "file" / "chats")
    assert paths.make_folder(tmp_path / "a" / "b").is_dir()


def test_a_second_damaged_file_in_the_same_second_gets_its_own_name(tmp_path: Path) -> None:
    moved = []
    for _ in range(3):
        for name in ("chats.db", "chats.db-wal"):
            (tmp_path / name).write_text(name)
        moved.append(paths.move_aside(tmp_path / "chats.db", tmp_path / "chats.db-wal", tmp_path / "chats.db-shm"))
    assert len(set(moved)) == 3
    assert all(path.with_name(path.name + "-wal").read_text() == "chats.db-wal" for path in moved)
