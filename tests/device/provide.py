"""What the run on a device needs: packages, llama.cpp compiled for it, and a pair of models.

Called by run.sh and forge.sh, once for each: provide.py --work FOLDER --site FOLDER packages | forge | llama | models.
Whatever lies in the two folders already is taken as it is. Only the standard library and the set-up's own files; pip's
settings, such as a folder of packages in place of an index, come from the environment.
"""

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "packaging"))

import bootstrap  # noqa: E402 - found through the line above
import starter  # noqa: E402
import steps  # noqa: E402
import wheels  # noqa: E402

PIP = [sys.executable, "-m", "pip"]
NOT_NEEDED = ("PySide6", wheels.PACKAGE)  # no window is opened; llama.cpp is compiled apart
FROM_EXTRAS = {"dev": ("pytest",), "forge": ("gguf",)}
WITH_DRAFT_MODEL, WITHOUT = "plain,auto,k1,k3,k7,ngram", "plain,auto,ngram"


def main() -> int:
    """Do what was asked for; a failure that a person can mend is told in a sentence."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--site", type=Path, required=True)
    parser.add_argument("what", choices=("packages", "forge", "llama", "models"))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cpu")
    parser.add_argument("files", nargs="*", type=Path)
    asked = parser.parse_args()
    runner = steps.StepRunner(steps.Screen(), asked.work / "logs")
    try:
        match asked.what:
            case "packages":
                install(runner, asked.site, missing(required()))
            case "forge":
                install(runner, asked.site, missing(for_training()))
            case "llama":
                llama(runner, asked.work, asked.site, asked.device)
            case _:
                sys.stdout.write("".join(f"{line}\n" for line in models(runner, asked.work, asked.files)))
    except steps.SetupError as error:
        if error.log is not None:
            sys.stderr.write(f"{steps.tail(error.log)}\n")
        sys.stderr.write(f"{error.sentence} {error.remedy}\n")
        return 1
    return 0


def required() -> list[str]:
    """Return the packages that the program and its identity test need without a window."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [line for line in project["dependencies"] if not line.startswith(NOT_NEEDED)]
    for extra, names in FROM_EXTRAS.items():
        wanted += [line for line in project["optional-dependencies"][extra] if re.match(r"[\w-]+", line)[0] in names]  # type: ignore[index]
    return wanted


def for_training() -> list[str]:
    """Return the packages that making a draft model needs; a torch that is there is taken, whichever it is."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted: list[str] = project["optional-dependencies"]["forge"]
    has_torch = importlib.util.find_spec("torch") is not None
    return [line for line in wanted if not (has_torch and line.startswith("torch"))]


def missing(requirements: list[str]) -> list[str]:
    """Return those that are not installed here in a version that will do."""
    look = [*PIP, "install", "--dry-run", "--no-deps", "--no-index", "--quiet"]
    return [
        requirement
        for requirement in requirements
        if subprocess.run([*look, requirement], capture_output=True, check=False).returncode  # noqa: S603 - pip
    ]


def install(runner: steps.StepRunner, site: Path, what: list[str], *options: str) -> None:
    """Put packages into the folder that run.sh has on Python's path. Raises SetupError."""
    if what:
        command = [*PIP, "install", "--upgrade", "--target", str(site), *options, *what]
        runner.run(f"Installing {', '.join(what)}", "install", command, ROOT, os.environ)


def llama(runner: steps.StepRunner, work: Path, site: Path, device: str) -> None:
    """Compile llama-cpp-python as the set-up does, with what run.sh adds for the card. Raises SetupError."""
    bootstrap.STATE = work
    _, wheel = wheels.provide(runner, PIP, os.environ)
    install(runner, site, [str(wheel)], "--no-deps")
    install(runner, site, missing(needs(wheel)))
    look = "import llama_cpp; print(llama_cpp.llama_supports_gpu_offload())"
    said = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=False)  # noqa: S603 - ours
    sys.stdout.write(f"{wheel.name}, works on a card: {said.stdout}")
    if said.returncode or (device == "cuda" and said.stdout.strip() != "True"):
        raise steps.SetupError(
            "What was compiled does not load, or does not work on a card.", said.stderr.strip()[-400:]
        )


def needs(wheel: Path) -> list[str]:
    """Return the packages that a wheel needs, without those of its extras."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        told = message_from_string(archive.read(name).decode("utf-8"))
    return [line for line in told.get_all("Requires-Dist") or [] if "extra ==" not in line]


def models(runner: steps.StepRunner, work: Path, files: list[Path]) -> tuple[str, str, str, str]:
    """Return target, draft ("ngram" without one), the starter target ("" without) and the benchmark's arms."""
    target = starter_target(runner, work)
    known = "" if target is None else str(target)
    if files:
        absent = [str(file) for file in files if not file.is_file()]
        if absent:
            raise steps.SetupError(f"There is no file {absent[0]}.", "Correct the path.")
        draft = str(files[1].resolve()) if len(files) > 1 else "ngram"
        return str(files[0].resolve()), draft, known, WITH_DRAFT_MODEL if len(files) > 1 else WITHOUT
    if target is not None:
        return known, str(ROOT / "models" / "starter-draft.gguf"), known, WITH_DRAFT_MODEL
    from twins import make_twins  # noqa: PLC0415 - needs numpy and gguf, which the first step has installed

    made = make_twins(work)
    return str(made.target), str(made.draft), known, WITH_DRAFT_MODEL


def starter_target(runner: steps.StepRunner, work: Path) -> Path | None:
    """Return the starter target, fetched where it is not here; None where it cannot be had."""
    own = work / bootstrap.STARTER_TARGET.name
    for file in (bootstrap.STARTER_TARGET, own):
        if starter.is_genuine(file):
            return file
    try:
        starter.fetch(runner, PIP, work / "download", own, os.environ)
    except steps.SetupError as error:
        sys.stderr.write(f"{error.sentence} A random-weight pair stands in for the starter pair.\n")
        return None
    return own


if __name__ == "__main__":
    sys.exit(main())
