"""`forge --tune` over a child that plays a script: consent first, then before and after; `--reset` undoes it."""

from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from draftlight import paths
from draftlight.cli import commands
from draftlight.cli.arguments import parse
from draftlight.cli.parts import Parts
from draftlight.engine.cancel import CancelToken
from draftlight.errors import UserError
from draftlight.forge.client import Control
from draftlight.forge.reports import Report, Stage, StageBegun, Tuned, from_line
from draftlight.forge.request import ForgeRequest
from draftlight.history.store import HistoryStore
from draftlight.settings import PairSettings, Settings, load_settings, save_settings
from twins import Twins
from unit.forge.test_tuned_files import tune


@dataclass
class Terminal:
    """The command; a run ends with these figures, or in the middle where there are none."""

    capsys: pytest.CaptureFixture[str]
    after: float | None = 0.47
    requests: list[ForgeRequest] = field(default_factory=list)

    def run(self, *options: str) -> tuple[int, str, str]:
        parts = Parts(
            load=lambda _settings, _cancel: iter(()),
            open_store=lambda: HistoryStore.open(Path()),
            probe=lambda _settings, _cancel: iter(()),
            forge=self._forge,
            library=lambda: "a library",
        )
        status = commands.run(parse(["forge", *options]), parts)
        written = self.capsys.readouterr()
        return status, written.out, written.err

    def _forge(self, request: ForgeRequest, cancel: CancelToken, _control: Control) -> Generator[Report, None, None]:
        self.requests.append(request)
        yield StageBegun(Stage.CHATS, "Reading what it answered")
        if self.after is None:
            cancel.cancel()
        else:
            yield Tuned(request.out if self.after > 0.4 else None, 0.4, self.after, 50, 8)


@pytest.fixture
def terminal(twin_pair: Twins, capsys: pytest.CaptureFixture[str]) -> Terminal:
    pair = PairSettings(twin_pair.target, twin_pair.draft)
    save_settings(Settings().changed(pair=pair, learn_from_chats=True), paths.settings_file())
    return Terminal(capsys)


def test_without_consent_nothing_is_run_and_it_is_told_how_to_give_it(terminal: Terminal) -> None:
    terminal.run("--learn-from-chats", "off")
    with pytest.raises(UserError, match="once you have allowed it") as refused:
        terminal.run("--tune")
    assert refused.value.remedy.endswith("forge --learn-from-chats on")
    assert terminal.requests == []
    status, _, err = terminal.run("--learn-from-chats", "on")
    assert status == 0
    assert "nothing leaves it, and nothing is kept but the tuned draft model" in err
    assert terminal.requests == []
    assert terminal.run("--tune")[0] == 0


def test_consent_is_remembered_and_nothing_else_of_the_settings_changes(terminal: Terminal) -> None:
    file = paths.settings_file()
    before = load_settings(file).settings
    terminal.run("--learn-from-chats", "off")
    assert load_settings(file).settings == before.changed(learn_from_chats=False)


def test_the_last_pair_s_draft_model_is_tuned_and_before_and_after_are_told(
    terminal: Terminal, twin_pair: Twins
) -> None:
    status, out, err = terminal.run("--tune")
    (request,) = terminal.requests
    assert status == 0
    assert (request.target, request.tune, request.minutes) == (twin_pair.target, twin_pair.draft, 30.0)
    first, second, path, chat = out.splitlines()
    assert first == (
        "40.0 % of the target's tokens were foretold before, 47.0 % after, on the 8 newest of your 50 answers, "
        "which it has not learned from."
    )
    assert "as private as they are" in second
    assert path == str(request.out)
    assert chat.endswith(f"chat --target {twin_pair.target} --draft {request.out}")
    assert "Reading what it answered." in err


def test_what_is_no_better_is_told_as_that(terminal: Terminal) -> None:
    terminal.after = 0.39
    status, out, _ = terminal.run("--tune")
    assert status == 1
    assert out.splitlines()[1] == "That is no gain, so the draft model stays as it was and nothing was kept."


def test_a_stopped_run_is_told_as_that(terminal: Terminal) -> None:
    terminal.after = None
    status, _, err = terminal.run("--tune")
    assert status == 130
    assert err.rstrip().endswith("Stopped. The draft model is as it was.")


def test_a_program_gets_the_reports_as_they_come(terminal: Terminal) -> None:
    _, out, _ = terminal.run("--tune", "--json")
    assert [from_line(line).event for line in out.splitlines()] == ["stage", "tuned"]


def test_a_named_pair_is_tuned_instead(terminal: Terminal, twin_pair: Twins) -> None:
    terminal.run("--tune", str(twin_pair.draft), "--draft", str(twin_pair.target), "--minutes", "5")
    (request,) = terminal.requests
    assert (request.target, request.tune, request.minutes) == (twin_pair.draft, twin_pair.target, 5.0)
    with pytest.raises(UserError, match="No draft model is named"):
        terminal.run("--tune", str(twin_pair.draft))


def test_a_reset_deletes_what_was_tuned(terminal: Terminal, twin_pair: Twins) -> None:
    terminal.run("--tune")
    made = tune(terminal.requests[-1])
    assert terminal.run("--reset")[2].rstrip() == f"{made} is deleted."
    assert not made.exists()
    assert terminal.run("--reset", "--draft", str(twin_pair.draft))[2].rstrip() == (
        f"Nothing was tuned from {twin_pair.draft.name} for {twin_pair.target.name}."
    )
