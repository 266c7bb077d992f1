"""The rules of the run on a machine with a card, as far as they show without one."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEVICE = ROOT / "tests" / "device"
sys.path.insert(0, str(DEVICE))
import provide  # noqa: E402 - scripts that run.sh calls
import summary  # noqa: E402

sys.path.remove(str(DEVICE))
sys.path.remove(str(ROOT / "packaging"))  # provide.py put it there


def run(folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    own = {"PATH": os.environ["PATH"], "OUT": str(folder / "a b"), "DRAFTLIGHT_DEVICE_WORK": str(folder / "work")}
    return subprocess.run(  # noqa: S603 - our own script
        [str(DEVICE / "run.sh")], env=own | environ, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        ({"DRAFTLIGHT_DEVICE": "tpu"}, "DRAFTLIGHT_DEVICE is tpu. Set it to cuda or cpu.\n"),
        ({"DRAFTLIGHT_DEVICE": "cpu", "DRAFTLIGHT_WHEELS": "/no/folder"}, "There is no folder /no/folder."),
    ],
)
def test_a_device_run_that_cannot_start_says_why(environ: dict[str, str], sentence: str, tmp_path: Path) -> None:
    done = run(tmp_path, **environ)
    assert done.returncode == 1
    assert sentence in done.stderr
    assert done.stdout == ""


def test_a_device_run_without_time_runs_nothing_and_says_so(tmp_path: Path) -> None:
    done = run(tmp_path, DRAFTLIGHT_DEVICE="cpu", DRAFTLIGHT_DEVICE_SECONDS="1")
    assert done.returncode == 1
    assert "not run: no time was left" in (tmp_path / "a b" / "summary.txt").read_text("utf-8")


def test_the_device_run_installs_no_window_and_no_torch() -> None:
    names = [requirement.split(">")[0].split("=")[0] for requirement in provide.required()]
    assert {"numpy", "jinja2", "pydantic", "pytest", "gguf"} <= set(names)
    assert not {name for name in names if name.startswith(("PySide6", "torch", "transformers", "llama"))}


def test_making_a_draft_model_on_a_card_keeps_the_torch_that_is_there_and_adds_the_rest() -> None:
    names = [re.split("[<>=]", requirement)[0] for requirement in provide.for_training()]
    assert {"transformers", "gguf"} <= set(names)
    assert "torch" not in names, "these tests run with torch installed"


def test_a_forge_on_a_card_that_cannot_start_says_why(tmp_path: Path) -> None:
    own = {"PATH": os.environ["PATH"], "OUT": str(tmp_path / "out"), "DRAFTLIGHT_DEVICE_WORK": str(tmp_path / "work")}
    done = subprocess.run(  # noqa: S603 - our own script
        [str(DEVICE / "forge.sh")],
        env=own | {"DRAFTLIGHT_WHEELS": "/no/folder"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "There is no folder /no/folder. Correct DRAFTLIGHT_WHEELS.\n"


def test_the_summary_shows_every_arm_and_every_exact_width_found(tmp_path: Path) -> None:
    arm = {"tok_s": 24.123, "ratio": 2.5, "ratio_low": 2.25, "ratio_high": 2.75, "identical": 1.0}
    bench = {"n_prompts": 16, "arms": {"plain": {"tok_s": 10.0}, "k3": arm}, "doubts": ["It was stopped."]}
    (tmp_path / "bench.json").write_text("a notice\n" + json.dumps(bench), "utf-8")
    (tmp_path / "probe.json").write_text(json.dumps({"report": {"target": {"exact_widths": [1, 2]}}}), "utf-8")
    (tmp_path / "steps.txt").write_text("build\tdid its work after 200 s\n", "utf-8")
    page = "\n".join(summary.page(tmp_path))
    assert "build\tdid its work after 200 s" in page
    assert "probe, report.target.exact_widths: [1, 2]" in page
    assert "k3          24.12   2.50  2.25 to 2.75       1.00        -" in page
    assert "doubt: It was stopped." in page


def test_the_summary_of_a_run_that_left_nothing_is_empty(tmp_path: Path) -> None:
    (tmp_path / "bench.json").write_text("Killed\n", "utf-8")
    assert list(summary.page(tmp_path)) == []
