"""The rules of a file in a bad state: a clear sentence, and nothing that was there is lost."""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from draftlight.errors import UserError
from draftlight.history.records import Role
from draftlight.history.schema import VERSION
from draftlight.history.store import HistoryStore

NOBODY = 65534


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.db"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users can reach, unlike pytest's own."""
    made = Path(tempfile.mkdtemp(prefix="draftlight-test-"))
    made.chmod(0o755)
    yield made
    made.chmod(0o755)
    shutil.rmtree(made)


@contextmanager
def write_protected(folder: Path) -> Iterator[None]:
    """Take the right to write away, from root as well: root does not obey a folder's permissions."""
    folder.chmod(0o555)
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


def fill(path: Path, n_messages: int = 1) -> int:
    with HistoryStore.open(path) as store:
        conversation = store.create_conversation().id
        for n in range(n_messages):
            store.add_message(conversation, Role.USER, f"message {n} " + "x" * 3000)
    return conversation


def broken(path: Path, *damage: tuple[int, bytes]) -> bytes:
    """Overwrite parts of a real database; return what it is now."""
    content = bytearray(path.read_bytes())
    for place, data in damage:
        content[place : place + len(data)] = data
    path.write_bytes(content)
    return bytes(content)


def moved_aside(path: Path) -> bytes:
    (moved,) = path.parent.glob("chats.db.corrupt-*[0-9]")
    return moved.read_bytes()


@pytest.mark.parametrize("content", [b"not a database, only text\n" * 200, bytes(range(1, 256)) * 32, b"x"], ids=len)
def test_a_file_that_is_no_database_is_kept_aside_and_replaced(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.with_name("chats.db-wal").write_bytes(b"its log")
    with HistoryStore.open(path) as store:
        (notice,) = store.notices
        assert "damaged" in notice
        assert store.conversations() == ()
        store.create_conversation()
    assert moved_aside(path) == content
    assert [wal.read_bytes() for wal in path.parent.glob("*.corrupt-*-wal")] == [b"its log"]
    with HistoryStore.open(path) as store:
        assert store.notices == ()
        assert len(store.conversations()) == 1


def test_a_log_beside_an_emptied_database_is_kept_aside(path: Path) -> None:
    path.touch()
    path.with_name("chats.db-wal").write_bytes(b"its log")
    with HistoryStore.open(path) as store:
        assert "damaged" in store.notices[0]
    assert [wal.read_bytes() for wal in path.parent.glob("*.corrupt-*-wal")] == [b"its log"]


def test_a_truncated_database_is_kept_aside_and_replaced(path: Path) -> None:
    fill(path, 50)
    content = path.read_bytes()[:30_000]
    path.write_bytes(content)
    with HistoryStore.open(path) as store:
        assert "damaged" in store.notices[0]
        fill(path)
    assert moved_aside(path) == content


def test_damage_found_while_reading_is_a_sentence_and_the_next_start_moves_the_file_aside(path: Path) -> None:
    conversation = fill(path, 100)
    n_pages = path.stat().st_size // 4096
    content = broken(path, *((4096 * page, b"\xa5" * 4096) for page in range(n_pages // 2, n_pages - 2)))
    with HistoryStore.open(path) as store:
        assert store.notices == (), "opening reads only the beginning"
        with pytest.raises(UserError, match="damaged"):
            store.messages(conversation)
    with HistoryStore.open(path) as store:
        assert "damaged" in store.notices[0]
    assert moved_aside(path) == content
    with HistoryStore.open(path) as store:
        assert store.notices == ()


def test_a_false_report_of_damage_moves_nothing(path: Path) -> None:
    fill(path)
    path.with_name("chats.db.suspected").touch()
    with HistoryStore.open(path) as store:
        assert store.notices == ()
        assert len(store.conversations()) == 1
    assert not path.with_name("chats.db.suspected").exists()


def test_an_empty_file_is_an_empty_database(path: Path) -> None:
    path.touch()
    with HistoryStore.open(path) as store:
        assert store.notices == ()
        assert store.conversations() == ()


def make_newer(path: Path, *statements: str) -> bytes:
    database = sqlite3.connect(path, isolation_level=None)
    for statement in (*statements, f"PRAGMA user_version = {VERSION + 1}", "PRAGMA wal_checkpoint(TRUNCATE)"):
        database.execute(statement)
    database.close()
    return path.read_bytes()


def test_a_newer_database_can_be_read_and_is_never_written(path: Path) -> None:
    conversation = fill(path)
    before = make_newer(path, "ALTER TABLE messages ADD COLUMN mood TEXT")
    with HistoryStore.open(path) as store:
        assert store.read_only
        assert "newer Draftlight" in store.notices[0]
        assert len(store.messages(conversation)) == 1
        for write in (
            store.create_conversation,
            lambda: store.add_message(conversation, Role.USER, "x"),
            lambda: store.delete(conversation),
            lambda: store.update_message(1, rounds=["x"]),
            store.purge,
        ):
            with pytest.raises(UserError, match="reading only"):
                write()
        assert store.recover_interrupted() == ()
    assert path.read_bytes() == before


def test_a_newer_database_without_our_tables_is_a_sentence(path: Path) -> None:
    fill(path)
    before = make_newer(path, "ALTER TABLE conversations RENAME TO chats")
    with HistoryStore.open(path) as store, pytest.raises(UserError, match="Another version"):
        store.conversations()
    assert path.read_bytes() == before


def test_a_full_disk_is_a_sentence_and_what_was_saved_stays(path: Path) -> None:
    conversation = fill(path)
    with HistoryStore.open(path) as store:
        n_pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
        store._connection.execute(f"PRAGMA max_page_count = {n_pages}")
        with pytest.raises(UserError, match="disk is full"):
            store.add_message(conversation, Role.USER, "y" * 100_000)
        assert len(store.messages(conversation)) == 1
        store._connection.execute("PRAGMA max_page_count = 1000000")
        store.add_message(conversation, Role.USER, "y" * 100_000)
        assert len(store.messages(conversation)) == 2


def test_a_database_locked_by_another_program_is_a_sentence(path: Path) -> None:
    conversation = fill(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with HistoryStore.open(path) as store:
        store._connection.execute("PRAGMA busy_timeout = 0")
        assert len(store.messages(conversation)) == 1, "reading goes on"
        with pytest.raises(UserError, match="Another program"):
            store.create_conversation()
        other.execute("ROLLBACK")
        other.close()
        store.create_conversation()


def test_chats_in_a_write_protected_folder_can_still_be_read(folder: Path) -> None:
    path = folder / "chats.db"
    conversation = fill(path)
    with write_protected(folder), HistoryStore.open(path) as store:
        assert store.read_only
        assert "cannot be written" in store.notices[0]
        assert len(store.messages(conversation)) == 1
        with pytest.raises(UserError, match="reading only"):
            store.create_conversation()


def test_no_chats_can_be_made_in_a_write_protected_folder(folder: Path) -> None:
    with write_protected(folder):
        with pytest.raises(UserError, match="cannot be opened"):
            HistoryStore.open(folder / "chats.db")
        with pytest.raises(UserError, match="cannot be made"):
            HistoryStore.open(folder / "new" / "chats.db")


def test_a_file_that_turns_write_protected_is_a_sentence(folder: Path) -> None:
    path = folder / "chats.db"
    fill(path)
    with HistoryStore.open(path) as holder:  # keeps the files beside the database alive
        path.chmod(0o444)
        for beside in folder.glob("chats.db-*"):
            beside.chmod(0o666)
        with (
            write_protected(folder),
            HistoryStore.open(path) as store,
            pytest.raises(UserError, match="opened for writing"),
        ):
            store.create_conversation()
        holder.create_conversation()


@pytest.mark.parametrize("place", ["folder", "file/chats.db"])
def test_a_path_that_can_hold_no_database_is_a_sentence(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(UserError):
        HistoryStore.open(tmp_path / place)
