"""What `python3 app` and `python3 tests` share: from a fresh checkout to a running program.

This file is all that a second start reads: it looks at one record of finished steps and hands over to .venv's Python.
Whatever is missing is done by installation.py beside it. Only the standard library; everything said here goes to
stderr, so that what the program prints can be piped.
"""

import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036 - an older Python runs this line, and only this line tells its user
    sys.exit(
        f"Draftlight needs Python 3.11 or newer, and this is Python {sys.version.split()[0]}.\n"
        "Install a newer Python and start with it, for example: python3.11 app",
    )

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STATE = VENV / "draftlight"  # stamps, logs and downloads: it outlives the rest of .venv when that is made anew
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")
TEST_EXTRAS = ("dev", "forge")

STARTER_TARGET = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
RETRY_TARGET_AFTER_S = 3600  # without network the app should not wait for the download at every start

# What a person may set for the compilation. Set ones are remembered: leaving them out later keeps the build.
BUILD_VARIABLES = ("CMAKE_ARGS", "CC", "CXX", "CFLAGS", "CXXFLAGS")
# Processor features that decide whether code compiled on one machine runs on another.
INSTRUCTION_SETS = re.compile(r"(avx|amx|sse|ssse|fma|f16c|bmi|gfni|vaes|asimd|sve|i8mm|bf16)\w*|sme2?")


class Stamps:
    """The record of finished set-up steps: name -> a JSON value, mostly a digest of what the step depended on.

    Args:
        file: where it lies; a missing or damaged record is an empty one, and the steps are done again.

    """

    def __init__(self, file: Path) -> None:
        """Read the record."""
        self.file = file
        try:
            loaded = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            loaded = {}
        self.values: dict[str, object] = loaded if isinstance(loaded, dict) else {}

    def get(self, step: str) -> object:
        """Return what was noted for a step, or None."""
        return self.values.get(step)

    def note(self, **values: object) -> None:
        """Note steps, None to forget one, and write the record in one stroke: a kill leaves the old or the new."""
        self.values.update(values)
        self.values = {step: value for step, value in self.values.items() if value is not None}
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps(self.values, indent=1, sort_keys=True), encoding="utf-8")
        part.replace(self.file)


def digest(*parts: object) -> str:
    """Return a short name for these values; it changes when any of them does."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def venv_digest() -> str:
    """Name the virtual environment: it dies when the checkout moves or its base Python changes."""
    return digest(str(ROOT), os.path.realpath(PYTHON))


def processor() -> str:
    """Describe this machine's processor as far as compiled code depends on it, without starting a process."""
    try:
        with Path("/proc/cpuinfo").open("rb") as file:
            first = file.read(16_384).split(b"\n\n")[0].decode("utf-8", "replace")
    except OSError:
        return os.environ.get("PROCESSOR_IDENTIFIER") or os.uname().machine
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}
    names = [fields[key] for key in ("model name", "CPU implementer", "CPU part") if key in fields]
    flags = (fields.get("flags") or fields.get("Features") or "").split()
    return " ".join(names + sorted(flag for flag in flags if INSTRUCTION_SETS.fullmatch(flag)))


def build_variables(stamps: Stamps, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the compile settings that a person has chosen, now or at an earlier start."""
    remembered = stamps.get("build_variables")
    chosen = dict(remembered) if isinstance(remembered, dict) else {}
    chosen.update({name: environ[name] for name in BUILD_VARIABLES if name in environ})
    return {name: value for name, value in chosen.items() if value}


def installed_digest(stamps: Stamps, environ: Mapping[str, str]) -> str:
    """Name what is installed: the project's file, the way llama.cpp is built, the processor it is built for."""
    recipe = [(ROOT / name).read_bytes() for name in ("pyproject.toml", "packaging/wheels.py", "packaging/llama.cmake")]
    return digest(
        venv_digest(),
        [hashlib.sha256(content).hexdigest() for content in recipe],
        processor(),
        build_variables(stamps, environ),
    )


def target_identity() -> list[int] | None:
    """Return size and time of the starter target's file, which was verified before it got its name; None if missing."""
    try:
        found = STARTER_TARGET.stat()
    except OSError:
        return None
    return [found.st_size, found.st_mtime_ns]


def opens_a_window(environ: Mapping[str, str]) -> bool:
    """Say whether Qt can be asked for a window, so that its system libraries are needed."""
    names = ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")
    return sys.platform == "linux" and any(environ.get(name) for name in names)


def is_ready(extras: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Say whether nothing is left to set up: one small record read, no process started.

    Args:
        extras: the optional dependencies that this start needs; with any, it also needs the starter target.
        environ: the environment variables.

    """
    stamps = Stamps(STATE / "stamps.json")
    installed_extras = stamps.get("extras")
    if (
        not PYTHON.exists()
        or stamps.get("installed") != installed_digest(stamps, environ)
        or not isinstance(installed_extras, list)
        or not set(extras) <= set(installed_extras)
    ):
        return False
    failed_at = stamps.get("target_failed_at")
    may_wait = not extras and isinstance(failed_at, float) and 0 <= time.time() - failed_at < RETRY_TARGET_AFTER_S
    target = target_identity()
    if (target is None or target != stamps.get("target")) and not (target is None and may_wait):
        return False
    if extras:
        return bool(stamps.get("system_libraries")) and bool(stamps.get("test_tools"))
    return bool(stamps.get("system_libraries")) or not opens_a_window(environ)


def set_up(extras: Sequence[str]) -> int:
    """Do what is missing; return 0, or the exit status after saying what went wrong."""
    import installation  # noqa: PLC0415 - a second start must not pay for it

    return installation.run(extras)


def run_app(arguments: list[str]) -> int:
    """Set up what is missing, then become the program; `--setup-only` as the only argument stops before that."""
    if not is_ready((), os.environ) or arguments == ["--setup-only"]:
        status = set_up(())
        if status or arguments == ["--setup-only"]:
            return status
    # -P: the folder it is started from is no source of modules.
    command = [str(PYTHON), "-P", "-m", "draftlight", *arguments]
    if os.name != "nt":
        os.execv(command[0], command)  # noqa: S606 - our own interpreter; the arguments are the caller's own
    import subprocess  # noqa: PLC0415 - only Windows, which cannot replace a process, needs it

    try:
        return subprocess.call(command)  # noqa: S603 - as above
    except KeyboardInterrupt:
        return 130


def run_tests(checks: Sequence[tuple[str, list[str]]], arguments: list[str]) -> int:
    """Set up what is missing, then run the checks one after another, all of them even if one fails.

    Args:
        checks: heading, and a program of .venv with its arguments; the last one is pytest.
        arguments: for pytest, which then runs alone; `--setup-only` as the only one stops after the set-up.

    """
    import subprocess  # noqa: PLC0415 - `python3 app` reads this file too and does not need it

    if not is_ready(TEST_EXTRAS, os.environ) or arguments == ["--setup-only"]:
        status = set_up(TEST_EXTRAS)
        if status or arguments == ["--setup-only"]:
            return status
    # The search path for types: the set-up's files import each other, and belong to no package.
    environ = {"QT_QPA_PLATFORM": "offscreen", **os.environ, "MYPYPATH": str(ROOT / "packaging")}
    chosen = checks[-1:] if arguments else checks
    failed: list[str] = []
    for heading, (program, *options) in chosen:
        if heading == chosen[-1][0] and failed:
            print(f"\nFailed so far: {', '.join(failed)}", flush=True)
        print(f"\n== {heading}: {' '.join([program, *options])}", flush=True)
        extra = arguments if heading == checks[-1][0] else []
        try:
            status = subprocess.call([str(BIN / program), *options, *extra], cwd=ROOT, env=environ)  # noqa: S603 - ours
        except KeyboardInterrupt:
            print("Stopped.", file=sys.stderr)
            return 130
        if status:
            failed.append(heading)
    return 1 if failed else 0
