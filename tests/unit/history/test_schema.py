"""The rules of migrations: each old database comes up to date whole, keeps its rows, and equals a fresh one."""

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftlight.history.records import Status
from draftlight.history.schema import MIGRATIONS, VERSION, migrate, version_of
from draftlight.history.store import HistoryStore

FROZEN = sorted(Path(__file__).parent.glob("chats_v*.sql"))


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    yield connection
    connection.close()


def tables(database: sqlite3.Connection) -> list[tuple[str, str]]:
    return database.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name").fetchall()


def m_next(database: sqlite3.Connection) -> None:
    database.execute("ALTER TABLE conversations ADD COLUMN folder TEXT NOT NULL DEFAULT 'none'")


def m_broken(database: sqlite3.Connection) -> None:
    m_next(database)
    database.execute("ALTER TABLE nowhere ADD COLUMN x")


def test_each_version_has_a_frozen_database() -> None:
    assert [path.name for path in FROZEN] == [f"chats_v{n}.sql" for n in range(1, VERSION + 1)]


@pytest.mark.parametrize("frozen", FROZEN, ids=lambda path: path.stem)
def test_an_old_database_keeps_its_rows_and_gets_the_tables_of_a_fresh_one(
    frozen: Path, tmp_path: Path, database: sqlite3.Connection
) -> None:
    path = tmp_path / "chats.db"
    old = sqlite3.connect(path)
    old.executescript(frozen.read_text())
    old.close()
    with HistoryStore.open(path) as store:
        assert store.notices == ()
        (conversation,) = store.conversations()
        assert (conversation.title, conversation.pinned) == ("Why is the sky blue?", True)
        question, answer = store.messages(conversation.id)
        assert store.recover_interrupted() == (answer.id,)
        assert store.message(answer.id).status is Status.INTERRUPTED
        assert (answer.text, answer.parent_id, len(store.rounds(answer.id))) == ("Light scat", question.id, 2)
        assert answer.settings is not None
        assert (answer.settings.seed, answer.settings.draft) == (7, "draft.gguf")
    migrate(database)
    upgraded = sqlite3.connect(path)
    assert version_of(upgraded) == VERSION
    assert tables(upgraded) == tables(database)
    upgraded.close()


def test_only_the_missing_steps_are_taken(database: sqlite3.Connection) -> None:
    migrate(database)
    database.execute(
        "INSERT INTO conversations (title, system_prompt, created_at, updated_at) VALUES ('kept', '', 0, 0)"
    )
    migrate(database, (*MIGRATIONS, m_next))
    migrate(database, (*MIGRATIONS, m_next))
    assert version_of(database) == VERSION + 1
    assert database.execute("SELECT title, folder FROM conversations").fetchall() == [("kept", "none")]


def test_a_step_that_fails_leaves_the_database_as_it_was(database: sqlite3.Connection) -> None:
    migrate(database)
    before = tables(database)
    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        migrate(database, (*MIGRATIONS, m_broken))
    assert tables(database) == before
    assert version_of(database) == VERSION
    assert not database.in_transaction


def test_threads_that_open_a_new_database_at_once_make_it_once(tmp_path: Path) -> None:
    path, barrier = tmp_path / "chats.db", threading.Barrier(8)
    failures: list[Exception] = []

    def open_it() -> None:
        barrier.wait()
        try:
            with HistoryStore.open(path) as store:
                store.create_conversation()
        except Exception as error:  # noqa: BLE001 - the thread's edge
            failures.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with HistoryStore.open(path) as store:
        assert len(store.conversations()) == 8
