"""`generate` and `chat` over a scripted pair: what they ask of it, what they write, how Ctrl-C ends them."""

import io
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from draftlight import settings
from draftlight.cli import arguments, commands
from draftlight.cli.arguments import parse
from draftlight.cli.parts import Parts
from draftlight.engine.cancel import CancelToken
from draftlight.engine.costs import PairFacts, StepCosts
from draftlight.engine.decoding import GenerationRequest, Mode
from draftlight.engine.events import (
    Event,
    GenerationFinished,
    ModelLoading,
    PromptEvaluated,
    RoundVerified,
    StopReason,
    TokenFate,
    TokenReport,
)
from draftlight.engine.metrics import SpeculationStats
from draftlight.errors import UserError
from draftlight.forge.client import forge
from draftlight.history.store import HistoryStore
from draftlight.llama.threads import ThreadState
from draftlight.settings import KvType, PairSettings

TEMPLATE = "{% for message in messages %}[{{ message['role'] }}] {{ message['content'] }}\n{% endfor %}"
WORDS = ("The", " sky", " is", " blue")


def round_of(place: int, text: str) -> RoundVerified:
    return RoundVerified(
        round=place,
        position=place,
        drafted=(),
        target_token=TokenReport(id=place, text=text, fate=TokenFate.PLAIN),
        text_length=len("".join(WORDS[: place + 1])),
        draft_ms=0.0,
        verify_ms=1.0,
        host_ms=0.0,
    )


class CharacterVocabulary:
    """A token for each character, control tokens far above."""

    control_tokens: dict[str, int] = {}  # noqa: RUF012 - the protocol's plain attribute
    add_bos = True
    bos = 7
    bos_text = ""
    eos_text = ""
    chat_template: str | None = TEMPLATE

    def encode(self, text: str) -> list[int]:
        return [ord(character) for character in text]


class ScriptedDecoder:
    """Says WORDS, one a round; `at_round` is called before each."""

    n_ctx = 512
    best_mode = Mode.FAST

    def __init__(self) -> None:
        self.requests: list[GenerationRequest] = []
        self.at_round: Callable[[int], None] = lambda _place: None
        self.facts: PairFacts | None = None

    @property
    def exact_widths(self) -> frozenset[int] | None:
        return None if self.facts is None else self.facts.exact_widths

    def mode_for(self, request: GenerationRequest) -> Mode:
        return request.mode or self.best_mode

    def generate(self, request: GenerationRequest, cancel: CancelToken) -> Iterator[Event]:
        self.requests.append(request)
        yield PromptEvaluated(n_tokens=len(request.prompt), n_evaluated=len(request.prompt), n_reused=0, seconds=0.1)
        n_done = 0
        for place, word in enumerate(WORDS):
            self.at_round(place)
            if cancel.cancelled:
                break
            yield round_of(place, word)
            n_done += 1
        reason = StopReason.LENGTH if n_done == len(WORDS) else StopReason.CANCELLED
        yield GenerationFinished(reason, tuple(range(n_done)), "".join(WORDS[:n_done]), SpeculationStats())


class ScriptedPair:
    def __init__(self, asked: PairSettings, decoder: ScriptedDecoder) -> None:
        self.settings = asked
        self.decoder = decoder
        self.vocabulary = CharacterVocabulary()
        self.notices = ("The draft model was left out.",)
        self.thread_state = ThreadState(2, 2)
        self.is_open = True

    def close(self) -> None:
        self.is_open = False


class Terminal:
    """The commands with scripted parts: what was loaded, and what was written."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.decoder = ScriptedDecoder()
        self.pairs: list[ScriptedPair] = []
        self.store_path = folder / "chats.db"
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def run(self, *line: str, text: str = "") -> tuple[int, str, str]:
        self._monkeypatch.setattr("sys.stdin", io.StringIO(text))
        parts = Parts(
            load=self._load,
            open_store=lambda: HistoryStore.open(self.store_path),
            probe=lambda _settings, _cancel: iter(()),
            forge=forge,
            library=lambda: "a library",
        )
        status = commands.run(parse(line), parts)
        written = self._capsys.readouterr()
        return status, written.out, written.err

    def _load(self, asked: PairSettings, _cancel: CancelToken) -> Iterator[Any]:
        yield ModelLoading("Reading the target")
        self.pairs.append(ScriptedPair(asked, self.decoder))
        yield self.pairs[-1]


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(tmp_path, monkeypatch, capsys)


PAIR = ("--target", "t.gguf", "--draft", "d.gguf")


def interrupt(at: int) -> Callable[[int], None]:
    def at_round(place: int) -> None:
        if place == at:
            os.kill(os.getpid(), signal.SIGINT)

    return at_round


def test_every_option_reaches_the_engine(terminal: Terminal) -> None:
    line = (
        "--k auto --temperature 0.5 --seed 5 --max-tokens 9 --mode exact --top-k 3 --top-p 0.5 --min-p 0.1 "
        "--repeat-penalty 1.1 --stop A --stop B --ctx 400 --threads 2 --kv f16 "
        "--gpu-layers 7 --draft-gpu-layers 3 --device CUDA0 --draft-device CPU"
    )
    status, _, _ = terminal.run("generate", "Hi", *PAIR, *line.split())
    (request,), (pair,) = terminal.decoder.requests, terminal.pairs
    assert status == 0
    assert (request.draft_length, request.seed, request.max_new_tokens, request.mode) == (None, 5, 9, Mode.EXACT)
    assert request.stop == ("A", "B")
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p) == (0.5, 3, 0.5, 0.1)
    assert sampling.repeat_penalty == 1.1
    assert pair.settings == PairSettings(
        target=Path("t.gguf"),
        draft=Path("d.gguf"),
        ngram=True,
        n_ctx=400,
        n_threads=2,
        n_gpu_layers=7,
        draft_n_gpu_layers=3,
        device="CUDA0",
        draft_device="CPU",
        kv_type=KvType.F16,
        draft_kv_type=KvType.F16,
        exact=True,
    )
    assert not pair.is_open


@pytest.mark.parametrize(
    ("draft", "path", "ngram"), [("none", None, False), ("ngram", None, True), ("d.gguf", Path("d.gguf"), True)]
)
def test_a_draft_is_a_file_or_ngram_or_none(terminal: Terminal, draft: str, path: Path | None, *, ngram: bool) -> None:
    terminal.run("generate", "Hi", "--target", "t.gguf", "--draft", draft)
    (pair,) = terminal.pairs
    assert (pair.settings.draft, pair.settings.ngram) == (path, ngram)


def test_a_prompt_goes_through_the_chat_template_unless_it_is_raw(terminal: Terminal) -> None:
    terminal.run("generate", "Hi", *PAIR, "--system", "Be brief")
    terminal.run("generate", "Hi", *PAIR, "--raw")
    through, raw = (request.prompt for request in terminal.decoder.requests)
    assert "[system] Be brief\n[user] Hi\n" in "".join(map(chr, through))
    assert raw == (7, ord("H"), ord("i"))


def test_the_last_line_of_json_holds_every_setting(terminal: Terminal) -> None:
    _, out, _ = terminal.run("generate", "Hi", *PAIR, "--seed", "5", "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["event"] for line in lines] == ["loading", "prompt", *["round"] * 4, "finished"]
    told = lines[-1]["settings"]
    assert (told["target"], told["draft"], told["kv_type"], told["n_ctx"]) == ("t.gguf", "d.gguf", "auto", 512)
    assert (told["seed"], told["draft_length"], told["mode"], told["max_new_tokens"]) == (5, None, "fast", 512)
    assert told["sampling"]["temperature"] == 0.8
    assert lines[-1]["notices"] == ["The draft model was left out."]


def test_a_seed_that_was_not_given_is_drawn_and_told(terminal: Terminal) -> None:
    terminal.run("generate", "Hi", *PAIR)
    _, _, err = terminal.run("generate", "Hi", *PAIR)
    first, second = (request.seed for request in terminal.decoder.requests)
    assert first != second
    assert f"seed {second}" in err
    assert "The draft model was left out." in err


def test_ctrl_c_stops_the_answer_and_keeps_what_there_is(terminal: Terminal) -> None:
    terminal.decoder.at_round = interrupt(at=2)
    status, out, _ = terminal.run("generate", "Hi", *PAIR, "--json")
    finished = json.loads(out.splitlines()[-1])
    assert status == 130
    assert (finished["reason"], finished["text"]) == ("cancelled", "The sky")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_twice_leaves_at_once(terminal: Terminal) -> None:
    def twice(_place: int) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    terminal.decoder.at_round = twice
    with pytest.raises(KeyboardInterrupt):
        terminal.run("generate", "Hi", *PAIR)
    assert not terminal.pairs[0].is_open


@pytest.mark.parametrize(("prompt", "named"), [("a\0b", "NUL"), ("caf\udce9", "UTF-8"), (" \n", "empty")])
def test_a_prompt_that_is_no_text_is_refused_before_anything_loads(terminal: Terminal, prompt: str, named: str) -> None:
    with pytest.raises(UserError) as raised:
        terminal.run("generate", prompt, *PAIR)
    assert named in raised.value.sentence
    assert terminal.pairs == []


def test_a_model_without_a_chat_template_is_named_and_continues_raw_text(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CharacterVocabulary, "chat_template", None)
    with pytest.raises(UserError) as raised:
        terminal.run("generate", "Hi", *PAIR)
    assert "t.gguf" in raised.value.sentence
    assert "--raw" in raised.value.remedy
    assert terminal.run("generate", "Hi", *PAIR, "--raw")[0] == 0


def test_a_chat_is_kept_like_the_windows(terminal: Terminal) -> None:
    status, out, err = terminal.run("chat", *PAIR, "--system", "Be brief", text="Why?\n/quit\nnever sent\n")
    assert status == 0
    assert out == "The sky is blue\n"
    assert "chats.db" in err
    with HistoryStore.open(terminal.store_path) as store:
        (conversation,) = store.conversations()
        assert conversation.system_prompt == "Be brief"
        messages = store.messages(conversation.id)
    assert [(message.role, message.text) for message in messages] == [
        ("user", "Why?"),
        ("assistant", "The sky is blue"),
    ]
    assert not terminal.pairs[0].is_open


def test_chat_commands_change_the_next_answer(terminal: Terminal) -> None:
    terminal.run("chat", *PAIR, text="/k 7\n/temp 0\n/seed 11\nWhy?\n/k auto\n/seed\nWhy?\n")
    first, second = terminal.decoder.requests
    assert (first.draft_length, first.sampling.temperature, first.seed) == (7, 0.0, 11)
    assert second.draft_length is None
    assert second.seed != 11


def test_an_old_conversation_is_listed_shown_and_gone_on_with(terminal: Terminal) -> None:
    terminal.run("chat", *PAIR, text="Why is it blue?\n")
    _, out, _ = terminal.run("chat", *PAIR, text="/list\n/open 1\nAnd at night?\n/new\n/list\n")
    assert "    1  Why is it blue?" in out
    assert "> Why is it blue?\nThe sky is blue\n" in out
    with HistoryStore.open(terminal.store_path) as store:
        assert len(store.conversations()) == 1
        assert len(store.messages(1)) == 4


def test_a_mistake_in_a_chat_is_a_sentence_and_the_chat_goes_on(terminal: Terminal) -> None:
    lines = "/sing\n/k many\n/open 99\n/open x\n/temp -1\nWhy?\n"
    status, out, err = terminal.run("chat", *PAIR, text=lines)
    assert status == 0
    for named in ("/sing", "'many'", "conversation no longer exists", "'x'", "'-1'"):
        assert named in err
    assert out == "The sky is blue\n"


def test_ctrl_c_in_a_chat_stops_the_answer_alone(terminal: Terminal) -> None:
    terminal.decoder.at_round = interrupt(at=1)
    status, out, err = terminal.run("chat", *PAIR, text="Why?\n/help\n")
    assert status == 0
    assert out.startswith("The\n/help")
    assert "stopped" in err
    with HistoryStore.open(terminal.store_path) as store:
        assert store.messages(1)[-1].status == "stopped"


def test_models_says_that_a_named_folder_is_none(terminal: Terminal, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a folder"):
        terminal.run("models", str(tmp_path / "missing"))


def test_models_names_what_is_wrong_with_a_file(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("draftlight.paths.models_dirs", lambda: ())
    assert terminal.run("models")[1] == "No model files were found.\n"
    (tmp_path / "empty.gguf").touch()
    _, out, _ = terminal.run("models", str(tmp_path))
    assert out.startswith(f"{tmp_path / 'empty.gguf'}\n    empty.gguf ")
    _, out, _ = terminal.run("models", str(tmp_path), "--json")
    (listed,) = json.loads(out)["models"]
    assert (listed["kind"], listed["size"]) == ("unreadable", 0)
    assert "empty.gguf" in listed["problem"]


def test_without_the_starter_target_it_is_said_what_to_do(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("draftlight.paths.starter_target", lambda: tmp_path / "starter.gguf")
    with pytest.raises(UserError) as raised:
        terminal.run("generate", "Hi")
    assert str(tmp_path / "starter.gguf") in raised.value.sentence
    assert "--target" in raised.value.remedy


def test_the_longest_draft_is_the_settings_one() -> None:
    assert arguments.MAX_DRAFT_LENGTH == settings.MAX_DRAFT_LENGTH


def test_exact_mode_says_once_that_its_widths_were_not_measured(terminal: Terminal) -> None:
    _, out, err = terminal.run("generate", "Hi", *PAIR, "--mode", "exact", "--json")
    assert err.count("not measured yet") == 1
    assert json.loads(out.splitlines()[-1])["settings"]["exact_widths"] is None
    _, _, err = terminal.run("chat", *PAIR, "--mode", "exact", text="Why?\nWhy?\n")
    assert err.count("not measured yet") == 1


def test_exact_mode_with_measured_widths_names_them(terminal: Terminal) -> None:
    terminal.decoder.facts = PairFacts(StepCosts((1,), (1,), ((0.01,),)), exact_widths=frozenset({4, 1, 2}))
    _, out, err = terminal.run("generate", "Hi", *PAIR, "--mode", "exact", "--json")
    assert "measured" not in err
    assert json.loads(out.splitlines()[-1])["settings"]["exact_widths"] == [1, 2, 4]


@pytest.mark.parametrize("line", [("--draft", "none", "--mode", "exact"), ("--draft", "ngram")])
def test_where_nothing_is_promised_or_drafted_no_widths_are_missed(terminal: Terminal, line: tuple[str, ...]) -> None:
    _, _, err = terminal.run("generate", "Hi", "--target", "t.gguf", *line)
    assert "measured" not in err


@pytest.mark.parametrize("trace", ['{"trace": 999}', "no trace at all"])
def test_an_answer_whose_trace_cannot_be_read_is_shown_as_text_and_the_rest_follows(
    terminal: Terminal, trace: str
) -> None:
    terminal.run("chat", *PAIR, text="Why?\nAnd then?\n")
    with HistoryStore.open(terminal.store_path) as store:
        first = store.messages(1)[1]
        store._connection.execute("UPDATE rounds SET line = ? WHERE message_id = ? AND seq = 0", (trace, first.id))
    _, out, err = terminal.run("chat", *PAIR, text="/open 1\n")
    assert out == "> Why?\nThe sky is blue\n> And then?\nThe sky is blue\n"
    assert err.count("without its colours") == 1


def test_a_line_that_is_no_text_is_refused_and_the_chat_goes_on(terminal: Terminal) -> None:
    status, out, err = terminal.run("chat", *PAIR, text="caf\udce9\nWhy?\n")
    assert (status, out) == (0, "The sky is blue\n")
    assert "no text in the terminal's encoding" in err


def test_a_failed_save_of_a_failed_answer_is_told_in_the_chat(terminal: Terminal) -> None:
    def fail(_place: int) -> None:
        error = UserError("The model broke.", "Load it again.")
        error.add_note("The answer was not saved, too.")
        raise error

    terminal.decoder.at_round = fail
    _, _, err = terminal.run("chat", *PAIR, text="Why?\n")
    assert "The model broke. Load it again.\nThe answer was not saved, too.\n" in err
