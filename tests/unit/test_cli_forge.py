"""`forge` over a child that plays a script: what it says beforehand, on the way and at the end, and how it stops."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import scripted_forge
from draftlight import paths
from draftlight.cli import commands
from draftlight.cli.arguments import parse
from draftlight.cli.parts import Parts
from draftlight.engine.cancel import CancelToken
from draftlight.errors import UserError
from draftlight.forge import client
from draftlight.forge.client import Control, ForgeFailed
from draftlight.forge.reports import Forged, Report, Trained, from_line
from draftlight.forge.request import ForgeRequest, request_for, unfinished
from draftlight.history.store import HistoryStore
from twins import Twins


class Keyboard(io.StringIO):
    """A terminal where somebody types."""

    def isatty(self) -> bool:
        return True


@dataclass
class Terminal:
    """The command over a scripted child: what it was asked for."""

    target: Path
    capsys: pytest.CaptureFixture[str]
    behaviour: str = "forge"
    interrupted: bool = False  # by Ctrl-C, as soon as it trains
    requests: list[ForgeRequest] = field(default_factory=list)

    def run(self, *options: str) -> tuple[int, str, str]:
        parts = Parts(
            load=lambda _settings, _cancel: iter(()),
            open_store=lambda: HistoryStore.open(Path()),
            probe=lambda _settings, _cancel: iter(()),
            forge=self._forge,
            library=lambda: "a library",
        )
        status = commands.run(parse(["forge", str(self.target), *options]), parts)
        written = self.capsys.readouterr()
        return status, written.out, written.err

    def _forge(self, request: ForgeRequest, cancel: CancelToken, control: Control) -> Generator[Report, None, None]:
        self.requests.append(request)
        for report in client.forge(request, cancel, control, scripted_forge.command(self.behaviour)):
            if self.interrupted and isinstance(report, Trained):
                os.kill(os.getpid(), signal.SIGINT)
            yield report


@pytest.fixture
def terminal(twin_pair: Twins, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(twin_pair.target, capsys)


def test_the_outlook_comes_first_and_the_card_last(terminal: Terminal) -> None:
    status, out, err = terminal.run()
    (request,) = terminal.requests
    lines = out.splitlines()
    assert status == 0
    assert lines[0].startswith(
        "Here verifying 1, 2, 3 and 4 drafted tokens costs 1.10, 1.20, 1.30 and 1.60 plain steps"
    )
    assert "every drafted token were accepted, answers would come at 2.60 times the speed (K = 4)" in lines[1]
    assert "expect about 1.4 times the speed" in lines[3]
    assert lines[-3] == (
        "It foretells 58 % of the target's tokens on held-out chats (55 % of drafts accepted at K = 1), "
        "costs 12 % of a target step, expected speed-up 1.31x at K = 3, measured 1.27x (1.20 to 1.34)."
    )
    assert lines[-2] == str(request.out)
    assert lines[-1].endswith(f"chat --target {request.target} --draft {request.out}")
    assert "The target writes chats." in err
    assert "100 of 300, about 1:15 left  loss 4.00" in err
    assert "After 300 tokens, on held-out chats: 50 % of the target's tokens are foretold, 1.90 tokens a verify" in err


@pytest.mark.parametrize("behaviour", ["asked", "never"])
def test_what_can_only_slow_answers_down_is_made_for_those_who_insist(terminal: Terminal, behaviour: str) -> None:
    terminal.behaviour = behaviour
    status, out, err = terminal.run("--size", "narrow")
    (request,) = terminal.requests
    assert status == 1
    assert "slower than plain decoding, and only for teaching" in out
    assert err.rstrip().endswith(f"forge {terminal.target} --size narrow --anyway")
    assert not request.folder.exists()
    assert not request.out.exists()
    terminal.behaviour = "in_vain"
    status, out, _ = terminal.run("--anyway")
    assert status == 0
    assert request.out.is_file()


@pytest.mark.parametrize(("typed", "status"), [("y\n", 0), ("n\n", 1), ("\n", 1), ("", 1)])
def test_somebody_at_a_terminal_is_asked(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, typed: str, status: int
) -> None:
    terminal.behaviour = "asked"
    screen = Keyboard()
    monkeypatch.setattr("sys.stdin", Keyboard(typed))
    monkeypatch.setattr("sys.stderr", screen)
    assert terminal.run()[0] == status
    assert "Make it anyway? [y/N]" in screen.getvalue()
    assert terminal.requests[0].out.exists() == (status == 0)


def test_no_draft_model_is_made_for_an_outlook_alone(terminal: Terminal) -> None:
    terminal.behaviour = "in_vain"
    status, out, _ = terminal.run("--outlook")
    assert status == 0
    assert "only for teaching" in out
    assert not terminal.requests[0].out.exists()


def test_a_program_gets_the_reports_as_they_come(terminal: Terminal) -> None:
    status, out, err = terminal.run("--json")
    reports = [from_line(line) for line in out.splitlines()]
    assert status == 0
    assert reports[-1] == Forged(terminal.requests[0].out, scripted_forge.CARD)
    assert [report.event for report in reports[:4]] == ["stage", "outlook", "stage", "chats"]
    assert err == ""


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_ctrl_c_saves_and_says_how_to_go_on(terminal: Terminal, options: tuple[str, ...]) -> None:
    terminal.behaviour, terminal.interrupted = "listen", True
    status, _, err = terminal.run("--minutes", "5", *options)
    (request,) = terminal.requests
    assert status == 130
    assert err.rstrip().endswith(f"forge {terminal.target} --minutes 5 --resume")
    assert (request.folder / "saved").read_text() == "stop"


def test_an_unfinished_run_is_gone_on_with_or_begun_anew_as_was_asked(terminal: Terminal) -> None:
    terminal.behaviour = "early"
    begun = request_for(terminal.target).folder
    begun.mkdir(parents=True)
    (begun / "plan.json").write_text("{}")
    (begun / "chats").touch()
    with pytest.raises(UserError, match="was begun") as refused:
        terminal.run()
    assert f"forge {terminal.target} --resume" in refused.value.remedy
    assert f"forge {terminal.target} --start-over" in refused.value.remedy
    assert terminal.requests == []
    terminal.behaviour = "forge"
    assert terminal.run("--resume")[0] == 0
    assert (begun / "chats").exists()
    (begun / "done").unlink()
    assert terminal.run("--start-over")[0] == 0
    assert not (begun / "chats").exists()


def test_a_run_that_goes_on_with_other_wishes_says_that_it_keeps_to_its_own(terminal: Terminal) -> None:
    terminal.behaviour = "fail"
    with pytest.raises(ForgeFailed):
        terminal.run("--minutes", "5")
    terminal.behaviour = "forge"
    status, _, err = terminal.run("--minutes", "90", "--size", "pruned", "--resume")
    assert status == 0
    assert "The run goes on as it was begun: 5 minutes, shape auto." in err


def test_a_run_that_is_to_go_on_but_never_began_begins(terminal: Terminal) -> None:
    status, _, err = terminal.run("--resume")
    assert status == 0
    assert "There is no unfinished run" in err


def test_a_failure_says_how_to_go_on_from_there(terminal: Terminal) -> None:
    terminal.behaviour = "fail"
    with pytest.raises(ForgeFailed, match="The disk is full") as failed:
        terminal.run()
    assert failed.value.notes[0].endswith(f"forge {terminal.target} --resume")
    assert unfinished(terminal.requests[0])


def test_every_option_reaches_the_run(terminal: Terminal, tmp_path: Path) -> None:
    out, weights = tmp_path / "d.gguf", tmp_path / "weights"
    terminal.run("--minutes", "5", "--size", "pruned", "--out", str(out), "--weights", str(weights), "--outlook")
    (request,) = terminal.requests
    assert (request.minutes, request.size, request.out, request.weights) == (5.0, "pruned", out, weights)
    assert request.only_outlook


def test_the_usual_place_is_among_the_person_s_models_not_in_the_checkout(twin_pair: Twins) -> None:
    out = request_for(twin_pair.target).out
    assert out.parent == paths.models_dirs()[1] == paths.data_dir() / "models"


def test_a_missing_target_is_a_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "draftlight", "forge", str(tmp_path / "none.gguf"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603 - ours
    assert done.returncode == 2
    assert "none.gguf cannot be read" in json.loads(done.stdout)["sentence"]


def test_the_command_brings_no_torch() -> None:
    program = "import sys, draftlight.cli.forge\nprint(sorted({'torch', 'transformers', 'gguf'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)  # noqa: S603 - ours
    assert done.stdout.strip() == "[]"
