"""A draft model tuned on real chats of the toy target, in the run's own process: better on newer answers, or gone."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from draftlight import paths
from draftlight.chat.service import ChatService, GenerationOptions
from draftlight.engine.cancel import CancelToken
from draftlight.engine.sampling import SamplingParams
from draftlight.errors import UserError
from draftlight.forge.client import Control, forge
from draftlight.forge.reports import AcceptanceMeasured, Report, Trained, Tuned
from draftlight.forge.request import ForgeRequest
from draftlight.forge.tuned_files import tuning_request, untuned
from draftlight.forge.tuning import stored_as
from draftlight.history.store import HistoryStore
from draftlight.library.gguf import read_header
from draftlight.library.pairing import check_pair
from draftlight.library.scanner import list_models
from draftlight.llama import loader
from draftlight.settings import PairSettings, Settings, save_settings
from findings import note
from twins import Twins, make_twins, write_twin

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def quiet_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("DRAFTLIGHT_PROBE_SECONDS", "0.5")


@pytest.fixture(autouse=True)
def allowed() -> None:
    save_settings(Settings().changed(learn_from_chats=True), paths.settings_file())


@pytest.fixture
def pair(tmp_path: Path, weights: str) -> Twins:
    return make_twins(tmp_path, weights=weights)


@pytest.fixture
def weights() -> str:
    return "Q8_0"


def chat(target: Path, n_answers: int = 30) -> None:
    """Let the target answer so many questions, through the engine and into the chats on disk."""
    service = ChatService(lambda: HistoryStore.open(paths.chats_file()), loader.load)
    list(service.load(PairSettings(target, n_ctx=512, n_threads=1), CancelToken()))
    options = GenerationOptions(SamplingParams(temperature=0.0), draft_length=0, max_new_tokens=48)
    with HistoryStore.open(paths.chats_file()) as store:
        for number in range(n_answers):
            conversation = store.create_conversation().id
            list(service.send(conversation, f"the draft model and text {97 * number}", options, CancelToken()))
    service.unload()


def reports(asked: ForgeRequest) -> Iterator[Report]:
    return forge(asked, CancelToken(), Control(), low_battery=lambda: False)


def kept_files() -> list[str]:
    """What lies in the data folder, the chats and locks excepted."""
    found = [path for path in paths.data_dir().rglob("*") if path.is_file() and not path.name.startswith("chats.db")]
    return [path.name for path in found if path.suffix != ".lock"]


@pytest.mark.parametrize("weights", ["Q8_0", "Q4_0"])  # the latter is rounded in training, too
def test_a_draft_model_tuned_on_chats_is_accepted_more_on_newer_answers_and_nothing_else_is_kept(pair: Twins) -> None:
    chat(pair.target)
    asked = tuning_request(pair.target, pair.draft)
    told = list(reports(asked))
    tuned = told[-1]
    assert isinstance(tuned, Tuned)
    assert tuned.path == asked.out
    assert tuned.after > tuned.before + 0.03
    assert (tuned.n_answers, tuned.n_held_out) == (30, 4)
    assert any(isinstance(report, AcceptanceMeasured) for report in told)
    assert kept_files() == [asked.out.name]
    assert untuned(asked.out) == pair.draft
    header = read_header(asked.out)
    assert check_pair(read_header(pair.target), header).ok
    assert header.quantisation == read_header(pair.draft).quantisation
    assert tuned.earlier is None
    *_, again = reports(asked)
    assert isinstance(again, Tuned)
    assert again.earlier == tuned.after
    assert (again.path is not None) == (again.after > tuned.after)
    assert kept_files() == [asked.out.name]
    note(f"a toy draft tuned on 22 chats: accepted at {tuned.before:.0%} of places before, {tuned.after:.0%} after")


@pytest.mark.parametrize(("weights", "stored"), [("Q8_0", "Q8_0"), ("Q4_0", "Q4_0"), ("Q4_1", "Q4_0"), ("F16", "Q8_0")])
def test_a_tuned_file_is_no_larger_than_it_was(weights: str, stored: str, tmp_path: Path) -> None:
    draft = tmp_path / "draft.gguf"
    write_twin(draft, weights=weights)
    assert stored_as(read_header(draft)) == stored


def test_what_is_no_better_is_not_kept_and_the_time_is(pair: Twins) -> None:
    chat(pair.target)
    *course, last = reports(tuning_request(pair.target, pair.target, minutes=0.01))
    assert sum(isinstance(report, AcceptanceMeasured) for report in course) == 1
    assert isinstance(last, Tuned)
    assert last.before > 0.95
    better = last.after > last.before
    assert (last.path is not None) == better
    assert len(kept_files()) == better


def killed(asked: ForgeRequest, cancel: CancelToken) -> None:  # noqa: ARG001 - as stopped()
    for child in psutil.Process().children(recursive=True):
        if asked.folder.as_posix() in " ".join(child.cmdline()):
            child.kill()


def stopped(asked: ForgeRequest, cancel: CancelToken) -> None:  # noqa: ARG001 - as killed()
    cancel.cancel()


@pytest.mark.parametrize("end", [killed, stopped])
def test_a_run_that_is_killed_or_stopped_leaves_nothing(
    pair: Twins, end: Callable[[ForgeRequest, CancelToken], None]
) -> None:
    chat(pair.target)
    asked = tuning_request(pair.target, pair.draft)
    cancel = CancelToken()
    failure = ""
    try:
        for report in forge(asked, cancel, Control(), low_battery=lambda: False):
            assert not isinstance(report, Tuned)
            if isinstance(report, Trained):
                end(asked, cancel)
    except UserError as error:
        failure = str(error)
    assert ("ended by the system" in failure) == (end is killed)
    assert kept_files() == []
    assert list_models([paths.data_dir() / "models"]) == ()


def test_without_consent_no_process_is_started(pair: Twins) -> None:
    save_settings(Settings(), paths.settings_file())
    asked = tuning_request(pair.target, pair.draft)
    with pytest.raises(UserError, match="once you have allowed it"):
        list(forge(asked, CancelToken(), Control(), command=["no such program"]))


def test_another_vocabulary_is_refused(pair: Twins, starter_draft: Path) -> None:
    asked = tuning_request(pair.target, pair.draft)
    with pytest.raises(UserError, match="cannot draft for"):
        list(reports(replace(asked, tune=starter_draft)))
