"""The chats on disk: conversations, their messages, the answers' traces. Knows no model, no event and no screen.

A store belongs to the thread that opened it; opening is cheap, so each thread opens its own. Every failure of the file
is a UserError. Text goes in cleaned; what SQLite still cannot hold (lone surrogates) becomes U+FFFD.
"""

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from draftlight.errors import UserError
from draftlight.history.database import Opened, failures_in_words, open_database, open_to_read
from draftlight.history.records import (
    AnswerSettings,
    Conversation,
    Message,
    Role,
    Status,
    conversation_of,
    message_of,
    settings_row,
    storable,
)
from draftlight.history.title import title_of
from draftlight.history.writer import current_writer, is_alive

_PATH_TO = """
    WITH RECURSIVE path (id) AS (
        SELECT ?
        UNION ALL
        SELECT messages.parent_id FROM messages JOIN path ON messages.id = path.id WHERE messages.parent_id IS NOT NULL
    )
    SELECT messages.* FROM messages JOIN path ON messages.id = path.id ORDER BY messages.id
"""


class HistoryStore:
    """An open database of chats. `notices` are sentences the person should see; a `read_only` one refuses to write."""

    def __init__(self, path: Path, opened: Opened, now: Callable[[], float] = time.time) -> None:
        """Take over an open database; HistoryStore.open() is the usual way."""
        self.read_only = opened.read_only
        self.notices = opened.notices
        self._path = path
        self._connection = opened.connection
        self._now = now

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open or make the chats at `path`. A damaged file is moved aside, a newer one opened for reading only."""
        return cls(path, open_database(path))

    @classmethod
    def open_to_read(cls, path: Path) -> Self | None:
        """Open the chats at `path` and change nothing, whatever state they are in; None where there are none."""
        opened = open_to_read(path)
        return None if opened is None else cls(path, opened)

    def __enter__(self) -> Self:
        """Return itself; the end of the block closes it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the database."""
        self.close()

    def close(self) -> None:
        """Close the database; a transaction that did not end is undone."""
        self._connection.close()

    # conversations

    def conversations(self) -> tuple[Conversation, ...]:
        """All conversations, pinned ones first, then the newest first."""
        rows = self._rows(
            "SELECT * FROM conversations WHERE deleted_at IS NULL ORDER BY pinned DESC, updated_at DESC, id DESC"
        )
        return tuple(map(conversation_of, rows))

    def conversation(self, conversation_id: int) -> Conversation:
        """One conversation; a deleted one no longer exists."""
        return conversation_of(
            self._one("SELECT * FROM conversations WHERE id = ? AND deleted_at IS NULL", conversation_id)
        )

    def create_conversation(self, system_prompt: str = "") -> Conversation:
        """Make an empty conversation; its first message will name it."""
        now = self._now()
        with self._write():
            cursor = self._connection.execute(
                "INSERT INTO conversations (title, system_prompt, created_at, updated_at) VALUES ('', ?, ?, ?)",
                (storable(system_prompt), now, now),
            )
        return self.conversation(_new_id(cursor))

    def rename(self, conversation_id: int, title: str) -> None:
        """Give a title; an empty one lets the next message name the conversation."""
        self._change(
            "UPDATE conversations SET title = ? WHERE id = ?", " ".join(storable(title).split()), conversation_id
        )

    def delete(self, conversation_id: int) -> None:
        """Take from the list; restore() undoes it until purge()."""
        self._change("UPDATE conversations SET deleted_at = ? WHERE id = ?", self._now(), conversation_id)

    def restore(self, conversation_id: int) -> None:
        """Undo delete()."""
        self._change("UPDATE conversations SET deleted_at = NULL WHERE id = ?", conversation_id)

    def purge(self, older_than: float = 0.0) -> int:
        """Remove for good what was deleted at least `older_than` seconds ago; return how many conversations."""
        with self._write():
            cursor = self._connection.execute(
                "DELETE FROM conversations WHERE deleted_at <= ?", (self._now() - older_than,)
            )
        return cursor.rowcount

    # messages

    def messages(self, conversation_id: int) -> tuple[Message, ...]:
        """The active path, oldest first: the newest message and all it answers. Other branches stay on disk."""
        newest = self._newest(conversation_id)
        return () if newest is None else self.path_to(newest)

    def path_to(self, message_id: int) -> tuple[Message, ...]:
        """The message and all it follows, oldest first."""
        return tuple(map(message_of, self._rows(_PATH_TO, message_id)))

    def message(self, message_id: int) -> Message:
        """One message."""
        return message_of(self._one("SELECT * FROM messages WHERE id = ?", message_id))

    def answers_to(self, message_id: int) -> tuple[Message, ...]:
        """The answers to a message, of every branch, oldest first."""
        rows = self._rows("SELECT * FROM messages WHERE parent_id = ? AND role = 'assistant' ORDER BY id", message_id)
        return tuple(map(message_of, rows))

    def answers_of(self, target: str) -> tuple[Message, ...]:
        """The answers of a target that came to an end or were stopped, of every branch, oldest first."""
        rows = self._rows(
            """
            SELECT messages.* FROM messages JOIN conversations ON conversations.id = messages.conversation_id
            WHERE role = 'assistant' AND target = ? AND status IN ('complete', 'stopped') AND deleted_at IS NULL
            ORDER BY messages.id
            """,
            target,
        )
        return tuple(map(message_of, rows))

    def add_message(
        self,
        conversation_id: int,
        role: Role,
        text: str,
        *,
        parent_id: int | None = None,
        status: Status = Status.COMPLETE,
        settings: AnswerSettings | None = None,
    ) -> Message:
        """Append a message to the active path, or to `parent_id` as its newest branch.

        The first message of the person names a conversation without a title. A streaming message remembers this
        process, so that its sudden end is noticed later.
        """
        text, now = storable(text), self._now()
        writer = current_writer() if status is Status.STREAMING else ""
        with self._write():
            follows = self._newest(conversation_id) if parent_id is None else parent_id
            message = (conversation_id, follows, role, text, status, writer, now, now)
            made_with = (None,) * 7 if settings is None else settings_row(settings)
            cursor = self._connection.execute(
                """
                INSERT INTO messages (conversation_id, parent_id, role, text, status, writer, created_at, updated_at,
                    seed, target, draft, draft_length, temperature, mode, sampling)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
                """,
                (*message, *made_with),
            )
            self._connection.execute("UPDATE conversations SET updated_at = ? WHERE id = ?", (now, conversation_id))
            if role is Role.USER:
                self._connection.execute(
                    "UPDATE conversations SET title = ? WHERE id = ? AND title = ''", (title_of(text), conversation_id)
                )
        return self.message(_new_id(cursor))

    def update_message(
        self,
        message_id: int,
        *,
        text: str | None = None,
        status: Status | None = None,
        stop_reason: str | None = None,
        error: str | None = None,
        stats: str | None = None,
        rounds: Sequence[str] = (),
    ) -> None:
        """Change what is given and append trace lines, all of it or nothing."""
        now = self._now()
        with self._write():
            cursor = self._connection.execute(
                """
                UPDATE messages SET text = coalesce(?, text), status = coalesce(?, status),
                    stop_reason = coalesce(?, stop_reason), error = coalesce(?, error), stats = coalesce(?, stats),
                    updated_at = ?
                WHERE id = ?
                """,
                (_or_none(text), status, stop_reason, _or_none(error), stats, now, message_id),
            )
            _must_exist(cursor.rowcount)
            self._connection.execute(
                """
                UPDATE conversations SET updated_at = ?
                WHERE id = (SELECT conversation_id FROM messages WHERE messages.id = ?)
                """,
                (now, message_id),
            )
            self._append(message_id, rounds)

    def rounds(self, message_id: int) -> tuple[str, ...]:
        """The answer's trace lines, as they were appended."""
        return tuple(
            row["line"] for row in self._rows("SELECT line FROM rounds WHERE message_id = ? ORDER BY seq", message_id)
        )

    def last_round(self, message_id: int) -> str:
        """The answer's last trace line; empty where there is none."""
        rows = self._rows("SELECT line FROM rounds WHERE message_id = ? ORDER BY seq DESC LIMIT 1", message_id)
        return str(rows[0]["line"]) if rows else ""

    def recover_interrupted(self) -> tuple[int, ...]:
        """Mark the answers whose process has died in the middle; return their ids. For the program's start."""
        streaming = self._rows("SELECT id, writer FROM messages WHERE status = 'streaming'")
        dead = tuple(int(row["id"]) for row in streaming if not is_alive(row["writer"]))
        if dead:
            with self._write():
                self._connection.executemany(
                    "UPDATE messages SET status = 'interrupted' WHERE id = ? AND status = 'streaming'",
                    [(message_id,) for message_id in dead],
                )
        return dead

    # the connection

    @contextmanager
    def _write(self) -> Iterator[None]:
        """One transaction: all of the block or nothing."""
        if self.read_only:
            raise UserError(
                f"Nothing new can be saved: the chats in {self._path} are open for reading only.",
                "Update Draftlight, or allow writing in that folder.",
            )
        with failures_in_words(self._path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # a full disk has already undone it
                    self._connection.execute("ROLLBACK")
                raise

    def _rows(self, statement: str, *values: object) -> list[sqlite3.Row]:
        with failures_in_words(self._path, read_only=self.read_only):
            return self._connection.execute(statement, values).fetchall()

    def _one(self, statement: str, *values: object) -> sqlite3.Row:
        rows = self._rows(statement, *values)
        _must_exist(len(rows))
        return rows[0]

    def _change(self, statement: str, *values: object) -> None:
        """Run a statement that changes one row, which must exist."""
        with self._write():
            _must_exist(self._connection.execute(statement, values).rowcount)

    def _newest(self, conversation_id: int) -> int | None:
        row = self._one("SELECT max(id) AS id FROM messages WHERE conversation_id = ?", conversation_id)
        return None if row["id"] is None else int(row["id"])

    def _append(self, message_id: int, lines: Iterable[str]) -> None:
        self._connection.executemany(
            """
            INSERT INTO rounds (message_id, seq, line)
            VALUES (?1, (SELECT coalesce(max(seq) + 1, 0) FROM rounds WHERE message_id = ?1), ?2)
            """,
            [(message_id, storable(line)) for line in lines],
        )


def _or_none(text: str | None) -> str | None:
    return None if text is None else storable(text)


def _must_exist(n_rows: int) -> None:
    if n_rows == 0:
        raise UserError("This conversation no longer exists.", "Choose another one.")


def _new_id(cursor: sqlite3.Cursor) -> int:
    if cursor.lastrowid is None:
        raise AssertionError("an INSERT has a row id")
    return cursor.lastrowid
