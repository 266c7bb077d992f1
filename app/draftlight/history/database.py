"""Opening the database file, whatever state it is in, and saying in words what SQLite reports.

A damaged file is moved aside, a newer program's is opened for reading only; neither is ever written over.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from draftlight.errors import UserError
from draftlight.history.schema import VERSION, migrate, version_of
from draftlight.paths import make_folder, move_aside

_SMALLEST_PAGE = 512  # bytes: no database that holds anything is smaller
_BUSY_SECONDS = 3.0  # how long another writer is waited for
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_UNWRITABLE = frozenset({sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM})
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_SENTENCES = (
    (_DAMAGED, "The chats in {path} are damaged.", "Start Draftlight again: it will move the file aside."),
    (_UNWRITABLE, "The chats in {path} cannot be opened for writing.", "Allow writing there."),
    (_BUSY, "Another program is using the chats in {path}.", "Close it and try again."),
    ({sqlite3.SQLITE_FULL}, "The disk is full: the chats in {path} cannot be saved.", "Free some space and try again."),
    (
        {sqlite3.SQLITE_IOERR},
        "The chats in {path} cannot be read or written: {error}.",
        "Check the disk and try again.",
    ),
)


@dataclass(frozen=True, slots=True)
class Opened:
    """An open database; `notices` are sentences the person should see."""

    connection: sqlite3.Connection
    read_only: bool = False
    notices: tuple[str, ...] = ()


def open_database(path: Path) -> Opened:
    """Open the chats, made new if there are none. Costs about a millisecond. Raises UserError."""
    make_folder(path.parent)
    with failures_in_words(path):
        opened = _open_unless_damaged(path)
        if opened is not None:
            return opened
        moved = move_aside(path, _log(path), path.with_name(f"{path.name}-shm"))
        _suspected(path).unlink(missing_ok=True)
        notice = f"The chats in {path} were damaged. They are kept as {moved.name}; a new, empty file was made."
        return Opened(_open(path).connection, notices=(notice,))


def open_to_read(path: Path) -> Opened | None:
    """Open the chats and change nothing; None where there are none. Raises UserError, for a damaged file too."""
    if not path.is_file():
        return None
    with failures_in_words(path, read_only=True):
        return Opened(_connect_to_read(path), read_only=True)


@contextmanager
def failures_in_words(path: Path, *, read_only: bool = False) -> Iterator[None]:
    """Turn what SQLite raises about the file into a UserError; a mistake of ours stays a bug.

    `read_only`: the file may be another version's, where a table or column is missing.
    """
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = _code(error)
        if code in _DAMAGED:
            _suspect(path)
        if read_only and code == sqlite3.SQLITE_ERROR:
            raise UserError(
                f"Another version of Draftlight wrote the chats in {path}: this one cannot read them.",
                "Use that version.",
            ) from error
        failure = _sentence(code, path, error)
        if failure is None:
            raise
        raise failure from error


def _open_unless_damaged(path: Path) -> Opened | None:
    """Open the file; None where it is damaged."""
    try:
        if not _may_be_a_database(path) or (_suspected(path).exists() and not _is_whole(path)):
            return None
        return _open(path)
    except sqlite3.DatabaseError as error:
        if _code(error) in _DAMAGED:
            return None
        raise


def _open(path: Path) -> Opened:
    try:
        connection = _connect(str(path))
    except sqlite3.OperationalError as error:
        if _code(error) not in _UNWRITABLE or not path.is_file():
            raise
        notice = f"The folder {path.parent} cannot be written: the chats in it can be read, nothing new is saved."
        return Opened(_connect_to_read(path), read_only=True, notices=(notice,))
    try:
        if version_of(connection) > VERSION:
            connection.close()
            notice = f"The chats in {path} were written by a newer Draftlight: they can be read, nothing new is saved."
            return Opened(_connect_to_read(path), read_only=True, notices=(notice,))
        if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            connection.execute("PRAGMA journal_mode = WAL")
        migrate(connection)
    except BaseException:
        connection.close()
        raise
    return Opened(connection)


def _connect(name: str, *, uri: bool = False) -> sqlite3.Connection:
    """Connect in autocommit mode and read enough to know that this is a database."""
    connection = sqlite3.connect(name, timeout=_BUSY_SECONDS, isolation_level=None, uri=uri)
    try:
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = NORMAL")  # with WAL: a power cut may lose the last second, never more
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _connect_to_read(path: Path) -> sqlite3.Connection:
    """Connect without writing; where not even the files beside it can be made, take the main file as it stands."""
    try:
        return _connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    except sqlite3.OperationalError:
        return _connect_to_main_file(path)


def _connect_to_main_file(path: Path) -> sqlite3.Connection:
    """Connect to the main file as it stands: no lock, no log, nothing written."""
    return _connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)


def _may_be_a_database(path: Path) -> bool:
    """Look at the first page alone: opened fully, SQLite would empty the log beside a file that it finds unusable.

    SQLite must do the looking. To close a file of our own would drop the locks of every connection of this process
    (POSIX), and the next program to leave would delete the log that these still write to.
    """
    try:
        size = path.stat().st_size
        if size >= _SMALLEST_PAGE:
            _connect_to_main_file(path).close()
    except (OSError, sqlite3.DatabaseError) as error:  # not there yet, or for the full opening to say
        return not isinstance(error, sqlite3.Error) or _code(error) != sqlite3.SQLITE_NOTADB
    log = _log(path)
    return size >= _SMALLEST_PAGE or (size == 0 and not (log.exists() and log.stat().st_size))


def _is_whole(path: Path) -> bool:
    """Read the whole file after a report of damage, which is forgotten if nothing is found."""
    connection = _connect(str(path))
    try:
        whole: bool = connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok"
    finally:
        connection.close()
    if whole:
        _suspected(path).unlink()
    return whole


def _log(path: Path) -> Path:
    """Where SQLite writes before it writes the database."""
    return path.with_name(f"{path.name}-wal")


def _suspect(path: Path) -> None:
    """Leave a mark for the next start, which then looks at the whole file."""
    with suppress(OSError):  # in a folder that cannot be written nothing could be moved aside either
        _suspected(path).touch()


def _suspected(path: Path) -> Path:
    """The mark that a read found damage."""
    return path.with_name(f"{path.name}.suspected")


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary result code; 0 where the error is not SQLite's own."""
    return _extended_code(error) & 0xFF


def _extended_code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0)


def _sentence(code: int, path: Path, error: sqlite3.Error) -> UserError | None:
    """What happened to the file, in words; None where it is not the file's fault."""
    if _extended_code(error) == sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
        return UserError("This conversation no longer exists.", "Choose another one.")
    for codes, sentence, remedy in _SENTENCES:
        if code in codes:
            return UserError(sentence.format(path=path, error=error), remedy)
    return None
