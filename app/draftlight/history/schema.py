"""The tables, as numbered steps from nothing to now. A step that was released is never edited: add the next one.

`PRAGMA user_version` holds the number of steps a database has taken. Times are seconds since 1970, UTC.
"""

import sqlite3
from collections.abc import Callable
from typing import TypeAlias

Migration: TypeAlias = Callable[[sqlite3.Connection], None]


_INITIAL = (
    """
    CREATE TABLE conversations (
        id INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used twice: settings remember the last one
        title TEXT NOT NULL,                   -- '' until the first message names it
        system_prompt TEXT NOT NULL,
        pinned INTEGER NOT NULL DEFAULT 0,
        created_at REAL NOT NULL,
        updated_at REAL NOT NULL,
        deleted_at REAL                        -- set while a deletion can be undone
    )
    """,
    """
    CREATE TABLE messages (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        conversation_id INTEGER NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
        parent_id INTEGER REFERENCES messages (id) ON DELETE CASCADE,  -- NULL for a first message
        role TEXT NOT NULL CHECK (role IN ('user', 'assistant')),
        text TEXT NOT NULL,
        status TEXT NOT NULL
            CHECK (status IN ('complete', 'streaming', 'stopped', 'failed', 'interrupted')),
        stop_reason TEXT NOT NULL DEFAULT '',
        error TEXT NOT NULL DEFAULT '',        -- the sentence of a failed answer
        seed INTEGER,                          -- this and what follows: answers only
        target TEXT,
        draft TEXT,
        draft_length INTEGER,                  -- NULL for automatic
        temperature REAL,
        mode TEXT,
        sampling TEXT,                         -- JSON of every sampling parameter
        stats TEXT NOT NULL DEFAULT '',        -- JSON of the figures so far
        writer TEXT NOT NULL DEFAULT '',       -- the process that streams it, as 'pid:start time'
        created_at REAL NOT NULL,
        updated_at REAL NOT NULL
    )
    """,
    "CREATE INDEX messages_by_conversation ON messages (conversation_id)",
    "CREATE INDEX messages_by_parent ON messages (parent_id)",
    "CREATE INDEX messages_streaming ON messages (status) WHERE status = 'streaming'",
    """
    CREATE TABLE rounds (
        message_id INTEGER NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
        seq INTEGER NOT NULL,
        line TEXT NOT NULL,                    -- a trace line as it came: header, prompt, round, end
        PRIMARY KEY (message_id, seq)
    )
    """,
)


def m001_initial(database: sqlite3.Connection) -> None:
    """Conversations, their messages as a tree, and each answer's trace lines in order."""
    for statement in _INITIAL:
        database.execute(statement)


MIGRATIONS: tuple[Migration, ...] = (m001_initial,)
VERSION = len(MIGRATIONS)


def version_of(database: sqlite3.Connection) -> int:
    """How many steps the database has taken: 0 for an empty one, more than VERSION for a newer program's."""
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def migrate(database: sqlite3.Connection, migrations: tuple[Migration, ...] = MIGRATIONS) -> None:
    """Take the steps that are missing, each whole or not at all. The connection must be in autocommit mode."""
    while version_of(database) < len(migrations):
        database.execute("BEGIN IMMEDIATE")
        try:
            version = version_of(database)  # again: another thread may have been faster
            if version < len(migrations):
                migrations[version](database)
                database.execute(f"PRAGMA user_version = {version + 1}")
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise
