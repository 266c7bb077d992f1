"""What the terminal shows of a round: the fates in their colours, the committed text alone where there are none."""

import io
import json
import re
from dataclasses import replace

import pytest

from draftlight.cli.json_lines import write_line
from draftlight.cli.rendering import ColourRenderer, Renderer, columns, renderer_for, summary, visible
from draftlight.engine.events import (
    GenerationFinished,
    RoundVerified,
    StopReason,
    TokenDrafted,
    TokenFate,
    TokenReport,
)
from draftlight.engine.metrics import SpeculationStats
from draftlight.engine.model import Token

GREEN, RED, DIM, DIM_STRUCK, BLUE = "\x1b[32m", "\x1b[31;9m", "\x1b[2m", "\x1b[2;9m", "\x1b[94;4m"
END = "\x1b[0m"


def report(text: str, fate: TokenFate, **more: float) -> TokenReport:
    return TokenReport(id=sum(map(ord, text)), text=text, fate=fate, **more)  # type: ignore[arg-type]  # figures only


def verified(drafted: list[TokenReport], target: TokenReport | None, text_length: int) -> RoundVerified:
    return RoundVerified(
        round=0,
        position=0,
        drafted=tuple(drafted),
        target_token=target,
        text_length=text_length,
        draft_ms=1.0,
        verify_ms=2.0,
        host_ms=0.1,
    )


def finished(text: str, **figures: float) -> GenerationFinished:
    stats = replace(SpeculationStats(), **figures)  # type: ignore[arg-type]  # counts are ints
    return GenerationFinished(reason=StopReason.LENGTH, tokens=(1, 2), text=text, stats=stats)


REJECTION = verified(
    [
        report("Hello", TokenFate.ACCEPTED),
        report(" wor", TokenFate.REJECTED),
        report("\nx", TokenFate.NOT_REACHED),
    ],
    report(" you", TokenFate.CORRECTION),
    text_length=9,
)


def test_each_fate_has_its_colour() -> None:
    out = io.StringIO()
    ColourRenderer(out).show(REJECTION)
    expected = f"{GREEN}Hello{END}{RED} wor{END}{DIM_STRUCK}\u23cex{END}{BLUE} you{END}"
    assert out.getvalue() == expected


def test_pending_tokens_are_shown_dim_and_taken_back() -> None:
    out = io.StringIO()
    renderer = ColourRenderer(out)
    renderer.show(TokenDrafted(round=0, index=0, token=report("Hello", TokenFate.PENDING)))
    renderer.show(TokenDrafted(round=0, index=1, token=report("\u4f60", TokenFate.PENDING)))
    renderer.show(verified([report("Hello", TokenFate.ACCEPTED)], None, text_length=5))
    assert out.getvalue() == f"{DIM}Hello{END}{DIM}\u4f60{END}\x1b[7D\x1b[J{GREEN}Hello{END}"


def test_a_pending_token_that_does_not_fit_on_the_line_waits_for_its_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    out = io.StringIO()
    renderer = ColourRenderer(out)
    renderer.show(verified([], report("1234567", TokenFate.PLAIN), text_length=7))
    renderer.show(TokenDrafted(round=1, index=0, token=report("abc", TokenFate.PENDING)))
    renderer.show(TokenDrafted(round=1, index=1, token=report("a\nb", TokenFate.PENDING)))
    assert out.getvalue() == "1234567"


@pytest.mark.parametrize("kind", [Renderer, ColourRenderer])
def test_text_that_may_become_a_stop_string_is_held_back(kind: type[Renderer]) -> None:
    out = io.StringIO()
    renderer = kind(out)
    renderer.show(verified([], report("Yes. EN", TokenFate.PLAIN), text_length=5))
    assert out.getvalue() == "Yes. "
    renderer.show(verified([], report("D.", TokenFate.PLAIN), text_length=5))
    renderer.show(finished("Yes. "))
    assert out.getvalue() == "Yes. \n"


@pytest.mark.parametrize("kind", [Renderer, ColourRenderer])
def test_held_back_text_appears_once_it_is_clear(kind: type[Renderer]) -> None:
    out = io.StringIO()
    renderer = kind(out)
    renderer.show(verified([], report("Yes. EN", TokenFate.PLAIN), text_length=5))
    renderer.show(verified([], report("NUI", TokenFate.PLAIN), text_length=10))
    renderer.show(finished("Yes. ENNUI"))
    assert out.getvalue() == "Yes. ENNUI\n"


def test_a_pending_token_is_not_shown_before_text_that_is_held_back() -> None:
    out = io.StringIO()
    renderer = ColourRenderer(out)
    renderer.show(verified([], report("Yes. EN", TokenFate.PLAIN), text_length=5))
    renderer.show(TokenDrafted(round=1, index=0, token=report("D", TokenFate.PENDING)))
    assert out.getvalue() == "Yes. "


def test_without_colours_only_the_committed_text_is_written() -> None:
    out = io.StringIO()
    renderer = Renderer(out)
    renderer.show(TokenDrafted(round=0, index=0, token=report("Hello", TokenFate.PENDING)))
    renderer.show(REJECTION)
    renderer.show(finished("Hello you"))
    assert out.getvalue() == "Hello you\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_need_a_terminal_that_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(renderer_for(Terminal()), ColourRenderer)
    assert type(renderer_for(io.StringIO())) is Renderer
    monkeypatch.setenv("NO_COLOR", "1")
    assert type(renderer_for(Terminal())) is Renderer
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert type(renderer_for(Terminal())) is Renderer


def test_a_model_cannot_drive_the_terminal() -> None:
    out = io.StringIO()
    text = "\x1b]0;title\x07\r\x9bK"
    ColourRenderer(out).show(verified([], report(text, TokenFate.PLAIN), text_length=len(text)))
    assert re.search(r"[\x00-\x1f\x7f-\x9f]", out.getvalue()) is None
    assert visible("a\nb") == "a\nb"


def test_wide_and_combining_characters_are_counted_in_cells() -> None:
    assert columns("a\u4f60e\u0301\u200d") == 4


def test_the_summary_names_rates_and_reason() -> None:
    line = summary(finished("x", n_committed=10, n_rounds=4, n_drafted=12, n_accepted=6, verify_ms=500.0), "")
    assert "10 tokens" in line
    assert "18.0 tok/s" in line
    assert "accepted 6 of 12 drafted (50%)" in line
    assert "2.50 tokens a round" in line


def test_a_round_is_one_line_of_json_with_drafted_and_committed_tokens() -> None:
    out = io.StringIO()
    write_line(out, REJECTION)
    line = json.loads(out.getvalue())
    assert out.getvalue().count("\n") == 1
    assert line["event"] == "round"
    assert [(token["text"], token["fate"]) for token in line["drafted"]] == [
        ("Hello", "accepted"),
        (" wor", "rejected"),
        ("\nx", "not_reached"),
    ]
    assert [token["text"] for token in line["committed"]] == ["Hello", " you"]
    assert {"draft_ms", "verify_ms", "host_ms"} <= line.keys()
    assert {"id", "text", "q", "p", "fate"} <= line["drafted"][0].keys()


def test_the_last_line_carries_tokens_text_and_every_rate() -> None:
    out = io.StringIO()
    write_line(out, finished("\ud800\u00e9", n_committed=2, n_rounds=1, verify_ms=1.0), settings={"seed": 1})
    line = json.loads(out.getvalue())
    assert out.getvalue().isascii()
    assert (line["event"], line["reason"]) == ("finished", "length")
    assert (line["tokens"], line["text"]) == ([1, 2], "\ud800\u00e9")
    rates = {"acceptance_rate", "alpha", "block_efficiency", "tokens_per_second", "host_share"}
    assert rates <= line["stats"].keys()
    assert line["settings"] == {"seed": 1}


def test_nan_and_infinity_never_reach_json() -> None:
    out = io.StringIO()
    token = report("x", TokenFate.ACCEPTED, p=float("nan"), score=float("-inf"))
    write_line(out, TokenDrafted(round=0, index=0, token=TokenReport(1, "x", TokenFate.PENDING, choice=Token(2, "y"))))
    write_line(out, verified([token], None, 1))
    first, second = map(json.loads, out.getvalue().splitlines())
    assert first["token"]["choice"] == {"id": 2, "text": "y"}
    assert (second["drafted"][0]["p"], second["drafted"][0]["score"]) == (None, None)
