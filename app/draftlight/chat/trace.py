"""A generation's events folded into what a screen shows, and written down as lines of JSON.

The one fold behind the live view, the replay from disk and the terminal. Knows no screen and no file. A trace on disk
is a header line with its version, then one line an event; drafted tokens are not written, their rounds hold them.
"""

import functools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple, TypeAlias

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from draftlight.engine.events import (
    COMMITTED_FATES,
    TRACE_VERSION,
    Event,
    GenerationFinished,
    PromptEvaluated,
    RoundVerified,
    TokenDrafted,
    TokenFate,
    TokenReport,
)
from draftlight.engine.ledger import StatsLedger
from draftlight.engine.metrics import SpeculationStats
from draftlight.errors import UserError

_TaggedEvent: TypeAlias = Annotated[Event, Field(discriminator="event")]


class TokenSpan(NamedTuple):
    """One token on the screen. `text` may be shown: less than the report's while a stop string may be coming."""

    text: str
    fate: TokenFate
    report: TokenReport
    round: int


@dataclass(frozen=True, slots=True)
class TraceChange:
    """What an event did to the spans: those before index `first` are as they were, of now `n_spans`."""

    first: int
    n_spans: int


class Trace:
    """The fold. Rejected, not reached and pending text is shown but never part of `text`."""

    def __init__(self) -> None:
        """Start with nothing generated."""
        self.prompt: PromptEvaluated | None = None
        self.finished: GenerationFinished | None = None
        self._rounds: list[RoundVerified] = []
        self._spans: list[TokenSpan] = []
        self._n_verified = 0  # spans before the pending ones
        self._held = 0  # first span that is not shown whole, or the end
        self._n_shown = 0  # characters committed by the spans before `_held`
        self._ledger: StatsLedger | None = None

    @classmethod
    def replay(cls, lines: Iterable[str]) -> "Trace":
        """Fold a trace's lines, header first. Raises UserError for a line that cannot be read."""
        trace = cls()
        for event in load_events(lines):
            trace.apply(event)
        return trace

    @property
    def spans(self) -> Sequence[TokenSpan]:
        """Every token in reading order: a round's accepted, rejected and not reached ones, then the target's own."""
        return self._spans

    @property
    def rounds(self) -> Sequence[RoundVerified]:
        """The rounds so far."""
        return self._rounds

    @property
    def text(self) -> str:
        """The answer so far: the committed tokens, without what is held back for a stop string."""
        if self.finished is not None:
            return self.finished.text
        return "".join(span.text for span in self._spans if span.fate in COMMITTED_FATES)

    @property
    def stats(self) -> SpeculationStats:
        """The figures so far."""
        if self.finished is not None:
            return self.finished.stats
        return SpeculationStats() if self._ledger is None else self._ledger.stats()

    def apply(self, event: Event) -> TraceChange:
        """Take in the next event; tell from which span on the screen must be brought up to date."""
        first = len(self._spans)
        match event:
            case PromptEvaluated():
                self.prompt = event
                self._running().prompt_evaluated(event.n_reused, 1000.0 * event.seconds)
            case TokenDrafted():
                self._spans.append(_span(event.token, event.round))
            case RoundVerified():
                self._rounds.append(event)
                self._running().add(event)
                own = () if event.target_token is None else (event.target_token,)
                self._drop_pending()
                self._spans.extend(_span(report, event.round) for report in (*event.drafted, *own))
                first = min(self._n_verified, self._show(event.text_length))
                self._n_verified = len(self._spans)
            case GenerationFinished():
                self.finished = event
                self._drop_pending()  # a cancelled round's; they were never judged
                first = min(self._n_verified, self._show(len(event.text)))
        return TraceChange(first, len(self._spans))

    def break_off(self) -> TraceChange:
        """Drop what was drafted and will never be verified: the generation failed without a last event."""
        self._drop_pending()
        return TraceChange(self._n_verified, len(self._spans))

    def _running(self) -> StatsLedger:
        """The figures of the rounds; the prompt's length is known with its first event."""
        if self._ledger is None:
            self._ledger = StatsLedger(n_prompt=0 if self.prompt is None else self.prompt.n_tokens)
        return self._ledger

    def _drop_pending(self) -> None:
        del self._spans[self._n_verified :]

    def _show(self, n_characters: int) -> int:
        """Show the first `n_characters` of the committed text; return the first span whose text that changed."""
        if n_characters < self._n_shown:
            self._held = self._n_shown = 0
        first, place = len(self._spans), self._n_shown
        for index in range(self._held, len(self._spans)):
            span = self._spans[index]
            if span.fate not in COMMITTED_FATES:
                continue
            shown = span.report.text[: max(0, n_characters - place)]
            if shown != span.text:
                self._spans[index] = span._replace(text=shown)
                first = min(first, index)
            place += len(span.report.text)
            if place <= n_characters:
                self._held, self._n_shown = index + 1, place
        return first


def dump_header() -> str:
    """Return the first line of a trace."""
    return json.dumps({"trace": TRACE_VERSION})


def dump_event(event: Event) -> str:
    """Return the event as one line of JSON; values at their defaults are left out. Infinities are strings."""
    rest = _events().dump_json(event, exclude_defaults=True).decode()
    return f'{{"event":"{event.event}"' + ("}" if rest == "{}" else f",{rest[1:]}")


def load_event(line: str) -> Event:
    """Read a line of dump_event(). Raises UserError."""
    try:
        return _events().validate_json(line)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(map(str, problem["loc"]))
        raise UserError(f"A line of the trace cannot be read ({place}: {problem['msg']}): {line[:80]}") from error


def load_events(lines: Iterable[str]) -> Iterator[Event]:
    """Read a trace: header, then events. Empty lines are skipped. Raises UserError, also for a newer version."""
    remaining = iter(lines)
    header = next(remaining, None)
    if header is None:
        return
    _check_header(header)
    for line in remaining:
        if line.strip():
            yield load_event(line)


def dump_stats(stats: SpeculationStats) -> str:
    """Return the figures as JSON, for the database."""
    return _stats().dump_json(stats, exclude_defaults=True).decode()


def load_stats(text: str) -> SpeculationStats:
    """Read dump_stats(); the empty text has no figures. Raises UserError."""
    if not text:
        return SpeculationStats()
    try:
        return _stats().validate_json(text)
    except ValidationError as error:
        raise UserError(f"An answer's figures cannot be read: {text[:80]}") from error


def _span(report: TokenReport, round_: int) -> TokenSpan:
    return TokenSpan(report.text, report.fate, report, round_)


def _check_header(line: str) -> None:
    try:
        header = json.loads(line)
    except ValueError:
        header = None
    version = header.get("trace") if isinstance(header, dict) else None
    if not isinstance(version, int):
        raise UserError(f"This is not a trace: it starts with {line[:80]!r}.")
    if version > TRACE_VERSION:
        raise UserError("This trace was written by a newer Draftlight.", "Update Draftlight to see it.")


@functools.cache
def _events() -> TypeAdapter[Event]:
    """Made at the first use: building it takes longer than starting the program should."""
    return TypeAdapter(_TaggedEvent, config=ConfigDict(ser_json_inf_nan="strings"))


@functools.cache
def _stats() -> TypeAdapter[SpeculationStats]:
    return TypeAdapter(SpeculationStats)
