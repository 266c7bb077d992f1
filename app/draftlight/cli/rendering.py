"""Answers in the terminal: each token in the colour of its fate, or the bare text where colour cannot be shown.

What is shown is decided by chat.trace, as it is for the window; this file only knows terminals.
"""

import os
import shutil
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator
from typing import TextIO

from draftlight.chat.figures import AUDIT_FAILED, equality, speed_up
from draftlight.chat.trace import Trace
from draftlight.engine.events import (
    COMMITTED_FATES,
    Event,
    GenerationFinished,
    ModelLoading,
    StopReason,
    TokenDrafted,
    TokenFate,
)

_STYLES = {
    TokenFate.PENDING: "2",  # dim
    TokenFate.ACCEPTED: "32",  # green
    TokenFate.REJECTED: "31;9",  # red, struck through
    TokenFate.NOT_REACHED: "2;9",  # dim, struck through
    TokenFate.CORRECTION: "94;4",  # bright blue, underlined: plain blue is hard to read on black
    TokenFate.BONUS: "94;4",
    TokenFate.PLAIN: "",
}
_REASONS = {
    StopReason.END_TOKEN: "the model ended its answer",
    StopReason.STOP_STRING: "a stop text came up",
    StopReason.LENGTH: "the longest answer allowed was reached",
    StopReason.CONTEXT_FULL: "the context is full",
    StopReason.CANCELLED: "stopped",
}
_BAR = 24  # columns
_LINE_SECONDS = 20.0  # between two lines of progress where no terminal is
LEGEND = (
    ("accepted", TokenFate.ACCEPTED),
    ("rejected", TokenFate.REJECTED),
    ("not reached", TokenFate.NOT_REACHED),
    ("the target's own", TokenFate.CORRECTION),
)


class Renderer:
    """Writes an answer as its events come in: here the committed text and nothing else."""

    def __init__(self, stream: TextIO) -> None:
        """Write to `stream`."""
        self._stream = stream
        self._trace = Trace()
        self._next = 0  # first span that is not written whole
        self._written = 0  # characters of that span that are

    def show(self, event: Event) -> None:
        """Write what the event adds, and a line break after the last one."""
        self._trace.apply(event)
        for text, fate in self._verified():
            if fate in COMMITTED_FATES:
                self._stream.write(text)
        if isinstance(event, GenerationFinished):
            self.end()
        self._stream.flush()

    def end(self) -> None:
        """End the answer's last line."""
        self._stream.write("\n")

    def legend(self) -> str:
        """Return a line that explains the colours; empty where there are none."""
        return ""

    def _verified(self) -> Iterator[tuple[str, TokenFate]]:
        """Yield what is verified, may be shown and is not written yet."""
        for span in self._trace.spans[self._next :]:
            if span.fate is TokenFate.PENDING:
                return
            yield span.text[self._written :], span.fate
            if span.text != span.report.text:  # the rest may become a stop string, and all that follows waits for it
                self._written = len(span.text)
                return
            self._next += 1
            self._written = 0


class ColourRenderer(Renderer):
    """Writes every drafted token in its colour; pending ones are rewritten in place while they fit on the line."""

    def __init__(self, stream: TextIO) -> None:
        """Write to `stream`, a terminal that knows ANSI sequences."""
        super().__init__(stream)
        self._column = 0  # where the verified text ends on its line
        self._pending_columns = 0

    def show(self, event: Event) -> None:
        """Write a pending token if it fits, or take the pending ones back and write them with their fates."""
        self._trace.apply(event)
        if isinstance(event, TokenDrafted):
            self._show_pending(event.token.text)
        else:
            self._erase_pending()
            for text, fate in self._verified():
                self._show_verified(text, fate)
        if isinstance(event, GenerationFinished):
            self.end()
        self._stream.flush()

    def legend(self) -> str:
        """Return each colour's name in that colour."""
        return ", ".join(_styled(name, fate) for name, fate in LEGEND)

    def _show_pending(self, text: str) -> None:
        text = visible(text)
        room = shutil.get_terminal_size().columns - 1 - self._column - self._pending_columns
        held_back = self._written or any(span.fate is not TokenFate.PENDING for span in self._trace.spans[self._next :])
        if "\n" not in text and columns(text) <= room and not held_back:
            self._pending_columns += columns(text)
            self._stream.write(_styled(text, TokenFate.PENDING))

    def _erase_pending(self) -> None:
        if self._pending_columns:
            self._stream.write(f"\x1b[{self._pending_columns}D\x1b[J")
            self._pending_columns = 0

    def _show_verified(self, text: str, fate: TokenFate) -> None:
        if fate not in COMMITTED_FATES:
            text = text.replace("\n", "\u23ce")  # a rejected line break must not tear the answer apart
        text = visible(text)
        self._stream.write(_styled(text, fate))
        _, line_break, tail = text.rpartition("\n")
        start = 0 if line_break else self._column
        self._column = (start + columns(tail)) % shutil.get_terminal_size().columns


def renderer_for(stream: TextIO) -> Renderer:
    """Return colours for a terminal that shows them, else plain text. NO_COLOR (no-color.org) and TERM=dumb count."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not stream.isatty()
    return Renderer(stream) if plain else ColourRenderer(stream)


def _styled(text: str, fate: TokenFate) -> str:
    """Return the text in its fate's colours; a style never runs past the end of its line."""
    style = _STYLES[fate]
    return "\n".join(f"\x1b[{style}m{line}\x1b[0m" if style and line else line for line in text.split("\n"))


def visible(text: str) -> str:
    """Replace control characters by their pictures, so that a model cannot drive the terminal; line breaks stay."""
    return "".join(_picture(character) for character in text.replace("\t", "    "))


def _picture(character: str) -> str:
    code = ord(character)
    if character == "\n" or unicodedata.category(character) not in {"Cc", "Cs"}:
        return character
    return chr(0x2400 + code) if code < 0x20 else "\ufffd"  # noqa: PLR2004 - the control pictures mirror 0 to 31


def columns(text: str) -> int:
    """Return how many cells of a terminal a text without line breaks takes."""
    return sum(_cells(character) for character in text)


def _cells(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1


def summary(event: GenerationFinished, mode: str) -> str:
    """Return one line of figures about an answer that was made in that mode."""
    stats = event.stats
    parts = [f"{stats.n_committed} token{'' if stats.n_committed == 1 else 's'}"]
    if stats.tokens_per_second > 0:  # the first token's time is the prompt's: one token alone has no speed
        parts.append(f"{stats.tokens_per_second:.1f} tok/s")
    if stats.n_drafted:
        parts.append(f"accepted {stats.n_accepted} of {stats.n_drafted} drafted ({stats.acceptance_rate:.0%})")
        parts.append(f"{stats.block_efficiency:.2f} tokens a round")
        parts.append(f"host time {stats.host_share:.1%}")
    parts += [equality(stats, mode), speed_up(stats), _REASONS[event.reason]]
    return " \u00b7 ".join(filter(None, parts))


def say(sentence: str) -> None:
    """Tell the person something that is not part of an answer."""
    sys.stderr.write(sentence + "\n")
    sys.stderr.flush()


def say_figures(event: GenerationFinished, mode: str, *more: str) -> None:
    """Tell an answer's figures, and before them what shook its mode's promise."""
    if event.stats.n_audit_failures:
        say(AUDIT_FAILED)
    say(" \u00b7 ".join((summary(event, mode), *more)))


def say_step(step: ModelLoading | None) -> None:
    """Show what is being loaded, always on the same line; None clears it. Says nothing where no terminal is."""
    if not sys.stderr.isatty():
        return
    text = ""
    if step is not None:
        text = step.step if step.fraction is None else f"{step.step} {step.fraction:.0%}"
    sys.stderr.write(f"\r\x1b[K{text}")
    sys.stderr.flush()


class ProgressBar:
    """How far something long is: a bar on a terminal; elsewhere a line now and then, so that a log shows life."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        """Write to `stream`; `clock` counts seconds."""
        self._stream = stream
        self._clock = clock
        self._started = clock()
        self._told: float | None = None  # when the last line was written

    def show(self, n_done: int, n_total: int, now: str, seconds_left: float | None = None) -> None:
        """Show that `n_done` of `n_total` are done, and what is being done now.

        The time left is worked out from the time so far, unless it is known better.
        """
        left = self._seconds_left(n_done, n_total) if seconds_left is None else seconds_left
        figures = f"{n_done:,} of {n_total:,}{_time_left(left)}  {now}".rstrip()
        if self._stream.isatty():
            filled = _BAR * n_done // max(1, n_total)
            line = f"[{'#' * filled}{'.' * (_BAR - filled)}] {figures}"
            self._stream.write(f"\r\x1b[K{visible(line)[: shutil.get_terminal_size().columns - 1]}")
        elif self._told is None or self._clock() - self._told >= _LINE_SECONDS or n_done == n_total:
            self._told = self._clock()
            self._stream.write(figures + "\n")
        self._stream.flush()

    def clear(self) -> None:
        """Take the bar away."""
        if self._stream.isatty():
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _seconds_left(self, n_done: int, n_total: int) -> float:
        return (self._clock() - self._started) / n_done * (n_total - n_done) if 0 < n_done < n_total else 0.0


def _time_left(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f", about {minutes}:{seconds:02} left" if minutes or seconds else ""
