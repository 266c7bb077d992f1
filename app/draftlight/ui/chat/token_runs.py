"""From tokens to runs of equally drawn text, and back from a place in the document to its token.

Places are UTF-16 units, as everywhere in Qt. A token's border may fall inside what a reader sees as one character (an
accent, a flag, a family emoji); such a character is drawn whole, in the least favourable fate of its tokens.
"""

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from PySide6.QtCore import QTextBoundaryFinder

from draftlight.engine.events import TokenFate

_Owner = TypeVar("_Owner")

_LEAST_FAVOURABLE = (
    TokenFate.REJECTED,
    TokenFate.NOT_REACHED,
    TokenFate.PENDING,
    TokenFate.CORRECTION,
    TokenFate.BONUS,
    TokenFate.ACCEPTED,
    TokenFate.PLAIN,
)
_SEVERITY = {fate: len(_LEAST_FAVOURABLE) - place for place, fate in enumerate(_LEAST_FAVOURABLE)}

_SURROGATES = range(0xD800, 0xE000)
_SECOND_HALVES = range(0xDC, 0xE0)  # the upper byte of the unit
# Characters that Qt's documents keep for themselves or cannot hold, each replaced by one unit of the same width; a
# carriage return is left out, because Qt would make a paragraph of it.
_REPLACED: dict[int, str | None] = dict.fromkeys((*_SURROGATES, 0xFDD0, 0xFDD1, 0xFFFC, 0xFFFE, 0xFFFF), "�")
_REPLACED |= {0x00: "␀", 0x0D: None, 0x2029: "\n"}


def displayable(text: str) -> str:
    """Return the text as a document can hold it: lone surrogates, NUL and Qt's own marks replaced."""
    if text.isascii() and "\r" not in text and "\0" not in text:
        return text
    return text.translate(_REPLACED)


def utf16_length(text: str) -> int:
    """Return how many places the text takes in a document."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def joins_cleanly(before: str, after: str) -> bool:
    """Whether no character can reach across the border of these two texts, judged cheaply: both sides are ASCII."""
    return bool(before) and bool(after) and before[-1].isascii() and after[0].isascii()


@dataclass(frozen=True, slots=True)
class Piece:
    """A token's text as displayed, and the fate it is drawn in."""

    text: str
    fate: TokenFate


def runs(pieces: Sequence[Piece]) -> list[Piece]:
    """Return the same text in as few pieces as possible, no character cut."""
    if all(piece.text.isascii() for piece in pieces):
        return _merge(pieces)
    text = "".join(piece.text for piece in pieces)
    units = text.encode("utf-16-le")
    finder = QTextBoundaryFinder(QTextBoundaryFinder.BoundaryType.Grapheme, text)
    ends: list[int] = []
    total = 0
    for piece in pieces:
        total += utf16_length(piece.text)
        ends.append(total)
    clusters: list[Piece] = []
    first = 0
    start = 0
    while start < total:
        end = finder.toNextBoundary()
        if _splits_a_pair(units, end):  # Qt's finder does that behind Thai text
            continue
        if end <= start:
            end = total
        while ends[first] <= start:
            first += 1
        last = first
        while ends[last] < end:
            last += 1
        fate = max((piece.fate for piece in pieces[first : last + 1] if piece.text), key=_SEVERITY.__getitem__)
        clusters.append(Piece(units[2 * start : 2 * end].decode("utf-16-le"), fate))
        start = end
    return _merge(clusters)


def _splits_a_pair(units: bytes, place: int) -> bool:
    """Whether the unit at that place of well-formed UTF-16 is the second half of a character."""
    return 0 <= 2 * place < len(units) and units[2 * place + 1] in _SECOND_HALVES


def _merge(pieces: Sequence[Piece]) -> list[Piece]:
    merged: list[tuple[list[str], TokenFate]] = []
    for piece in pieces:
        if not piece.text:
            continue
        if merged and merged[-1][1] is piece.fate:
            merged[-1][0].append(piece.text)
        else:
            merged.append(([piece.text], piece.fate))
    return [Piece("".join(texts), fate) for texts, fate in merged]


@dataclass(frozen=True, slots=True)
class Place(Generic[_Owner]):
    """A token in the document: whose it is, which of the owner's tokens, and where it stands."""

    owner: _Owner
    number: int
    start: int
    end: int


class TokenIndex(Generic[_Owner]):
    """Where each token stands in the document, in ascending order. Only its tail ever changes."""

    def __init__(self) -> None:
        """Start empty."""
        self._starts = array("q")
        self._ends = array("q")
        self._numbers = array("q")
        self._owners: list[_Owner] = []
        self._copied = bytearray()

    def __len__(self) -> int:
        """Return how many entries there are."""
        return len(self._starts)

    def add(self, owner: _Owner, number: int, start: int, length: int, *, copied: bool) -> None:
        """Append a token; `copied` says whether its text belongs to what a selection copies."""
        self._starts.append(start)
        self._ends.append(start + length)
        self._numbers.append(number)
        self._owners.append(owner)
        self._copied.append(copied)

    def drop_tokens(self, owner: _Owner, first: int) -> int | None:
        """Forget the owner's tokens from that number on; return where the first of them stood, None if none did."""
        position = None
        while self._owners and self._owners[-1] is owner and self._numbers[-1] >= first:
            position = self._starts[-1]
            self._pop()
        return position

    def drop_from(self, position: int) -> None:
        """Forget everything that stands at that place or behind it."""
        while self._starts and self._starts[-1] >= position:
            self._pop()

    def clear(self) -> None:
        """Forget everything."""
        self._starts = array("q")
        self._ends = array("q")
        self._numbers = array("q")
        self._owners.clear()
        self._copied.clear()

    def at(self, position: int) -> Place[_Owner] | None:
        """Return the token that the unit at that place belongs to."""
        entry = bisect_right(self._starts, position) - 1
        if entry < 0 or position >= self._ends[entry]:
            return None
        return self.entry(entry)

    def entry(self, entry: int) -> Place[_Owner]:
        """Return the token of that number in document order."""
        return Place(self._owners[entry], self._numbers[entry], self._starts[entry], self._ends[entry])

    def entry_near(self, position: int) -> int:
        """Return the number, in document order, of the last token that starts at or before that place (-1: none)."""
        return bisect_right(self._starts, position) - 1

    def uncopied(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the stretches between two places that do not belong into a copy."""
        stretches: list[tuple[int, int]] = []
        entry = max(0, bisect_right(self._starts, start) - 1)
        while entry < len(self._starts) and self._starts[entry] < end:
            if not self._copied[entry] and self._ends[entry] > start:
                stretches.append((max(start, self._starts[entry]), min(end, self._ends[entry])))
            entry += 1
        return stretches

    def _pop(self) -> None:
        self._starts.pop()
        self._ends.pop()
        self._numbers.pop()
        self._owners.pop()
        self._copied.pop()
