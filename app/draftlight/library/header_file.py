"""A model file opened for its header: bounds-checked reading, and the sentences for files that are no models.

Knows how values lie in a GGUF file, not what they mean.
"""

import io
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import repeat
from operator import length_hint
from pathlib import Path
from typing import NoReturn

from draftlight.errors import UserError
from draftlight.library.formats import SCALARS, ValueType

AGAIN = "Download it again, or choose another file."
FIRST_WINDOW = 1 << 18
UNFINISHED_SUFFIXES = frozenset({".part", ".partial", ".crdownload", ".incomplete", ".download"})

_LENGTH = struct.Struct("<Q")


class BadModelFile(UserError):
    """A file that cannot be used as a model. `offset` is the byte where the trouble begins, if it is one."""

    def __init__(self, sentence: str, remedy: str = "", offset: int | None = None) -> None:
        """Keep the place beside the sentence."""
        super().__init__(sentence, remedy)
        self.offset = offset


def shown_name(path: Path) -> str:
    """Return a file's name as text that can be shown and saved, whatever bytes it is made of."""
    name = path.name or str(path)
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def is_unfinished(path: Path) -> bool:
    """Tell by the name whether a download is still being written to this file."""
    return path.suffix.lower() in UNFINISHED_SUFFIXES


def split_strings(raw: bytes) -> Iterator[bytes]:
    """Yield the texts of a GGUF array: each 8 bytes of length, then that many bytes. `raw` has been checked."""
    position = 0
    while position < len(raw):
        start = position + 8
        position = start + _LENGTH.unpack_from(raw, position)[0]
        yield raw[start:position]


@contextmanager
def open_model_file(path: Path) -> Iterator["HeaderFile"]:
    """Open a regular file for its header. Raises BadModelFile for everything that stands in the way."""
    name = shown_name(path)
    with _open_regular(path, name) as raw:
        facts = os.fstat(raw.fileno())
        try:
            yield HeaderFile(raw, name, facts)
        except OSError as error:
            raise BadModelFile(f"{name} cannot be read: {error.strerror}.", "Choose another file.") from error


def _open_regular(path: Path, name: str) -> io.FileIO:
    try:
        mode = path.stat().st_mode  # asked before opening: opening a pipe would wait for a writer
        if stat.S_ISREG(mode):
            return io.FileIO(path)
    except FileNotFoundError as error:
        what = "is a link to a file that is not there" if path.is_symlink() else "is not there"
        raise BadModelFile(f"{name} {what}.", "Choose another file.") from error
    except PermissionError as error:
        raise BadModelFile(f"{name} may not be read by you.", "Allow reading it, or choose another file.") from error
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        raise BadModelFile(f"{name!r} cannot be opened.", "Choose another file.") from error
    what = "a folder" if stat.S_ISDIR(mode) else "a device or a pipe"
    raise BadModelFile(f"{name} is {what}, not a model file.", "Choose a file that ends in .gguf.")


class HeaderFile:
    """A cursor over the beginning of a file that reads on as it is needed, and never past the end."""

    def __init__(self, raw: io.FileIO, name: str, facts: os.stat_result) -> None:
        """Start at the first byte; `name` is for sentences."""
        self.name = name
        self.size = facts.st_size  # bytes
        self.modified_ns = facts.st_mtime_ns
        self.file_id = (facts.st_dev, facts.st_ino)
        self.position = 0
        self._raw = raw
        self._window = bytearray()

    def fail(self, what: str, offset: int | None = None) -> NoReturn:
        """Raise BadModelFile for damage at `offset`, by default where the cursor stands."""
        place = self.position if offset is None else offset
        raise BadModelFile(f"{self.name} is damaged at byte {place:,}: {what}.", AGAIN, place)

    def peek(self, n_bytes: int) -> bytes:
        """Return up to `n_bytes` from the cursor without moving it."""
        end = min(self.position + n_bytes, self.size)
        self._read_up_to(end)
        return bytes(self._window[self.position : end])

    def skip(self, n_bytes: int) -> None:
        """Step over bytes that must be there."""
        self._require(n_bytes)
        self.position += n_bytes

    def scalar(self, value_type: ValueType) -> int | float | bool:
        """Read a value of fixed width."""
        form = SCALARS[value_type]
        self._require(form.size)
        self._read_up_to(self.position + form.size)
        value: int | float | bool = form.unpack_from(self._window, self.position)[0]
        self.position += form.size
        return value

    def number(self, value_type: ValueType) -> int:
        """Read a whole number of fixed width."""
        return int(self.scalar(value_type))

    def text(self, what: str, longest: int | None = None) -> str:
        """Read a text: its length in bytes (at most `longest`), then UTF-8."""
        start = self.position
        length = self.number(ValueType.UINT64)
        if longest is not None and length > longest:
            self.fail(f"{what} is {length:,} bytes long; at most {longest:,} are possible", start)
        self._require(length)
        end = self.position + length
        self._read_up_to(end)
        try:
            value = self._window[self.position : end].decode()
        except UnicodeDecodeError as error:
            self.fail(f"{what} is not UTF-8 text", self.position + error.start)
        self.position = end
        return value

    def skip_strings(self, count: int, key: str) -> None:
        """Step over `count` texts of the array `key`. Their bytes are not looked at: vocabularies hold half letters."""
        window, position, length_at = self._window, self.position, _LENGTH.unpack_from
        elements = repeat(None, count)
        while length_hint(elements):
            try:
                for _ in elements:
                    position += 8 + length_at(window, position)[0]
            except (struct.error, OverflowError):  # the window ends here, or the file does
                elements = repeat(None, length_hint(elements) + 1)
                if position + 8 > self.size:
                    self.fail(f"element {count - length_hint(elements):,} of {key!r} runs past the end of the file")
                self._read_up_to(position + 8)
        if position > self.size:
            self.fail(f"the last element of {key!r} runs past the end of the file")
        self.position = position

    def read_range(self, start: int, end: int) -> bytes:
        """Read the bytes from `start` to `end`, which lie inside the file."""
        self._raw.seek(start)
        found = bytearray()
        while len(found) < end - start:
            part = self._raw.read(end - start - len(found))
            if not part:
                self._cut_short(start + len(found))
            found += part
        return bytes(found)

    def _require(self, n_bytes: int) -> None:
        left = self.size - self.position
        if n_bytes > left:
            raise BadModelFile(
                f"{self.name} is incomplete or damaged: at byte {self.position:,} its header goes on for "
                f"{n_bytes:,} bytes, but only {left:,} follow.",
                AGAIN,
                self.position,
            )

    def _read_up_to(self, end: int) -> None:
        """Grow the window, by doubling, until it reaches `end`, which lies inside the file."""
        have = len(self._window)
        if have >= end:
            return
        wanted = min(self.size, max(end, 2 * have, FIRST_WINDOW))
        self._window += self.read_range(have, wanted)

    def _cut_short(self, offset: int) -> NoReturn:
        raise BadModelFile(f"{self.name} was cut short while it was being read.", AGAIN, offset)
