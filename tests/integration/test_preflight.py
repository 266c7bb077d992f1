"""Preflight: the child crashes, hangs or refuses; the person gets a sentence and, if there is one, a way on."""

import errno
import json
import logging
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from pydantic import TypeAdapter

from checked_pairs import FORBIDDEN, checked, command, settled
from draftlight import paths
from draftlight.engine.cancel import CancelToken
from draftlight.llama import preflight, probe
from draftlight.llama.backend import LoadCancelled, ModelNotLoaded
from draftlight.llama.report import Preflight
from draftlight.llama.trial import ProbeBroken, Stage
from draftlight.settings import KvType, PairSettings
from twins import Twins

CRASH_UNLESS = """
import json, os, signal, sys
from draftlight.llama import probe
if {unless!r} not in " ".join(sys.argv):
    probe._leave_no_core_file()
    print(json.dumps({{"stage": "decoding 4 tokens with twin.gguf"}}), flush=True)
    os.kill(os.getpid(), signal.{signal})
sys.exit(probe.main())
"""
REFUSE_8_BIT_CACHE = """
import json, sys
from draftlight.llama import probe
if "f16" not in sys.argv:
    print(json.dumps({"error": {"sentence": "No cache.", "remedy": "", "about_cache": True}}))
    sys.exit(2)
sys.exit(probe.main())
"""
CHILD = """
import json, os, signal, sys
from draftlight.llama import probe
{body}
sys.exit(probe.main())
"""
HANG = """
import json, signal
print(json.dumps({"stage": "loading twin.gguf"}), flush=True)
signal.pause()
"""


@pytest.fixture
def settings(twin_pair: Twins) -> PairSettings:
    return settled(twin_pair)


def test_what_was_left_open_is_open_again_when_it_is_measured_again(settings: PairSettings, tmp_path: Path) -> None:
    open_settings = replace(settings, draft=None, kv_type=KvType.AUTO)
    checked(open_settings)
    kept_from(open_settings, others_busy=0.9, age=0)
    (kept,) = (paths.cache_dir() / "preflight").iterdir()
    os.utime(kept, (1, 1))
    says_types = "print(json.dumps({'stage': ' '.join(sys.argv)}), flush=True)"
    child = command(tmp_path, CHILD.format(body=says_types))
    stages = preflight.run(open_settings, CancelToken(), command=child, busy=lambda: 0.0)
    stage = next(stages)
    assert isinstance(stage, Stage)
    assert "--kv-type auto" in stage.doing


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_stages_are_told_while_the_child_runs_and_it_ends_with_its_listener(
    settings: PairSettings, tmp_path: Path
) -> None:
    says_number = "import json, os, signal\nprint(json.dumps({'stage': str(os.getpid())}), flush=True)\nsignal.pause()"
    stages = preflight.run(settings, CancelToken(), command=command(tmp_path, says_number))
    stage = next(stages)
    assert isinstance(stage, Stage)
    assert psutil.pid_exists(int(stage.doing))
    stages.close()  # type: ignore[attr-defined]  # a generator
    assert not psutil.pid_exists(int(stage.doing))


def test_a_second_look_starts_no_child(settings: PairSettings, tmp_path: Path) -> None:
    first = checked(settings)
    assert checked(settings, command=command(tmp_path, FORBIDDEN)) == first


def test_what_was_measured_holds_for_one_state_of_the_files_and_settings(
    settings: PairSettings, tmp_path: Path
) -> None:
    alone = replace(settings, draft=None, target=tmp_path / "copy.gguf")
    alone.target.write_bytes(settings.target.read_bytes())
    checked(alone)
    forbidden = command(tmp_path, FORBIDDEN)
    with pytest.raises(ProbeBroken):
        checked(replace(alone, n_ctx=256), command=forbidden)
    os.utime(alone.target, ns=(1, 1))
    with pytest.raises(ProbeBroken):
        checked(alone, command=forbidden)


def test_what_is_exact_anyway_is_not_measured_again_for_exactness(settings: PairSettings, tmp_path: Path) -> None:
    settings = replace(settings, draft=None)
    found = checked(settings)
    (kept,) = (paths.cache_dir() / "preflight").iterdir()
    forbidden = command(tmp_path, FORBIDDEN)
    for widths, exact in [((1, 2, 3, 4), True), ((1, 2), False)]:
        exactness = replace(found.report.exactness, widths=widths)
        answer = replace(found, report=replace(found.report, exactness=exactness))
        kept.write_bytes(TypeAdapter(Preflight).dump_json(answer))
        if exact:
            assert checked(replace(settings, exact=True), command=forbidden).report == answer.report
        else:
            with pytest.raises(ProbeBroken):
                checked(replace(settings, exact=True), command=forbidden)


@pytest.mark.parametrize("content", [b"", b"{", b'{"settings": {}}', b"\xff\x00"])
def test_a_damaged_cache_file_is_measured_again(settings: PairSettings, content: bytes) -> None:
    settings = replace(settings, draft=None)
    first = checked(settings)
    (kept,) = (paths.cache_dir() / "preflight").iterdir()
    kept.write_bytes(content)
    again = checked(settings)
    assert (again.settings, again.notices) == (first.settings, first.notices)
    assert len(kept.read_bytes()) > len(content)


def test_a_cache_folder_that_cannot_be_written_does_not_stop_the_load(
    settings: PairSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("DRAFTLIGHT_CACHE_DIR", str(tmp_path / "file"))
    assert checked(replace(settings, draft=None)).notices == ()


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_a_child_that_dies_of_a_segmentation_fault_is_a_sentence_and_the_fallback_is_kept(
    settings: PairSettings, tmp_path: Path
) -> None:
    child = command(tmp_path, CRASH_UNLESS.format(unless="--no-extra-buffers", signal="SIGSEGV"))
    found = checked(settings, command=child)
    assert found.settings == replace(settings, use_extra_buffers=False)
    assert found.notices == (
        (
            "llama.cpp crashed with SIGSEGV while decoding 4 tokens with twin.gguf. "
            "It is used without repacked weights, which is slower, instead."
        ),
    )
    assert checked(settings, command=command(tmp_path, FORBIDDEN)) == found


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_a_crash_on_the_gpu_ends_on_the_processor(settings: PairSettings, tmp_path: Path) -> None:
    child = command(tmp_path, CRASH_UNLESS.format(unless="--n-gpu-layers 0", signal="SIGABRT"))
    found = checked(replace(settings, n_gpu_layers=99), command=child)
    assert found.settings == replace(settings, n_gpu_layers=0, use_extra_buffers=False)
    assert len(found.notices) == 2
    assert "SIGABRT" in found.notices[1]


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_a_draft_model_that_crashes_leaves_the_target_running_without_drafts(
    settings: PairSettings, tmp_path: Path
) -> None:
    crash = "if '--draft' in sys.argv:\n    probe._leave_no_core_file(); os.kill(os.getpid(), signal.SIGSEGV)"
    found = checked(settings, command=command(tmp_path, CHILD.format(body=crash)))
    assert found.settings == replace(settings, draft=None)  # the target keeps its repacked weights
    assert found.report.draft is None
    (notice,) = found.notices
    assert settings.draft is not None
    assert notice.startswith(f"{settings.draft.name} cannot draft here: llama.cpp crashed with SIGSEGV while ")
    assert "The answer comes without drafting; n-gram drafts" in notice
    assert "instead" not in notice
    assert checked(settings, command=command(tmp_path, FORBIDDEN)) == found


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_where_nothing_works_no_fallback_is_said_to_be_used(settings: PairSettings, tmp_path: Path) -> None:
    child = command(tmp_path, CRASH_UNLESS.format(unless="nothing helps", signal="SIGABRT"))
    with pytest.raises(ModelNotLoaded) as caught:
        checked(settings, command=child)
    assert caught.value.sentence == (
        "llama.cpp crashed with SIGABRT while decoding 4 tokens with twin.gguf. "
        "Trying it without repacked weights, which is slower, and without the draft model did not help."
    )
    assert caught.value.remedy
    assert not (paths.cache_dir() / "preflight").exists()


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
@pytest.mark.parametrize(
    ("signal", "sentence"),
    [("SIGKILL", "probably because memory ran out"), ("SIGTERM", "ended from outside with SIGTERM")],
)
def test_a_child_that_is_ended_from_outside_is_no_crash_and_nothing_is_kept(
    settings: PairSettings, tmp_path: Path, signal: str, sentence: str
) -> None:
    child = command(tmp_path, CRASH_UNLESS.format(unless="--no-extra-buffers", signal=signal))
    with pytest.raises(ModelNotLoaded, match=sentence) as caught:
        checked(replace(settings, n_gpu_layers=9), command=child)
    assert "crashed" not in caught.value.sentence
    assert not (paths.cache_dir() / "preflight").exists()


def test_a_full_disk_in_the_child_is_a_sentence_with_the_cause(settings: PairSettings, tmp_path: Path) -> None:
    full = (
        f"def fail(settings, seconds): raise OSError({errno.ENOSPC}, os.strerror({errno.ENOSPC}))\nprobe.probe = fail"
    )
    with pytest.raises(ModelNotLoaded, match="could not be tried out: No space left on device"):
        checked(settings, command=command(tmp_path, CHILD.format(body=full)))


def test_an_exception_in_the_child_is_a_bug_with_its_traceback_in_the_log(
    settings: PairSettings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    child = command(tmp_path, CHILD.format(body="def fail(settings, seconds): return 1 / 0\nprobe.probe = fail"))
    with caplog.at_level(logging.ERROR), pytest.raises(ProbeBroken) as caught:
        checked(settings, command=child)
    assert "ZeroDivisionError" in caplog.text
    assert "ZeroDivisionError" in caught.value.__notes__[0]


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_a_line_that_the_crash_cut_short_does_not_count(settings: PairSettings, tmp_path: Path) -> None:
    body = (
        "if '--no-extra-buffers' not in sys.argv:\n"
        """    print('{"stage": "loading twin.gguf"}\\n{"stage": "deco', end='', flush=True)\n"""
        "    probe._leave_no_core_file(); os.kill(os.getpid(), signal.SIGILL)"
    )
    found = checked(settings, command=command(tmp_path, CHILD.format(body=body)))
    assert found.notices[0].startswith("llama.cpp crashed with SIGILL while loading twin.gguf.")


@pytest.mark.skipif(os.name != "posix", reason="needs process groups")
def test_the_terminal_s_ctrl_c_does_not_reach_the_child(settings: PairSettings, tmp_path: Path) -> None:
    says_group = """print(json.dumps({"error": {"sentence": str(os.getpgrp()), "remedy": "", "about_cache": False}}))"""
    with pytest.raises(ModelNotLoaded) as caught:
        checked(settings, command=command(tmp_path, f"import json, os\n{says_group}"))
    assert int(caught.value.sentence) != os.getpgrp()


def kept_from(settings: PairSettings, *, others_busy: float, age: float, busy: float = 0.0) -> float:
    """Make as if what is kept came from that time and took an impossible one; return how long it took then."""
    (kept,) = (paths.cache_dir() / "preflight").iterdir()
    values = json.loads(kept.read_text("utf-8"))
    values["report"]["others_busy"] = others_busy
    values["report"]["seconds"] = 1234.5
    values["notices"] = ["Kept."]
    kept.write_text(json.dumps(values), encoding="utf-8")
    then = time.time() - age
    os.utime(kept, (then, then))
    return checked(settings, busy=busy).report.seconds


@pytest.mark.parametrize(
    ("others_busy", "age", "busy", "again"),
    [(0.9, 70, 0.1, True), (0.9, 70, 0.9, False), (0.9, 50, 0.1, False), (0.1, 70, 0.1, False), (0.1, 1e7, 0.1, False)],
)
def test_what_was_measured_in_a_busy_time_is_measured_again_when_it_is_over(
    settings: PairSettings, others_busy: float, age: float, busy: float, *, again: bool
) -> None:
    settings = replace(settings, draft=None)
    checked(settings)
    assert (kept_from(settings, others_busy=others_busy, age=age, busy=busy) < 1000) is again
    found = checked(settings)
    assert found.notices == ("Kept.",)  # what runs, and what is said about it, stays


def test_a_pair_that_fails_when_measured_again_is_tried_from_the_start(settings: PairSettings, tmp_path: Path) -> None:
    settings = replace(settings, draft=None)
    checked(settings)
    kept_from(settings, others_busy=0.9, age=0)
    (kept,) = (paths.cache_dir() / "preflight").iterdir()
    os.utime(kept, (1, 1))
    child = command(tmp_path, CRASH_UNLESS.format(unless="--no-extra-buffers", signal="SIGSEGV"))
    found = checked(settings, command=child)
    assert not found.settings.use_extra_buffers
    assert "SIGSEGV" in found.notices[0]


def test_a_refused_8_bit_cache_becomes_a_16_bit_one(settings: PairSettings, tmp_path: Path) -> None:
    found = checked(settings, command=command(tmp_path, REFUSE_8_BIT_CACHE))
    assert found.settings.kv_type is KvType.F16
    assert found.notices == ("No cache. It is used with a 16-bit cache instead.",)


def test_a_damaged_model_file_is_the_child_s_sentence(settings: PairSettings, tmp_path: Path) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(settings.target.read_bytes()[:5000])
    with pytest.raises(ModelNotLoaded, match=r"bad\.gguf could not be loaded: "):
        checked(replace(settings, draft=bad))


def test_a_missing_file_is_a_sentence_before_any_child(settings: PairSettings, tmp_path: Path) -> None:
    with pytest.raises(ModelNotLoaded, match="There is no file"):
        checked(replace(settings, target=tmp_path / "absent.gguf"))
    with pytest.raises(ModelNotLoaded, match="cannot be read"):
        checked(replace(settings, target=tmp_path))


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_a_child_that_hangs_is_ended_at_the_time_limit(settings: PairSettings, tmp_path: Path) -> None:
    with pytest.raises(ModelNotLoaded, match=r"was still loading twin\.gguf after 2 seconds"):
        checked(settings, command=command(tmp_path, HANG), limit_seconds=2.0)


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_a_cancel_ends_the_child_at_once(settings: PairSettings, tmp_path: Path) -> None:
    cancel = CancelToken()
    timer = threading.Timer(0.3, cancel.cancel)
    timer.start()
    started = time.monotonic()
    with pytest.raises(LoadCancelled):
        checked(settings, cancel, command=command(tmp_path, HANG))
    assert time.monotonic() - started < 5.0
    timer.join()


def test_the_arguments_bring_the_settings_to_the_child(settings: PairSettings) -> None:
    on_gpu = replace(settings, n_gpu_layers=3, draft_n_gpu_layers=2, device="CUDA0", draft_device="CPU")
    whole = replace(on_gpu, kv_type=KvType.F16, draft_kv_type=KvType.F32, use_extra_buffers=False, exact=True)
    assert probe.arguments_for(whole) == [
        *("--target", str(settings.target), "--draft", str(settings.draft), "--draft-n-gpu-layers", "2"),
        *("--draft-device", "CPU", "--draft-kv-type", "f32", "--n-ctx", "512", "--n-threads", "1"),
        *("--n-gpu-layers", "3", "--device", "CUDA0", "--kv-type", "f16", "--exact", "--no-extra-buffers"),
    ]


def test_ngram_drafts_need_no_measurement_of_their_own(settings: PairSettings, tmp_path: Path) -> None:
    alone = replace(settings, draft=None)
    checked(alone)
    found = checked(replace(alone, ngram=True), command=command(tmp_path, FORBIDDEN))
    assert found.settings.ngram
