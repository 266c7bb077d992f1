"""`bench` over a toy pair: what is written where, which mistakes are told, how Ctrl-C ends it."""

import io
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from draftlight.cli import commands
from draftlight.cli.arguments import parse
from draftlight.cli.parts import Parts
from draftlight.cli.rendering import ProgressBar
from draftlight.engine.cancel import CancelToken
from draftlight.engine.context import Context
from draftlight.engine.decoding import SpeculativeDecoder
from draftlight.engine.drafting.base import Drafter
from draftlight.engine.drafting.model import ModelDrafter
from draftlight.engine.drafting.suffix import SuffixDrafter
from draftlight.engine.events import ModelLoading
from draftlight.errors import UserError
from draftlight.forge.client import forge
from draftlight.history.store import HistoryStore
from draftlight.settings import PairSettings
from toys import LetterTokenizer, TableModel

END = 15
KINDS = ("chat", "code", "prose")


class SmallVocabulary:
    """Every character is one of sixteen tokens."""

    control_tokens: dict[str, int] = {}  # noqa: RUF012 - the protocol's plain attribute
    add_bos = False
    bos = None
    bos_text = ""
    eos_text = ""

    def __init__(self, template: str | None) -> None:
        self.chat_template = template

    def encode(self, text: str) -> list[int]:
        return [ord(character) % 15 for character in text]


class ToyPair:
    def __init__(self, asked: PairSettings, template: str | None) -> None:
        tokenizer = LetterTokenizer(end=END)
        drafters: list[Drafter] = []
        if asked.draft is not None:
            drafters.append(ModelDrafter(Context(TableModel(noise=0.5)), n_vocab=16))
        if asked.ngram:
            drafters.append(SuffixDrafter())
        self.settings = asked
        self.decoder = SpeculativeDecoder(Context(TableModel()), drafters, tokenizer, None)
        self.vocabulary = SmallVocabulary(template)
        self.notices = ("The cache is a 16-bit one.",)

    def close(self) -> None:
        pass


class Terminal:
    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.asked: list[PairSettings] = []
        self.template: str | None = "{% for message in messages %}{{ message['content'] }};{% endfor %}"
        self._capsys = capsys
        self.prompts: Path | None = folder / "prompts.jsonl"
        lines = [
            json.dumps({"question_id": n, "category": KINDS[n % 3], "turns": [f"Question number {n}?"]})
            for n in range(6)
        ]
        self.prompts.write_text("\n".join(lines), encoding="utf-8")

    def run(self, *line: str) -> tuple[int, str, str]:
        parts = Parts(
            load=self._load,
            open_store=lambda: HistoryStore.open(self.folder / "chats.db"),
            probe=lambda _settings, _cancel: iter(()),
            forge=forge,
            library=lambda: "toy library 1.0",
        )
        prompts = () if self.prompts is None else ("--prompts", str(self.prompts))
        pair = ("--target", "t.gguf", "--draft", "d.gguf", *prompts, "--max-tokens", "12")
        status = commands.run(parse(("bench", *pair, *line)), parts)
        written = self._capsys.readouterr()
        return status, written.out, written.err

    def json(self, *line: str) -> dict[str, Any]:
        _, output, _ = self.run("--json", *line)
        told: dict[str, Any] = json.loads(output.splitlines()[-1])
        return told

    def _load(self, asked: PairSettings, _cancel: CancelToken) -> Iterator[Any]:
        yield ModelLoading("Reading the target")
        self.asked.append(asked)
        yield ToyPair(asked, self.template)


@pytest.fixture
def terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(tmp_path, capsys)


def test_with_json_the_last_line_has_every_arm_and_every_setting(terminal: Terminal) -> None:
    told = terminal.json("--arms", "plain,auto,k3,ngram2", "--limit", "3", "--repeats", "2", "--ctx", "900")
    assert list(told["arms"]) == ["plain", "auto", "k3", "ngram2"]
    assert all(arm["identical"] == 1.0 and arm["n_answers"] == 6 for arm in told["arms"].values())
    assert set(told["arms"]["auto"]["by_kind"]) == set(KINDS)
    settings = told["settings"]
    assert settings["pair"]["target"] == "t.gguf"
    assert (settings["seed"], settings["max_tokens"], settings["repeats"], settings["n_prompts"]) == (1, 12, 2, 3)
    assert settings["library"] == "toy library 1.0"
    assert settings["machine"]["cpu"]
    assert "logit_bias" not in settings["sampling"]
    assert told["notices"] == ["The cache is a 16-bit one."]


def test_without_json_it_is_a_report_for_reading(terminal: Terminal) -> None:
    status, output, errors = terminal.run("--limit", "3")
    assert status == 0
    assert output.startswith("# Benchmark of t.gguf\n")
    assert "| auto |" in output
    assert "The cache is a 16-bit one." in errors
    assert "6 of 6" in errors


def test_the_text_itself_is_loaded_to_draft_from_only_where_an_arm_wants_it(terminal: Terminal) -> None:
    for arms, ngram in (("plain,k3", False), ("auto", True), ("ngram", True), ("plain", False)):
        terminal.run("--limit", "1", "--arms", arms)
        assert terminal.asked[-1].ngram is ngram


def test_answers_have_a_fixed_length_where_end_tokens_are_ignored(terminal: Terminal) -> None:
    line = ("--temperature", "1.5", "--max-tokens", "60", "--arms", "plain")
    assert terminal.json(*line, "--ignore-eos")["arms"]["plain"]["n_tokens"] == 6 * 60
    assert terminal.json(*line)["arms"]["plain"]["n_tokens"] < 6 * 60


def test_earlier_turns_fill_the_context(terminal: Terminal) -> None:
    told = terminal.json("--context", "700", "--limit", "2")["settings"]
    assert 690 <= told["prompt_tokens"]["least"] <= told["prompt_tokens"]["most"] <= 710


def test_a_model_without_a_chat_template_is_asked_the_bare_text(terminal: Terminal) -> None:
    terminal.template = None
    assert terminal.json("--limit", "1")["settings"]["prompt_tokens"]["least"] == len("Question number 0?")


def test_the_report_s_folder_is_written(terminal: Terminal) -> None:
    folder = terminal.folder / "report"
    _, _, errors = terminal.run("--limit", "3", "--report", str(folder))
    assert sorted(path.name for path in folder.iterdir()) == ["report.html", "report.json", "report.md"]
    assert str(folder / "report.html") in errors


def test_our_own_suite_is_asked_where_no_prompts_are_named(terminal: Terminal) -> None:
    assert terminal.json("--limit", "1")["settings"]["prompts"] == str(terminal.prompts)
    terminal.prompts = None
    told = terminal.json("--limit", "8", "--arms", "plain", "--max-tokens", "2")
    assert told["settings"]["prompts"] == "our suite"
    assert len(told["kinds"]) == 8


def test_a_missing_file_of_prompts_is_told(terminal: Terminal) -> None:
    terminal.prompts = Path("none.jsonl")
    with pytest.raises(UserError, match=r"none\.jsonl"):
        terminal.run()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--arms plain,k99", "no arm 'k99'"),
        ("--peer nowhere", "not the address"),
        ("--peer x=http://127.0.0.1:9", "127.0.0.1:9"),
        ("--draft none --arms k3", "none is loaded"),
        ("--max-tokens 5000", "does not fit"),
        ("--context 5000", "does not fit"),
        ("--mode quick", "invalid choice"),
        ("--temperature 9", "out of range"),
        ("--max-tokens 1", "out of range"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(terminal: Terminal, line: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        terminal.run("--limit", "1", *line.split())


def test_ctrl_c_ends_it_with_what_was_measured(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    show = ProgressBar.show

    def interrupting(bar: ProgressBar, n_done: int, n_total: int, now: str) -> None:
        show(bar, n_done, n_total, now)
        if n_done == 5:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(ProgressBar, "show", interrupting)
    folder = terminal.folder / "report"
    status, output, _ = terminal.run("--json", "--report", str(folder))
    told = json.loads(output)
    assert (status, told["interrupted"], told["n_prompts"]) == (130, True, 2)
    assert (folder / "report.json").is_file()


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_a_bar_on_a_terminal_that_is_taken_away_at_the_end() -> None:
    screen, now = Screen(), 0.0
    bar = ProgressBar(screen, lambda: now)
    now = 30.0
    bar.show(5, 20, "prose 7, auto")
    assert "[######" in screen.getvalue()
    assert "5 of 20, about 1:30 left  prose 7, auto" in screen.getvalue()
    bar.clear()
    assert screen.getvalue().endswith("\r\x1b[K")


def test_progress_elsewhere_is_a_line_now_and_then() -> None:
    log, now = io.StringIO(), 0.0
    bar = ProgressBar(log, lambda: now)
    for n in range(101):
        now = n * 0.5
        bar.show(n, 100, "")
    bar.clear()
    assert [line.split(",")[0] for line in log.getvalue().splitlines()] == [
        "0 of 100",
        "40 of 100",
        "80 of 100",
        "100 of 100",
    ]
