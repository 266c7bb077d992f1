"""llama.cpp's shared library: imported once, on first use; its log, its version.

It owns everything that is global to the process. Models and contexts live in backend.py.
"""

import ctypes
import importlib.util
import logging
import os
import re
from collections import deque
from collections.abc import Callable
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil

from draftlight.errors import UserError

_log = logging.getLogger("draftlight.llama")
_log.addHandler(logging.NullHandler())  # quiet unless the program sets up a log

# ggml_log_level: 0 none, 1 debug, 2 info, 3 warning, 4 error, 5 continues the line before it.
_FUNCTION_NAMES = re.compile(r"^(?:[\w:]+: |error loading model: )+")
_CONTINUED = 5
_ERROR = 4
_PYTHON_LEVELS = {1: logging.DEBUG, 2: logging.DEBUG, 3: logging.INFO, 4: logging.WARNING}  # it says a lot


class NativeLog:
    """Collects llama.cpp's log lines as they come, and hands them to Python's logging when asked to.

    llama.cpp logs from its own threads in the middle of native calls. The callback therefore only appends to a
    bounded queue; whoever made the native call hands the lines over after it has returned.
    """

    def __init__(self, capacity: int = 2000) -> None:
        """Keep at most `capacity` lines that were not handed over yet."""
        self._lines: deque[tuple[int, str]] = deque(maxlen=capacity)
        self._errors: deque[str] = deque(maxlen=20)
        self._open: tuple[int, str] | None = None

    def receive(self, level: int, text: bytes, _user_data: object) -> None:
        """Take one piece of log text: a line, or a part of one that later pieces continue."""
        if level == _CONTINUED and self._open is not None:
            level, held = self._open
        else:
            held = ""
        line = held + text.decode("utf-8", "replace")
        if not line.endswith("\n"):
            self._open = (level, line)
            return
        self._open = None
        line = line.strip()
        if line:
            self._lines.append((level, line))
            if level == _ERROR:
                self._errors.append(line)

    def hand_over(self) -> None:
        """Pass the collected lines to the logger `draftlight.llama`."""
        while self._lines:
            level, line = self._lines.popleft()
            _log.log(_PYTHON_LEVELS.get(level, logging.DEBUG), "%s", line)

    def forget_errors(self) -> None:
        """Start a new native call: errors before it are not its own."""
        self._errors.clear()

    def first_error(self) -> str:
        """Return the first error line since forget_errors(), without the function names llama.cpp puts before it.

        The first one names the cause; those after it only say that something failed because of it.
        """
        if not self._errors:
            return ""
        return _FUNCTION_NAMES.sub("", self._errors[0])


native_log = NativeLog()


@cache
def native() -> ModuleType:
    """Return llama.cpp's low-level bindings, ready to use. Raises UserError where the library cannot be loaded."""
    try:
        import llama_cpp.llama_cpp as bindings  # noqa: PLC0415 - 0.1 s and 30 MB; only whoever loads a model pays
    except (ImportError, OSError, RuntimeError) as error:
        raise UserError(
            f"llama.cpp, which runs the models, could not be loaded: {error}.",
            "Delete the folder .venv and start Draftlight again to build it anew.",
        ) from error
    bindings.llama_log_set(_callback(bindings), ctypes.c_void_p(0))
    bindings.llama_backend_init()
    native_log.hand_over()
    return bindings


@cache
def native_function(name: str, result: type | None, *arguments: type) -> Callable[..., Any]:
    """Return a C function of llama.cpp's or ggml's that the bindings leave out. Raises AttributeError if unknown.

    The types are ctypes' own; they are the caller's to get right (`llama.h`, `ggml.h`, `ggml-backend.h`).
    """
    for library in _libraries():
        try:
            function = library[name]  # a new object each time: nobody else's types are touched
        except AttributeError:
            continue
        function.restype, function.argtypes = result, arguments
        return function
    raise AttributeError(f"llama.cpp has no function {name}")


@cache
def _libraries() -> tuple[ctypes.CDLL, ...]:
    """Return libllama, and the libraries beneath it: on Windows a library does not show those beneath it."""
    bindings = native()
    folder: Path = bindings._base_path  # noqa: SLF001 - the bindings tell it in no other way
    beneath = sorted(
        path for path in folder.iterdir() if re.fullmatch(r"(lib)?ggml(-base)?\.(so|dll|dylib)", path.name)
    )
    return bindings._lib, *(ctypes.CDLL(str(path)) for path in beneath)  # noqa: SLF001 - as above


@cache
def _callback(bindings: ModuleType) -> object:
    """Return the C function that llama.cpp logs through; the cache keeps it alive as long as the process."""
    callback: object = bindings.llama_log_callback(native_log.receive)
    return callback


def library_version() -> str:
    """Return the version of the installed bindings, without loading them."""
    return metadata.version("llama-cpp-python")


def build_identity() -> str:
    """Return what tells one build of the library from another, without loading it: what was measured holds for one."""
    found = importlib.util.find_spec("llama_cpp")
    if found is None or found.origin is None:
        return library_version()
    files = sorted(path for path in (Path(found.origin).parent / "lib").iterdir() if path.is_file())
    states = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return f"{library_version()} {states}"


def system_info() -> str:
    """Return the processor features llama.cpp was built with and uses, as it prints them."""
    text: str = native().llama_print_system_info().decode("utf-8", "replace").strip()
    return text


def default_threads() -> int:
    """Return how many threads a model should use: the physical cores this process may run on."""
    physical = psutil.cpu_count(logical=False) or os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else physical
    return max(1, min(physical, allowed))
