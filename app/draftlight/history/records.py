"""What the database holds, as frozen values, and how they come out of its rows. They cross threads; rows do not."""

import sqlite3
from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """Who wrote a message."""

    USER = "user"
    ASSISTANT = "assistant"


class Status(StrEnum):
    """How far a message came."""

    COMPLETE = "complete"
    STREAMING = "streaming"
    STOPPED = "stopped"  # by the person
    FAILED = "failed"  # see the error
    INTERRUPTED = "interrupted"  # the program ended in mid-answer


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation of the list. Times are seconds since 1970, UTC."""

    id: int
    title: str
    system_prompt: str
    pinned: bool
    created_at: float
    updated_at: float


@dataclass(frozen=True, slots=True)
class AnswerSettings:
    """What an answer was made with: enough to make it again. `draft_length` None is automatic, `sampling` JSON."""

    seed: int
    target: str
    draft: str
    draft_length: int | None
    temperature: float
    mode: str
    sampling: str


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `settings` are an answer's; `stats` is JSON, empty while there is none."""

    id: int
    conversation_id: int
    parent_id: int | None
    role: Role
    text: str
    status: Status
    stop_reason: str
    error: str
    settings: AnswerSettings | None
    stats: str
    created_at: float
    updated_at: float


def conversation_of(row: sqlite3.Row) -> Conversation:
    """Read a row of the conversations table."""
    return Conversation(
        id=row["id"],
        title=row["title"],
        system_prompt=row["system_prompt"],
        pinned=bool(row["pinned"]),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


def settings_row(settings: AnswerSettings) -> tuple[object, ...]:
    """Return the values in the order of the messages table's columns."""
    return (
        settings.seed,
        storable(settings.target),
        storable(settings.draft),
        settings.draft_length,
        settings.temperature,
        settings.mode,
        settings.sampling,
    )


def message_of(row: sqlite3.Row) -> Message:
    """Read a row of the messages table."""
    settings = None
    if row["seed"] is not None:
        settings = AnswerSettings(
            seed=row["seed"],
            target=row["target"],
            draft=row["draft"],
            draft_length=row["draft_length"],
            temperature=row["temperature"],
            mode=row["mode"],
            sampling=row["sampling"],
        )
    return Message(
        id=row["id"],
        conversation_id=row["conversation_id"],
        parent_id=row["parent_id"],
        role=Role(row["role"]),
        text=row["text"],
        status=Status(row["status"]),
        stop_reason=row["stop_reason"],
        error=row["error"],
        settings=settings,
        stats=row["stats"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


def storable(text: str) -> str:
    """Return `text` with surrogate pairs joined and lone surrogates replaced, which UTF-8 cannot hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
