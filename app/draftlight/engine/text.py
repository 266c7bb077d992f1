"""Bytes to text across token borders, and the strings that end an answer. Knows no model, only bytes."""

import codecs
from collections.abc import Sequence


class Utf8Stream:
    """Decodes token bytes as they come; a character split over tokens appears with the token that completes it."""

    def __init__(self) -> None:
        """Start between two characters."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, piece: bytes) -> str:
        """Return the text that `piece` completes: empty in the middle of a character."""
        return self._decoder.decode(piece)

    def copy(self) -> "Utf8Stream":
        """Return a stream in the same state: for a draft that may have to be taken back."""
        twin = Utf8Stream()
        twin._decoder.setstate(self._decoder.getstate())
        return twin


class AnswerText:
    """The committed text of one answer, watched for stop strings, which may span tokens and rounds."""

    def __init__(self, stop: Sequence[str] = ()) -> None:
        """Watch for any of the `stop` strings; empty ones are ignored."""
        self._stop = tuple(string for string in stop if string)
        self._longest = max(map(len, self._stop), default=0)
        self._stream = Utf8Stream()
        self.text = ""
        self.stopped = False

    def commit(self, piece: bytes) -> str:
        """Add a committed token's bytes; return the text it completes. A stop string sets `stopped` and cuts `text`."""
        added = self._stream.feed(piece)
        start = max(0, len(self.text) - self._longest + 1)
        self.text += added
        found = [place for string in self._stop if (place := self.text.find(string, start)) >= 0]
        if found:
            self.text, self.stopped = self.text[: min(found)], True
        return added

    def draft_stream(self) -> Utf8Stream:
        """Return a stream that continues the committed text without touching it."""
        return self._stream.copy()

    @property
    def safe_length(self) -> int:
        """Characters that may be shown: the tail that could still become a stop string is held back."""
        if self.stopped:
            return len(self.text)
        for n in range(min(self._longest - 1, len(self.text)), 0, -1):
            tail = self.text[-n:]
            if any(string.startswith(tail) for string in self._stop):
                return len(self.text) - n
        return len(self.text)
