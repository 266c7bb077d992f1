"""llama-cpp-python compiled for this machine, and kept for the next checkout.

There is no ready-made wheel of it, so it is compiled: without OpenMP, whose spinning threads collapse as soon as
another program wants a core, with threads that go to sleep when they wait long and with sums that do not depend on how
many rows a pass has (llama.cmake), and without AMX where GCC 11 or 12 would turn it into code that crashes. pip's own
cache of wheels does not look at such settings, so it is neither read nor written; ours is keyed by all that shapes a
build.
"""

import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import bootstrap
import steps

PACKAGE = "llama-cpp-python"
CHANGES = bootstrap.ROOT / "packaging" / "llama.cmake"
# Without LLAVA_BUILD there is no reader for pictures, which this program has no use for.
DEFINITIONS = {"GGML_OPENMP": "OFF", "LLAVA_BUILD": "OFF"}
VERSION_MACROS = {
    "clang": ("__clang_major__", "__clang_minor__", "__clang_patchlevel__"),
    "gcc": ("__GNUC__", "__GNUC_MINOR__", "__GNUC_PATCHLEVEL__"),
}
NO_AMX = ("-mno-amx-tile", "-mno-amx-int8", "-mno-amx-bf16")
AMX_KNOWN_SINCE = 11  # older ones refuse the flags, and never emit AMX
AMX_RIGHT_SINCE = 13  # before, most of the tile configuration is lost and every quantised batch crashes
NO_COMPILER = (
    "There is no C and C++ compiler, and llama.cpp must be compiled for this machine.",
    "Install one, then start again. Debian and Ubuntu: sudo apt-get install gcc g++; macOS: xcode-select --install.",
)


@dataclass(frozen=True)
class Compiler:
    """The C and C++ compilers that a build will use.

    Args:
        c: the C compiler's command; empty where CMake looks for it by itself (Windows).
        cxx: the C++ compiler's command.
        family: "gcc", "clang" or "other".
        version: three numbers with dots; empty if not known.
        target: "x86_64", "aarch64" or "other": what it compiles for.

    """

    c: str
    cxx: str
    family: str
    version: str
    target: str

    @property
    def major(self) -> int:
        """The first number of the version."""
        found = re.match(r"\d+", self.version)
        return int(found.group()) if found else 0


def read_macros(c: str, cxx: str, macros: str) -> Compiler:
    """Describe a compiler by the macros that it predefines (`cc -dM -E`)."""
    defined = dict(re.findall(r"^#define (\w+) (.*)$", macros, re.MULTILINE))
    # clang claims to be an old GCC as well, so it is asked first.
    family, names = next(
        ((family, names) for family, names in VERSION_MACROS.items() if names[0] in defined), ("other", ())
    )
    version = ".".join(defined.get(name, "0") for name in names)
    target = next((name for name in ("x86_64", "aarch64") if f"__{name}__" in defined), "other")
    return Compiler(c, cxx, family, version, target)


def find_compiler(environ: Mapping[str, str], which: Callable[[str], str | None] = shutil.which) -> Compiler | None:
    """Return the compilers named by CC and CXX or found on the path; None if one of the two is missing.

    Args:
        environ: the environment variables.
        which: finds a program.

    """
    if os.name == "nt":
        return Compiler("", "", "other", "", "other")
    c = environ.get("CC") or next(filter(which, ("cc", "gcc", "clang")), "")
    cxx = environ.get("CXX") or next(filter(which, ("c++", "g++", "clang++")), "")
    if not (c.strip() and cxx.strip() and which(shlex.split(c)[0]) and which(shlex.split(cxx)[0])):
        return None
    asked = subprocess.run(  # noqa: S603 - the compiler that the build will run anyway
        [*shlex.split(c), "-dM", "-E", "-x", "c", os.devnull], capture_output=True, text=True, check=False
    )
    return read_macros(c, cxx, asked.stdout)


def check_quotes(environ: Mapping[str, str]) -> None:
    """Refuse settings that cannot be taken apart into words.

    Raises:
        steps.SetupError: a quote is not closed.

    """
    for name in bootstrap.BUILD_VARIABLES:
        try:
            shlex.split(environ.get(name, ""))
        except ValueError as error:
            sentence = f"The environment variable {name} has a quote that is not closed: {environ[name]}"
            raise steps.SetupError(sentence, f"Correct {name} or unset it, then start again.") from error


def build_environment(environ: Mapping[str, str], compiler: Compiler) -> dict[str, str]:
    """Return the environment for the compilation: ours, except where the person has already decided.

    Args:
        environ: the environment variables; CMAKE_ARGS, CFLAGS and CXXFLAGS are kept and added to.
        compiler: what will compile.

    """
    result = dict(environ)
    # With it, llama.cpp stops compiling for this machine and leaves out even AVX.
    result.pop("SOURCE_DATE_EPOCH", None)
    if compiler.c:  # the one that was looked at, not one that the build finds by itself
        result |= {"CC": compiler.c, "CXX": compiler.cxx}
    arguments = environ.get("CMAKE_ARGS", "")
    ours = [f"-D{name}={value}" for name, value in DEFINITIONS.items() if not _defines(arguments, name)]
    if not _defines(arguments, "CMAKE_PROJECT_llama_cpp_INCLUDE"):
        ours.append(shlex.quote(f"-DCMAKE_PROJECT_llama_cpp_INCLUDE={CHANGES.as_posix()}"))
    result["CMAKE_ARGS"] = " ".join([arguments, *ours]).strip()
    if needs_no_amx(compiler):
        for name in ("CFLAGS", "CXXFLAGS"):
            given = environ.get(name, "")
            if "amx" not in given:
                result[name] = " ".join([given, *NO_AMX]).strip()
    return result


def needs_no_amx(compiler: Compiler) -> bool:
    """Say whether this compiler would turn AMX into code that crashes."""
    broken = compiler.family == "gcc" and AMX_KNOWN_SINCE <= compiler.major < AMX_RIGHT_SINCE
    return broken and compiler.target == "x86_64"


def _defines(arguments: str, name: str) -> bool:
    return re.search(rf"-D\s*{name}(:\w+)?=", arguments) is not None


def pinned_version(pyproject: str) -> str:
    """Return the one version of llama-cpp-python that the project's file asks for."""
    dependencies: list[str] = tomllib.loads(pyproject)["project"]["dependencies"]
    return next(entry.partition("==")[2] for entry in dependencies if entry.startswith(f"{PACKAGE}=="))


def build_facts(version: str, environ: Mapping[str, str], compiler: Compiler, processor: str) -> dict[str, object]:
    """Return everything that shapes the compiled library: two builds with equal facts are interchangeable.

    Args:
        version: of llama-cpp-python.
        environ: what `build_environment` returned.
        compiler: what compiles.
        processor: what it compiles for.

    """
    # The checkout's path is no fact, nor that it has to be quoted: another checkout shall find the wheel.
    arguments = [word.replace(CHANGES.as_posix(), "CHANGES") for word in shlex.split(environ.get("CMAKE_ARGS", ""))]
    return {
        "version": version,
        "CMAKE_ARGS": arguments,
        "changes": _commands(CHANGES) if any(word.endswith("=CHANGES") for word in arguments) else [],
        "CFLAGS": environ.get("CFLAGS", ""),
        "CXXFLAGS": environ.get("CXXFLAGS", ""),
        "compiler": [compiler.family, compiler.version, compiler.target],
        "processor": processor,
        "platform": sysconfig.get_platform(),
        "libc": platform.libc_ver(),
    }


def _commands(cmake_file: Path) -> list[str]:
    lines = cmake_file.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("# ")]


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return where compiled wheels are kept for all checkouts; DRAFTLIGHT_CACHE_DIR moves it."""
    if named := environ.get("DRAFTLIGHT_CACHE_DIR"):
        return Path(named).expanduser().absolute() / "wheels"
    if sys.platform == "win32":
        return Path(environ.get("LOCALAPPDATA", str(Path.home()))) / "draftlight" / "Cache" / "wheels"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "draftlight" / "wheels"
    return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "draftlight" / "wheels"


def whole_wheel(folder: Path) -> Path | None:
    """Return the folder's wheel if it is whole: a cut-off or damaged file is none."""
    for wheel in sorted(folder.glob("*.whl")):
        try:
            with zipfile.ZipFile(wheel) as archive:
                if archive.testzip() is None:
                    return wheel
        except (OSError, zipfile.BadZipFile, EOFError):
            continue
    return None


def keep(wheel: Path, folder: Path, facts: Mapping[str, object]) -> Path:
    """Put a wheel into the cache in one stroke, with the facts that it was made from; return where it lies now."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "build.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
    part = folder / f"{wheel.name}.{os.getpid()}.part"
    shutil.copyfile(wheel, part)
    return part.replace(folder / wheel.name)


def provide(runner: steps.StepRunner, pip: list[str], environ: Mapping[str, str]) -> tuple[str, Path]:
    """Return the build's key and its wheel, from the cache or compiled now.

    Args:
        runner: runs the compilation.
        pip: the command that is pip.
        environ: the environment variables, with the person's choices for the build.

    Raises:
        steps.SetupError: no compiler, or the compilation failed.

    """
    compiler = find_compiler(environ)
    if compiler is None:
        raise steps.SetupError(*NO_COMPILER)
    version = pinned_version((bootstrap.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    environ = build_environment(environ, compiler)
    facts = build_facts(version, environ, compiler, bootstrap.processor())
    key = f"{version}-{bootstrap.digest(facts)}"
    cached = cache_folder(environ) / key
    if wheel := whole_wheel(cached):
        runner.screen.say("llama.cpp was compiled for this machine before; taking that.")
        return key, wheel
    # What a cut-off start left compiling has gone on, and may have come to its end.
    made = bootstrap.STATE / "wheels" / key
    wheel = whole_wheel(made)
    if wheel is None:
        shutil.rmtree(made.parent, ignore_errors=True)
        chosen = {name: environ[name] for name in bootstrap.BUILD_VARIABLES if environ.get(name)}
        command = [*pip, "wheel", "--verbose", "--no-cache-dir", "--no-deps", "--no-binary", PACKAGE]
        log = runner.run(
            "Compiling llama.cpp for this machine (usually 2 to 6 minutes on two cores, once)",
            "llama-cpp-python",
            [*command, "--wheel-dir", str(made), f"{PACKAGE}=={version}"],
            bootstrap.STATE,
            environ,
        )
        wheel = whole_wheel(made)
        if wheel is None:
            raise steps.SetupError("The compilation left no whole wheel.", f"It was built with {chosen}.", log)
    try:
        return key, keep(wheel, cached, facts)
    except OSError as error:
        runner.screen.say(f"  It could not be kept for other checkouts: {error}")
        return key, wheel
