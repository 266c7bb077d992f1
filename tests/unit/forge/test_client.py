"""A run in its child process: what is passed on and told, and a sentence for every way it can end."""

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

import scripted_forge
from draftlight import paths
from draftlight.engine.cancel import CancelToken
from draftlight.errors import UserError
from draftlight.forge import client
from draftlight.forge.client import Control, ForgeBroken, ForgeFailed, forge
from draftlight.forge.lock import only_run
from draftlight.forge.reports import ChatsWritten, Forged, Outlook, Report, Trained
from draftlight.forge.request import ForgeRequest, as_argument, from_argument, request_for, unfinished
from draftlight.library.scanner import list_models
from program_process import wait_until
from twins import Twins

SIGNALS = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")


@pytest.fixture
def asked(twin_pair: Twins) -> ForgeRequest:
    """A request for the twins' target, in this test's own folders."""
    return request_for(twin_pair.target)


def started(
    asked: ForgeRequest, behaviour: str, cancel: CancelToken | None = None, control: Control | None = None
) -> Generator[Report, None, None]:
    return forge(asked, cancel or CancelToken(), control or Control(), scripted_forge.command(behaviour))


def samples(reports: list[Report]) -> list[str]:
    return [report.sample for report in reports if isinstance(report, ChatsWritten)]


def has_ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def is_free(asked: ForgeRequest) -> bool:
    """Whether no process has the lock: one may look ended while a thread of it still is at its end."""
    try:
        with only_run(asked.folder):
            return True
    except UserError:
        return False


def until_listening(run: Generator[Report, None, None]) -> None:
    """Go on to where the child does nothing but listen."""
    assert any(isinstance(report, Trained) for report in run)


def test_reports_come_in_order_and_the_draft_model_last(asked: ForgeRequest) -> None:
    reports = list(started(asked, "forge"))
    assert [type(report).__name__ for report in reports] == [
        *("StageBegun", "Outlook", "StageBegun", "ChatsWritten", "StageBegun"),
        *("Trained", "AcceptanceMeasured") * 3,
        "Forged",
    ]
    assert reports[-1] == Forged(asked.out, scripted_forge.CARD)
    assert not unfinished(asked)


def test_the_draft_model_is_listed_and_a_half_made_one_is_not(asked: ForgeRequest) -> None:
    folders = (paths.data_dir() / "models",)
    with pytest.raises(ForgeFailed):
        list(started(asked, "killed"))
    assert list_models(folders) == ()
    list(started(asked, "forge"))
    (model,) = list_models(folders)
    assert (model.path, model.problem) == (asked.out, "")
    half = asked.out.with_name(f"{asked.out.name}.part")
    half.write_bytes(asked.out.read_bytes())
    assert [model.path for model in list_models(folders) if not model.problem] == [asked.out]


def test_an_outlook_alone_makes_nothing(asked: ForgeRequest) -> None:
    *_, last = started(replace(asked, only_outlook=True), "forge")
    assert isinstance(last, Outlook)
    assert not asked.out.exists()


def test_the_child_hears_of_a_pause_even_before_it_begins(asked: ForgeRequest) -> None:
    cancel, control = CancelToken(), Control()
    control.pause()
    assert control.paused
    run = started(asked, "listen", cancel, control)
    until_listening(run)
    assert samples([next(run)]) == ["told: pause"]
    control.pause()  # told once
    control.go_on()
    assert not control.paused
    assert samples([next(run)]) == ["told: go on"]
    cancel.cancel()
    assert list(run) == []
    control.pause()  # nobody is there any more
    assert control.paused


def test_a_cancelled_run_saves_and_ends_without_a_draft_model(asked: ForgeRequest) -> None:
    cancel = CancelToken()
    run = started(asked, "listen", cancel)
    until_listening(run)
    cancel.cancel()
    assert list(run) == []
    assert (asked.folder / "saved").read_text() == "stop"
    assert unfinished(asked)


def test_what_is_cancelled_beforehand_does_not_begin(asked: ForgeRequest) -> None:
    cancel = CancelToken()
    cancel.cancel()
    assert list(started(asked, "listen", cancel)) == []
    assert not (asked.folder / "plan.json").exists()


@SIGNALS
def test_a_run_that_does_not_stop_is_killed_with_what_it_started(
    asked: ForgeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "SAVING_SECONDS", 0.1)
    cancel = CancelToken()
    run = started(asked, "deaf", cancel)
    (sample,) = samples([next(report for report in run if isinstance(report, ChatsWritten))])
    child = psutil.Process(int(sample.removeprefix("child: ")))
    worker = child.parent()
    cancel.cancel()
    assert list(run) == []
    assert worker is not None
    assert not worker.is_running()
    wait_until(lambda: has_ended(child), "the end of what it started")


def test_a_run_whose_listener_goes_ends_at_once(asked: ForgeRequest) -> None:
    run = started(asked, "listen")
    until_listening(run)
    (worker,) = (each for each in psutil.Process().children() if "scripted_forge" in " ".join(each.cmdline()))
    run.close()
    assert not worker.is_running()


def killed_parent_of(asked: ForgeRequest, behaviour: str) -> psutil.Process | None:
    """Let another process run a forge and be killed as soon as the child works; return the child, if it lives."""
    parent = (
        "import os, psutil, signal, scripted_forge\n"
        "from draftlight.engine.cancel import CancelToken\n"
        "from draftlight.forge.client import Control, forge\n"
        "from draftlight.forge.request import from_argument\n"
        "from draftlight.forge.reports import ChatsWritten, Trained\n"
        f"request = from_argument({as_argument(asked)!r})\n"
        f"for report in forge(request, CancelToken(), Control(), scripted_forge.command({behaviour!r})):\n"
        "    if isinstance(report, (ChatsWritten, Trained)):\n"
        "        print(psutil.Process().children()[0].pid, flush=True)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(scripted_forge.__file__).parent), *sys.path])}
    done = subprocess.run(  # noqa: S603 - ours
        [sys.executable, "-c", parent], stdout=subprocess.PIPE, check=False, timeout=60, env=environment
    )
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(int(done.stdout))
    return None


@SIGNALS
def test_a_run_whose_parent_is_killed_saves_and_ends(asked: ForgeRequest) -> None:
    worker = killed_parent_of(asked, "listen")
    if worker is not None:
        wait_until(lambda: has_ended(worker), "the end of the child")
    assert (asked.folder / "saved").read_text() == "None"


@SIGNALS
def test_no_other_run_begins_while_a_child_without_a_parent_is_still_saving(asked: ForgeRequest) -> None:
    worker = killed_parent_of(asked, "deaf")
    assert worker is not None
    below = worker.children()
    try:
        with pytest.raises(UserError, match="being made for this target already"):
            list(started(asked, "forge"))
    finally:
        for each in (*below, worker):
            each.kill()
    wait_until(lambda: is_free(asked), "the end of the child")
    assert isinstance(list(started(asked, "forge"))[-1], Forged)


@SIGNALS
@pytest.mark.parametrize(
    ("behaviour", "sentence", "remedy"),
    [
        ("killed", "was ended by the system, probably because memory ran out (The target writes chats)", "smaller"),
        ("crash", "crashed with SIGSEGV (The target writes chats)", "Try again"),
        ("fail", "The disk is full.", "Free some space."),
    ],
)
def test_an_ending_that_can_be_mended_is_a_sentence(
    asked: ForgeRequest, behaviour: str, sentence: str, remedy: str
) -> None:
    with pytest.raises(ForgeFailed) as failed:
        list(started(asked, behaviour))
    assert sentence in failed.value.sentence
    assert remedy in failed.value.remedy
    assert failed.value.resumable
    assert unfinished(asked)


def test_a_traceback_is_a_bug_and_its_note(asked: ForgeRequest) -> None:
    with pytest.raises(ForgeBroken) as broken:
        list(started(asked, "broken"))
    assert "ZeroDivisionError: loss is no number" in broken.value.__notes__[0]


def test_an_end_without_a_draft_model_is_a_bug(asked: ForgeRequest) -> None:
    with pytest.raises(ForgeBroken):
        list(started(asked, "early"))


def test_a_second_run_for_the_same_target_is_refused(asked: ForgeRequest) -> None:
    run = started(asked, "listen")
    until_listening(run)
    for other in (lambda: list(started(asked, "forge")), lambda: client.discard(asked)):
        with pytest.raises(UserError, match="being made for this target already"):
            other()
    run.close()
    assert isinstance(list(started(asked, "forge"))[-1], Forged)


def test_everything_else_comes_first(asked: ForgeRequest) -> None:
    run = started(asked, "listen")
    until_listening(run)
    (worker,) = (each for each in psutil.Process().children() if "scripted_forge" in " ".join(each.cmdline()))
    assert worker.nice() > psutil.Process().nice() or worker.nice() >= 10
    run.close()
    environment = (asked.folder / "environment").read_text().splitlines()
    assert "OMP_WAIT_POLICY=PASSIVE" in environment
    assert "HF_HUB_OFFLINE=1" in environment


def test_a_run_begins_anew_once_the_earlier_one_is_discarded(asked: ForgeRequest) -> None:
    client.discard(asked)  # there is none
    list(started(asked, "forge"))
    (asked.folder / "done").unlink()
    assert unfinished(asked)
    client.discard(asked)
    assert not unfinished(asked)
    assert not asked.folder.exists()


def test_a_run_that_has_ended_well_is_not_gone_on_with(asked: ForgeRequest) -> None:
    list(started(asked, "forge"))
    for then in (asked, replace(asked, only_outlook=True)):
        (asked.folder / "chats").touch()
        (asked.folder / "done").touch()
        list(started(then, "forge"))
        assert not (asked.folder / "chats").exists()


def test_a_run_that_is_gone_on_with_keeps_to_what_it_was_asked_for(asked: ForgeRequest, tmp_path: Path) -> None:
    first = replace(asked, minutes=5.0, size="narrow", out=tmp_path / "first.gguf")
    with pytest.raises(ForgeFailed):
        list(started(first, "fail"))
    assert unfinished(asked) == first
    *_, last = started(replace(asked, minutes=90.0, out=tmp_path / "other.gguf"), "forge")
    assert last == Forged(first.out, scripted_forge.CARD)
    assert not (tmp_path / "other.gguf").exists()


def test_an_outlook_alone_leaves_nothing_to_go_on_with(asked: ForgeRequest) -> None:
    list(started(replace(asked, only_outlook=True), "forge"))
    assert unfinished(asked) is None


def test_a_run_that_failed_before_it_had_a_plan_cannot_be_gone_on_with(asked: ForgeRequest) -> None:
    with pytest.raises(ForgeFailed, match="not supported") as failed:
        list(started(asked, "refuse"))
    assert not failed.value.resumable


def test_no_run_begins_on_a_battery_that_is_nearly_empty(asked: ForgeRequest) -> None:
    with pytest.raises(UserError, match="battery"):
        list(forge(asked, CancelToken(), Control(), scripted_forge.command(), lambda: True))
    assert not unfinished(asked)


def test_no_run_begins_without_the_packages(asked: ForgeRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # how Python marks what cannot be imported
    with pytest.raises(UserError, match="not installed: torch") as missing:
        list(started(asked, "forge"))
    assert f'"{sys.executable}" -m pip install ' in missing.value.remedy
    assert '"torch==' in missing.value.remedy
    assert not asked.folder.exists()


def test_a_draft_model_takes_the_first_name_that_is_free(twin_pair: Twins) -> None:
    models = paths.make_folder(paths.data_dir() / "models")
    names = []
    for _ in range(2):
        names.append(request_for(twin_pair.target).out)
        names[-1].touch()
    stem = twin_pair.target.stem
    assert names == [models / f"{stem}-draft.gguf", models / f"{stem}-draft-2.gguf"]


def test_a_folder_is_no_target_but_may_bring_the_weights(twin_pair: Twins) -> None:
    with pytest.raises(UserError, match="is a folder") as refused:
        request_for(twin_pair.target.parent)
    assert "--weights" in refused.value.remedy
    assert request_for(twin_pair.target, weights=twin_pair.target.parent).weights == twin_pair.target.parent


def test_no_file_of_the_person_s_is_overwritten(twin_pair: Twins, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"ends in .gguf|no name"):
        request_for(twin_pair.target, out=tmp_path / "notes.txt")
    with pytest.raises(UserError, match="exists"):
        request_for(twin_pair.target, out=twin_pair.draft)


def test_each_state_of_a_target_has_a_folder_of_its_own(twin_pair: Twins, tmp_path: Path) -> None:
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(twin_pair.target.read_bytes())
    before = request_for(copy)
    assert request_for(copy, minutes=5) == replace(before, minutes=5)
    os.utime(copy, ns=(1, 1))
    assert request_for(copy).folder != before.folder
    copy.unlink()
    with pytest.raises(UserError, match=r"copy\.gguf"):
        request_for(copy)


def test_a_request_arrives_as_it_was_sent(asked: ForgeRequest) -> None:
    sent = replace(asked, recipe=Path("r.toml").absolute(), minutes=5.0, size="narrow")
    assert from_argument(as_argument(sent)) == sent


def test_the_client_brings_no_torch() -> None:
    program = (
        "import sys, draftlight.forge.client, draftlight.forge.conditions\n"
        "draftlight.forge.conditions.require_packages()\n"
        "print(sorted({'torch', 'transformers', 'accelerate', 'gguf', 'llama_cpp', 'PySide6'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)  # noqa: S603 - ours
    assert done.stdout.strip() == "[]"
