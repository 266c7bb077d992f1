"""Preflight: the child crashes, hangs or refuses; the person gets a sentence and, if there is one, a way on."""

import errno
import json
import logging
import os
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from draftlight import paths
from draftlight.engine.cancel import CancelToken
from draftlight.llama import preflight, probe
from draftlight.llama.backend import LoadCancelled, ModelNotLoaded
from draftlight.llama.preflight import Preflight
from draftlight.llama.probe import ModelProbe, ProcessorTimes
from draftlight.llama.trial import ProbeBroken
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
FORBIDDEN = """
raise SystemExit("no child should have been started")
"""


@pytest.fixture
def settings(twin_pair: Twins) -> PairSettings:
    return PairSettings(target=twin_pair.target, draft=twin_pair.draft, n_ctx=512, n_threads=1)


def command(folder: Path, script: str) -> list[str]:
    """A child that runs `script`, as preflight starts it."""
    path = folder / "child.py"
    path.write_text(script)
    return [sys.executable, str(path)]


def measured(milliseconds: float, microseconds_per_context: float = 0.0, n_ctx: int = 8192) -> ModelProbe:
    """A model whose prompt tokens cost this much each."""
    return ModelProbe(
        n_ctx, 8192, 49152, 0.1, 0.01, 0.02, milliseconds / 1e3, microseconds_per_context / 1e6, memory_bytes=10**8
    )


def test_measures_both_models_in_a_child(settings: PairSettings) -> None:
    checked = preflight.run(settings, CancelToken())
    assert checked.settings == settings
    assert checked.notices == ()
    assert checked.report.draft is not None
    for model in (checked.report.target, checked.report.draft):
        assert model.n_ctx == 512
        assert model.width_1_seconds > 0
        assert model.width_4_seconds > 0
        assert model.prefill_seconds > 0
    assert checked.report.n_threads == 1


def test_a_second_look_starts_no_child(settings: PairSettings, tmp_path: Path) -> None:
    first = preflight.run(settings, CancelToken())
    assert preflight.run(settings, CancelToken(), command=command(tmp_path, FORBIDDEN)) == first


def test_what_was_measured_holds_for_one_state_of_the_files_and_settings(
    settings: PairSettings, tmp_path: Path
) -> None:
    alone = replace(settings, draft=None, target=tmp_path / "copy.gguf")
    alone.target.write_bytes(settings.target.read_bytes())
    preflight.run(alone, CancelToken())
    forbidden = command(tmp_path, FORBIDDEN)
    with pytest.raises(ProbeBroken):
        preflight.run(replace(alone, n_ctx=256), CancelToken(), command=forbidden)
    os.utime(alone.target, ns=(1, 1))
    with pytest.raises(ProbeBroken):
        preflight.run(alone, CancelToken(), command=forbidden)


@pytest.mark.parametrize("content", [b"", b"{", b'{"settings": {}}', b"\xff\x00"])
def test_a_damaged_cache_file_is_measured_again(settings: PairSettings, content: bytes) -> None:
    first = preflight.run(settings, CancelToken())
    (kept,) = (paths.cache_dir() / "preflight").iterdir()
    kept.write_bytes(content)
    again = preflight.run(settings, CancelToken())
    assert (again.settings, again.notices) == (first.settings, first.notices)
    assert len(kept.read_bytes()) > len(content)


def test_a_cache_folder_that_cannot_be_written_does_not_stop_the_load(
    settings: PairSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("DRAFTLIGHT_CACHE_DIR", str(tmp_path / "file"))
    assert preflight.run(replace(settings, draft=None), CancelToken()).notices == ()


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_a_child_that_dies_of_a_segmentation_fault_is_a_sentence_and_the_fallback_is_kept(
    settings: PairSettings, tmp_path: Path
) -> None:
    child = command(tmp_path, CRASH_UNLESS.format(unless="--no-extra-buffers", signal="SIGSEGV"))
    checked = preflight.run(settings, CancelToken(), command=child)
    assert checked.settings == replace(settings, use_extra_buffers=False)
    assert checked.notices == (
        (
            "llama.cpp crashed with SIGSEGV while decoding 4 tokens with twin.gguf. "
            "It is used without repacked weights, which is slower, instead."
        ),
    )
    assert preflight.run(settings, CancelToken(), command=command(tmp_path, FORBIDDEN)) == checked


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_a_crash_on_the_gpu_ends_on_the_processor(settings: PairSettings, tmp_path: Path) -> None:
    child = command(tmp_path, CRASH_UNLESS.format(unless="--n-gpu-layers 0", signal="SIGABRT"))
    checked = preflight.run(replace(settings, n_gpu_layers=99), CancelToken(), command=child)
    assert checked.settings == replace(settings, n_gpu_layers=0, use_extra_buffers=False)
    assert len(checked.notices) == 2
    assert "SIGABRT" in checked.notices[1]


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_a_draft_model_that_crashes_leaves_the_target_running_without_drafts(
    settings: PairSettings, tmp_path: Path
) -> None:
    crash = "if '--draft' in sys.argv:\n    probe._leave_no_core_file(); os.kill(os.getpid(), signal.SIGSEGV)"
    checked = preflight.run(settings, CancelToken(), command=command(tmp_path, CHILD.format(body=crash)))
    assert checked.settings == replace(settings, draft=None)  # the target keeps its repacked weights
    assert checked.report.draft is None
    (notice,) = checked.notices
    assert settings.draft is not None
    assert notice.startswith(f"{settings.draft.name} cannot draft here: llama.cpp crashed with SIGSEGV while ")
    assert "The answer comes without drafting; n-gram drafts" in notice
    assert "instead" not in notice
    assert preflight.run(settings, CancelToken(), command=command(tmp_path, FORBIDDEN)) == checked


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_where_nothing_works_no_fallback_is_said_to_be_used(settings: PairSettings, tmp_path: Path) -> None:
    child = command(tmp_path, CRASH_UNLESS.format(unless="nothing helps", signal="SIGABRT"))
    with pytest.raises(ModelNotLoaded) as caught:
        preflight.run(settings, CancelToken(), command=child)
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
        preflight.run(replace(settings, n_gpu_layers=9), CancelToken(), command=child)
    assert "crashed" not in caught.value.sentence
    assert not (paths.cache_dir() / "preflight").exists()


def test_a_full_disk_in_the_child_is_a_sentence_with_the_cause(settings: PairSettings, tmp_path: Path) -> None:
    full = f"def fail(settings): raise OSError({errno.ENOSPC}, os.strerror({errno.ENOSPC}))\nprobe.probe = fail"
    with pytest.raises(ModelNotLoaded, match="could not be tried out: No space left on device"):
        preflight.run(settings, CancelToken(), command=command(tmp_path, CHILD.format(body=full)))


def test_an_exception_in_the_child_is_a_bug_with_its_traceback_in_the_log(
    settings: PairSettings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    child = command(tmp_path, CHILD.format(body="def fail(settings): return 1 / 0\nprobe.probe = fail"))
    with caplog.at_level(logging.ERROR), pytest.raises(ProbeBroken) as caught:
        preflight.run(settings, CancelToken(), command=child)
    assert "ZeroDivisionError" in caplog.text
    assert "ZeroDivisionError" in caught.value.__notes__[0]


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_a_line_that_the_crash_cut_short_does_not_count(settings: PairSettings, tmp_path: Path) -> None:
    body = (
        "if '--no-extra-buffers' not in sys.argv:\n"
        """    print('{"stage": "loading twin.gguf"}\\n{"stage": "deco', end='', flush=True)\n"""
        "    probe._leave_no_core_file(); os.kill(os.getpid(), signal.SIGILL)"
    )
    checked = preflight.run(settings, CancelToken(), command=command(tmp_path, CHILD.format(body=body)))
    assert checked.notices[0].startswith("llama.cpp crashed with SIGILL while loading twin.gguf.")


@pytest.mark.skipif(os.name != "posix", reason="needs process groups")
def test_the_terminal_s_ctrl_c_does_not_reach_the_child(settings: PairSettings, tmp_path: Path) -> None:
    says_group = """print(json.dumps({"error": {"sentence": str(os.getpgrp()), "remedy": "", "about_cache": False}}))"""
    with pytest.raises(ModelNotLoaded) as caught:
        preflight.run(settings, CancelToken(), command=command(tmp_path, f"import json, os\n{says_group}"))
    assert int(caught.value.sentence) != os.getpgrp()


def kept_from(settings: PairSettings, *, others_busy: float, age: float) -> float:
    """Make as if the kept timings came from that time; return the prefill time, which is set to an impossible one."""
    (kept,) = (paths.cache_dir() / "preflight").iterdir()
    values = json.loads(kept.read_text("utf-8"))
    values["report"]["others_busy"] = others_busy
    values["report"]["target"]["prefill_seconds"] = 1234.5
    values["notices"] = ["Kept."]
    kept.write_text(json.dumps(values), encoding="utf-8")
    then = time.time() - age
    os.utime(kept, (then, then))
    return preflight.run(settings, CancelToken()).report.target.prefill_seconds


@pytest.mark.parametrize(
    ("others_busy", "hours", "again"), [(0.9, 25, True), (0.9, 23, False), (0.1, 25, False), (0.1, 9999, False)]
)
def test_timings_from_a_busy_time_are_taken_again_after_a_day(
    settings: PairSettings, others_busy: float, hours: float, *, again: bool
) -> None:
    preflight.run(settings, CancelToken())
    assert (kept_from(settings, others_busy=others_busy, age=hours * 3600) < 1.0) is again
    checked = preflight.run(settings, CancelToken())
    assert checked.notices == ("Kept.",)  # what runs, and what is said about it, stays


def test_a_pair_that_fails_when_measured_again_is_tried_from_the_start(settings: PairSettings, tmp_path: Path) -> None:
    preflight.run(settings, CancelToken())
    kept_from(settings, others_busy=0.9, age=0)
    (kept,) = (paths.cache_dir() / "preflight").iterdir()
    os.utime(kept, (1, 1))
    child = command(tmp_path, CRASH_UNLESS.format(unless="--no-extra-buffers", signal="SIGSEGV"))
    checked = preflight.run(settings, CancelToken(), command=child)
    assert not checked.settings.use_extra_buffers
    assert "SIGSEGV" in checked.notices[0]


def test_the_others_share_leaves_out_this_process_and_idle_time() -> None:
    before = ProcessorTimes(passed=100.0, busy=50.0, own=10.0)
    assert ProcessorTimes(104.0, 53.0, 11.0).others_busy_since(before) == 0.5
    assert ProcessorTimes(104.0, 51.0, 12.0).others_busy_since(before) == 0.0  # the counters' steps differ
    assert before.others_busy_since(before) == 0.0
    assert ProcessorTimes.now().busy <= ProcessorTimes.now().passed


def test_a_refused_8_bit_cache_becomes_a_16_bit_one(settings: PairSettings, tmp_path: Path) -> None:
    checked = preflight.run(settings, CancelToken(), command=command(tmp_path, REFUSE_8_BIT_CACHE))
    assert checked.settings.kv_type is KvType.F16
    assert checked.notices == ("No cache. It is used with a 16-bit cache instead.",)


def test_a_damaged_model_file_is_the_child_s_sentence(settings: PairSettings, tmp_path: Path) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(settings.target.read_bytes()[:5000])
    with pytest.raises(ModelNotLoaded, match=r"bad\.gguf could not be loaded: "):
        preflight.run(replace(settings, draft=bad), CancelToken())


def test_a_missing_file_is_a_sentence_before_any_child(settings: PairSettings, tmp_path: Path) -> None:
    with pytest.raises(ModelNotLoaded, match="There is no file"):
        preflight.run(replace(settings, target=tmp_path / "absent.gguf"), CancelToken())
    with pytest.raises(ModelNotLoaded, match="cannot be read"):
        preflight.run(replace(settings, target=tmp_path), CancelToken())


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_a_child_that_hangs_is_ended_at_the_time_limit(settings: PairSettings, tmp_path: Path) -> None:
    with pytest.raises(ModelNotLoaded, match=r"was still loading twin\.gguf after 2 seconds"):
        preflight.run(settings, CancelToken(), command=command(tmp_path, HANG), limit_seconds=2.0)


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_a_cancel_ends_the_child_at_once(settings: PairSettings, tmp_path: Path) -> None:
    cancel = CancelToken()
    timer = threading.Timer(0.3, cancel.cancel)
    timer.start()
    started = time.monotonic()
    with pytest.raises(LoadCancelled):
        preflight.run(settings, cancel, command=command(tmp_path, HANG))
    assert time.monotonic() - started < 5.0
    timer.join()


def test_the_prefill_chunk_follows_the_measured_speed() -> None:
    chunks = [preflight.prefill_chunk(measured(milliseconds)) for milliseconds in (100, 5, 1.5, 0.9, 0.01)]
    assert chunks == [16, 32, 128, 256, 512]


def test_the_prefill_chunk_allows_for_what_attention_costs_in_a_long_context() -> None:
    assert preflight.prefill_chunk(measured(1.0, 1.0)) == 32
    assert preflight.prefill_chunk(measured(1.0, 1.0, n_ctx=512)) == 128


def test_what_attention_adds_is_measured_where_the_context_allows(settings: PairSettings) -> None:
    alone = replace(settings, draft=None, n_ctx=1024)
    report = probe.probe(alone)
    assert report.target.prefill_seconds_per_context >= 0
    assert report.target.prefill_seconds > 0
    assert probe.probe(settings).target.prefill_seconds_per_context == 0.0


def test_the_arguments_bring_the_settings_to_the_child(settings: PairSettings) -> None:
    whole = replace(settings, n_gpu_layers=3, kv_type=KvType.F16, use_extra_buffers=False)
    assert probe.arguments_for(whole) == [
        *("--target", str(settings.target), "--draft", str(settings.draft), "--n-ctx", "512", "--n-threads", "1"),
        *("--n-gpu-layers", "3", "--kv-type", "f16", "--no-extra-buffers"),
    ]


def test_ngram_drafts_need_no_measurement_of_their_own(settings: PairSettings, tmp_path: Path) -> None:
    alone = replace(settings, draft=None)
    preflight.run(alone, CancelToken())
    checked: Preflight = preflight.run(replace(alone, ngram=True), CancelToken(), command=command(tmp_path, FORBIDDEN))
    assert checked.settings.ngram
