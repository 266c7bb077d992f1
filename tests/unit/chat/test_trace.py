"""The rules of the fold: only committed text counts, and a trace read from disk is the trace that was seen."""

import json
import math
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftlight.chat.trace import (
    TokenSpan,
    Trace,
    TraceChange,
    dump_event,
    dump_header,
    dump_stats,
    load_event,
    load_events,
    load_stats,
)
from draftlight.engine.events import (
    COMMITTED_FATES,
    TRACE_VERSION,
    Alternative,
    DraftSource,
    Event,
    GenerationFinished,
    PromptEvaluated,
    Reasoning,
    RoundVerified,
    StopReason,
    TokenDrafted,
    TokenFate,
    TokenReport,
)
from draftlight.engine.ledger import StatsLedger
from draftlight.engine.metrics import SpeculationStats
from draftlight.engine.model import Token
from draftlight.errors import UserError

TEXTS = st.text(max_size=4)  # no surrogates: text comes from decoded bytes
PROBABILITIES = st.none() | st.floats(0, 1)
SCORES = st.none() | st.floats(allow_nan=False)
ALTERNATIVES = st.lists(st.builds(Alternative, st.integers(0, 99), TEXTS, st.floats(0, 1)), max_size=2).map(tuple)
REPORTS = st.builds(
    TokenReport,
    id=st.integers(0, 10**6),
    text=TEXTS,
    fate=st.sampled_from(TokenFate),
    source=st.none() | st.sampled_from(DraftSource),
    p=PROBABILITIES,
    q=PROBABILITIES,
    p_rank=st.none() | st.integers(0, 10),
    score=SCORES,
    choice=st.none() | st.builds(Token, st.integers(0, 99), TEXTS),
    choice_score=SCORES,
    margin=SCORES,
    target_top=ALTERNATIVES,
    draft_top=ALTERNATIVES,
    draft_ms=st.none() | st.floats(0, 1e4),
    matched=st.integers(0, 99),
)
TIMES = st.floats(0, 1e4)
STATS = st.builds(
    SpeculationStats,
    n_rounds=st.integers(0, 10**6),
    accepted_at=st.lists(st.integers(0, 9)).map(tuple),
    draft_ms=TIMES,
    saved_ms=st.floats(-1e4, 1e4),
    n_audits=st.integers(0, 9),
    n_audit_failures=st.integers(0, 9),
)
CHANCES = st.lists(st.floats(0, 1), max_size=3).map(tuple)
REASONINGS = st.builds(Reasoning, CHANCES, st.floats(0, 20), st.floats(0, 20), st.floats(0, 20))
EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(PromptEvaluated, st.integers(0), st.integers(0), st.integers(0), TIMES),
    st.builds(TokenDrafted, st.integers(0), st.integers(0), REPORTS),
    st.builds(
        RoundVerified,
        round=st.integers(0),
        position=st.integers(0),
        drafted=st.lists(REPORTS, max_size=3).map(tuple),
        target_token=st.none() | REPORTS,
        text_length=st.integers(0),
        draft_ms=TIMES,
        verify_ms=TIMES,
        host_ms=TIMES,
        no_draft_reason=TEXTS,
        n_submitted=st.integers(0, 3),
        reasoning=st.none() | REASONINGS,
        saved_ms=st.floats(-1e4, 1e4),
        audit=st.none() | st.booleans(),
    ),
    st.builds(GenerationFinished, st.sampled_from(StopReason), st.lists(st.integers(0)).map(tuple), TEXTS, STATS),
)


def token(text: str, fate: TokenFate) -> TokenReport:
    return TokenReport(id=len(text), text=text, fate=fate)


@st.composite
def generations(draw: st.DrawFn) -> list[Event]:
    """A possible sequence of events, with drafts, rejections, held-back text, a stop string and a cancelled round."""
    ledger = StatsLedger(n_prompt=7)
    ledger.prompt_evaluated(2, 500.0)
    events: list[Event] = [PromptEvaluated(7, 3, 2, 0.25), PromptEvaluated(7, 7, 2, 0.5)]
    text, shown = "", 0
    n_rounds = draw(st.integers(0, 4))
    for number in range(n_rounds):
        texts = draw(st.lists(TEXTS, max_size=4))
        n_accepted = draw(st.integers(0, len(texts)))
        judged = [TokenFate.ACCEPTED] * n_accepted + [TokenFate.REJECTED] + [TokenFate.NOT_REACHED] * len(texts)
        drafted = tuple(token(piece, fate) for piece, fate in zip(texts, judged, strict=False))
        events += [
            TokenDrafted(number, index, replace(report, fate=TokenFate.PENDING)) for index, report in enumerate(drafted)
        ]
        own = TokenFate.CORRECTION if n_accepted < len(texts) else TokenFate.BONUS if texts else TokenFate.PLAIN
        last = draw(st.none() | TEXTS) if number == n_rounds - 1 and n_accepted else draw(TEXTS)
        target = None if last is None else token(last, own)
        text += "".join(texts[:n_accepted]) + (last or "")
        shown = draw(st.integers(shown, len(text)))
        done = RoundVerified(number, 0, drafted, target, shown, 1.0, 2.0, 0.5)
        ledger.add(done)
        events.append(done)
    if draw(st.booleans()):
        events.append(TokenDrafted(n_rounds, 0, token("pending", TokenFate.PENDING)))
    end = draw(st.integers(shown, len(text)))  # a stop string cuts the end off
    return [*events, GenerationFinished(StopReason.CANCELLED, (), text[:end], ledger.stats())]


@given(generations())
def test_text_is_what_was_committed_and_may_be_shown(events: list[Event]) -> None:
    trace, committed, allowed = Trace(), "", 0
    for event in events:
        trace.apply(event)
        match event:
            case RoundVerified():
                committed += "".join(report.text for report in event.committed)
                allowed = event.text_length
            case GenerationFinished():
                allowed = len(event.text)
                assert trace.text == event.text
        assert trace.text == committed[:allowed]
        spans = [span for span in trace.spans if span.fate in COMMITTED_FATES]
        assert "".join(span.text for span in spans) == trace.text, "the screen shows the same"


@given(generations())
def test_a_view_that_replaces_only_what_changed_shows_the_same_as_a_new_one(events: list[Event]) -> None:
    trace = Trace()
    view: list[TokenSpan] = []
    for event in events:
        before = list(trace.spans)
        change = trace.apply(event)
        assert change.n_spans == len(trace.spans)
        assert list(trace.spans[: change.first]) == before[: change.first]
        view[change.first :] = trace.spans[change.first :]
        assert view == list(trace.spans)


@given(generations())
def test_a_trace_from_disk_is_the_trace_that_was_seen(events: list[Event]) -> None:
    seen = Trace()
    for event in events:
        seen.apply(event)
    kept = [event for event in events if not isinstance(event, TokenDrafted)]
    read = Trace.replay([dump_header(), *map(dump_event, kept)])
    assert list(read.spans) == list(seen.spans)
    assert list(read.rounds) == list(seen.rounds)
    assert (read.text, read.stats, read.prompt, read.finished) == (seen.text, seen.stats, seen.prompt, seen.finished)


@given(generations())
def test_the_running_figures_end_as_the_engines(events: list[Event]) -> None:
    trace = Trace()
    for event in events[:-1]:
        trace.apply(event)
    running = trace.stats
    trace.apply(events[-1])
    assert running == trace.stats


@given(EVENTS)
@settings(max_examples=300)
def test_an_event_is_the_same_after_a_line_of_json(event: Event) -> None:
    line = dump_event(event)
    assert load_event(line) == event
    assert "\n" not in line
    assert json.loads(line)["event"] == event.event


def test_a_trace_from_before_a_figure_was_kept_still_loads() -> None:
    header, line = (
        '{"trace": 1}',
        (
            '{"event":"round","round":0,"position":0,"drafted":[{"id":1,"text":"a","fate":"accepted","source":"ngram"}],'
            '"target_token":{"id":2,"text":"b","fate":"bonus"},"text_length":2,"draft_ms":1.0,"verify_ms":2.0,"host_ms":0.1}'
        ),
    )
    trace = Trace.replay([header, line])
    assert trace.text == "ab"
    (verified,) = trace.rounds
    assert (verified.reasoning, verified.audit, verified.saved_ms, verified.drafted[0].matched) == (None, None, 0.0, 0)
    assert load_stats('{"n_rounds":1,"n_committed":2}').n_audits == 0


@given(STATS)
def test_figures_are_the_same_after_the_database(stats: SpeculationStats) -> None:
    assert load_stats(dump_stats(stats)) == stats
    assert load_stats("") == SpeculationStats()


def test_reading_order_is_drafted_then_the_targets_own_token() -> None:
    accepted, rejected = token("a", TokenFate.ACCEPTED), token("r", TokenFate.REJECTED)
    missed, own = token("n", TokenFate.NOT_REACHED), token("c", TokenFate.CORRECTION)
    trace = Trace()
    for index, report in enumerate((accepted, rejected, missed)):
        change = trace.apply(TokenDrafted(4, index, replace(report, fate=TokenFate.PENDING)))
        assert change == TraceChange(index, index + 1)
    assert trace.text == ""
    assert trace.apply(RoundVerified(4, 0, (accepted, rejected, missed), own, 2, 1, 1, 0)) == TraceChange(0, 4)
    assert [(span.text, span.fate) for span in trace.spans] == [
        ("a", TokenFate.ACCEPTED),
        ("r", TokenFate.REJECTED),
        ("n", TokenFate.NOT_REACHED),
        ("c", TokenFate.CORRECTION),
    ]
    assert {span.round for span in trace.spans} == {4}
    assert trace.text == "ac"


def test_held_back_text_appears_when_it_turns_out_to_be_no_stop_string() -> None:
    trace = Trace()
    trace.apply(RoundVerified(0, 0, (), token("a <", TokenFate.PLAIN), 2, 0, 1, 0))
    trace.apply(RoundVerified(1, 1, (), token("/s", TokenFate.PLAIN), 2, 0, 1, 0))
    assert [span.text for span in trace.spans] == ["a ", ""]
    change = trace.apply(RoundVerified(2, 2, (), token("x", TokenFate.PLAIN), 6, 0, 1, 0))
    assert change == TraceChange(0, 3)
    assert [span.text for span in trace.spans] == ["a <", "/s", "x"]
    assert trace.apply(RoundVerified(3, 3, (), token("y", TokenFate.PLAIN), 7, 0, 1, 0)) == TraceChange(3, 4)


def test_a_prompts_progress_changes_no_span() -> None:
    trace = Trace()
    trace.apply(RoundVerified(0, 0, (), token("a", TokenFate.PLAIN), 1, 0, 1, 0))
    assert trace.apply(PromptEvaluated(4, 2, 0, 0.1)) == TraceChange(1, 1)


def test_infinite_scores_stay_json_that_every_reader_accepts() -> None:
    report = TokenReport(1, "a", TokenFate.REJECTED, score=-math.inf)
    line = dump_event(TokenDrafted(0, 0, report))
    json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert load_event(line) == TokenDrafted(0, 0, report)


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (['{"trace": 2}'], "newer Draftlight"),
        (['{"event":"prompt"}'], "not a trace"),
        (["garbage"], "not a trace"),
        (["[1]"], "not a trace"),
        ([dump_header(), "garbage"], "cannot be read"),
        ([dump_header(), '{"event":"unknown"}'], "cannot be read"),
        ([dump_header(), '{"event":"prompt","n_tokens":"many"}'], "cannot be read"),
    ],
)
def test_a_trace_that_cannot_be_read_is_a_sentence(lines: list[str], sentence: str) -> None:
    assert TRACE_VERSION == 1
    with pytest.raises(UserError, match=sentence):
        Trace.replay(lines)


def test_figures_that_cannot_be_read_are_a_sentence() -> None:
    with pytest.raises(UserError, match="cannot be read"):
        load_stats("{")


def test_no_lines_and_empty_lines_are_no_events() -> None:
    assert list(load_events([])) == []
    assert list(load_events([dump_header(), "", " \n"])) == []


def test_a_round_is_written_in_far_less_time_than_it_takes() -> None:
    top = tuple(Alternative(n, " word", 0.1234567 / (n + 1)) for n in range(5))
    report = TokenReport(7, " word", TokenFate.ACCEPTED, DraftSource.MODEL, 0.5, 0.4, 0, 1, -1.5, Token(7, " word"))
    report = replace(
        report, choice_score=0.1, margin=0.2, draft_margin=0.3, target_top=top, draft_top=top, draft_ms=1.0
    )
    event = RoundVerified(3, 9, (report, report, report), report, 90, 1.0, 2.0, 0.1)
    dump_event(event)
    durations = []
    for _ in range(50):
        started = time.perf_counter()
        dump_event(event)
        durations.append(time.perf_counter() - started)
    assert min(durations) < 100e-6


def test_importing_the_fold_builds_no_validator() -> None:
    code = "import draftlight.chat.trace as t; assert t._events.cache_info().currsize == 0"
    subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603 - our own code, our own interpreter
