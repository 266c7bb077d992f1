"""The composition root: builds the parts, picks a front end, and is the process's edge, where errors become sentences.

Everything heavy is imported where it is first needed: `--version` needs nothing, the terminal never needs Qt.
"""

import faulthandler
import json
import logging
import os
import platform
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from draftlight import __version__
from draftlight.cli.arguments import Arguments, parse, program_name
from draftlight.errors import UserError

if TYPE_CHECKING:
    from draftlight.chat.service import LoadedPair
    from draftlight.cli.parts import Parts
    from draftlight.engine.cancel import CancelToken
    from draftlight.engine.events import ModelLoading
    from draftlight.history.store import HistoryStore
    from draftlight.llama.report import Preflight
    from draftlight.settings import PairSettings

_LOG = logging.getLogger("draftlight")
_X_PORT = 6000  # of display 0
_DISPLAY_SECONDS = 2.0
_USER_ERROR = 2
_BUG = 70  # EX_SOFTWARE
_INTERRUPTED = 130  # what a shell reports after Ctrl-C
_DELETED_KEPT_SECONDS = 86_400.0  # a deleted chat can be brought back for a day
_BROKEN_PIPE = 141  # what a shell reports for a writer whose reader has gone


def main(argv: Sequence[str]) -> int:
    """Run the program and return its exit status.

    That is 0, 2 for a mistake that can be mended, 70 for a bug, 130 after Ctrl-C, 141 where the reader has gone.
    """
    _take_any_text()
    try:
        status = _run(parse(argv))
        sys.stdout.flush()  # here, so that a reader who has gone is noticed inside
    except UserError as error:
        return _say(error, as_json="--json" in argv)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the flush at exit complains
        return _BROKEN_PIPE
    except Exception as bug:  # noqa: BLE001 - the process's edge: whatever else is raised is a bug, and is reported
        return _report(bug)
    return status


def _take_any_text() -> None:
    """Let no character break the standard streams in a locale that lacks it: it is written as its number."""
    for stream, errors in ((sys.stdin, "surrogateescape"), (sys.stdout, "backslashreplace")):
        if isinstance(stream, TextIOWrapper):  # a window without a console has none
            stream.reconfigure(errors=errors)


def _run(arguments: Arguments) -> int:
    _start_log()
    if arguments.command is None and has_display():
        return _open_window(arguments)
    if arguments.command is None:
        sys.stderr.write("There is no display, so Draftlight chats here in the terminal.\n")
        arguments.command = "chat"
    return _run_command(arguments)


def has_display() -> bool:
    """Tell whether a window can open: always on Windows and macOS, elsewhere where a display server answers.

    Asking is worth a millisecond: Qt aborts the process where DISPLAY names a server that is not there.
    """
    if sys.platform in {"win32", "darwin"}:
        return True
    if os.environ.get("QT_QPA_PLATFORM", "").partition(":")[0] in {"offscreen", "minimal", "vnc", "linuxfb"}:
        return True
    return any(_answers(address) for address in _display_addresses())


def _display_addresses() -> Iterator[str | tuple[str, int]]:
    """Yield the sockets that the environment names: paths, and host and port of an X server elsewhere."""
    if wayland := os.environ.get("WAYLAND_DISPLAY"):
        yield str(Path(os.environ.get("XDG_RUNTIME_DIR", "")) / wayland)
    host, _, display = os.environ.get("DISPLAY", "").rpartition(":")
    number = display.partition(".")[0]
    if number.isdecimal() and host in {"", "unix"}:
        yield f"\0/tmp/.X11-unix/X{number}"  # Linux' own kind of address: a name without a file
        yield f"/tmp/.X11-unix/X{number}"  # noqa: S108 - where every X server has its socket; it is only asked
    elif number.isdecimal():
        yield host, _X_PORT + int(number)


def _answers(address: str | tuple[str, int]) -> bool:
    import socket  # noqa: PLC0415 - only a window needs it

    try:
        if isinstance(address, str):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(address)
        else:
            socket.create_connection(address, timeout=_DISPLAY_SECONDS).close()
    except (OSError, OverflowError, UnicodeError):  # nobody there, no such port, no such name
        return False
    return True


def _run_command(arguments: Arguments) -> int:
    from draftlight.cli.commands import run  # noqa: PLC0415 - the engine's imports are not for --version

    return run(arguments, _terminal_parts())


def _terminal_parts() -> "Parts":
    from draftlight.cli.parts import Parts  # noqa: PLC0415 - see _run_command
    from draftlight.forge.client import forge  # noqa: PLC0415 - see _run_command

    return Parts(load=load_pair, open_store=_open_store, probe=_probe_pair, forge=forge, library=_library)


def _open_window(arguments: Arguments) -> int:
    """Show the window, with the target that was named, if one was. Raises UserError where Qt cannot start."""
    from draftlight import paths  # noqa: PLC0415 - see _run_command
    from draftlight.chat.service import ChatService  # noqa: PLC0415 - see _run_command
    from draftlight.forge.client import forge  # noqa: PLC0415 - see _run_command
    from draftlight.library.scanner import list_models  # noqa: PLC0415 - see _run_command
    from draftlight.settings import PairSettings, SettingsWriter, load_settings  # noqa: PLC0415 - see _run_command

    try:
        import PySide6.QtWidgets  # noqa: F401, PLC0415 - only a window needs Qt, and its system libraries may be missing
    except ImportError as error:
        raise UserError(f"The window cannot open: {error}.", f"Install that, or run: {program_name()} chat") from error
    from draftlight.ui import application  # noqa: PLC0415 - see _run_command

    remembered = load_settings(paths.settings_file())
    settings = remembered.settings
    with _open_store() as store:
        notices = (*remembered.notices, *store.notices)  # that the file was moved aside is told at this opening alone
        interrupted = tidy_chats(store)
        if interrupted:  # the settings may not have got there before the program was killed
            settings = settings.changed(last_conversation=store.message(interrupted[-1]).conversation_id)
    named = None if arguments.target is None else PairSettings(target=arguments.target.absolute())
    starter = PairSettings(target=paths.starter_target(), draft=paths.starter_draft(), ngram=True)
    parts = application.Parts(
        service=ChatService(_open_store, load_pair),
        open_store=_open_store,
        settings=settings,
        save_settings=SettingsWriter(paths.settings_file(), remembered.settings).save,
        list_models=lambda: list_models(paths.models_dirs()),
        forge=forge,
        default_pair=starter if starter.target.is_file() else None,
        notices=notices,
        log_dir=paths.log_dir(),
        data_dir=paths.data_dir(),
        pair=named,
    )
    return application.run(parts, ())


def tidy_chats(store: "HistoryStore") -> tuple[int, ...]:
    """Do what is due at a start: forget deleted chats; close and return answers that a killed program left open."""
    if store.read_only:
        return ()
    store.purge(older_than=_DELETED_KEPT_SECONDS)
    return store.recover_interrupted()


def _say(error: UserError, *, as_json: bool) -> int:
    """Tell the person what happened and what to do; with JSON also as the last line of the output."""
    _LOG.info("%s: %s", type(error).__name__, error)
    if as_json:
        line = {"event": "error", "sentence": error.sentence, "remedy": error.remedy, "notes": error.notes}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
    sys.stderr.write("\n".join(filter(None, (error.sentence, error.remedy, *error.notes))) + "\n")
    return _USER_ERROR


def _start_log() -> None:
    """Log into a rotating file, and native crashes into another; without a writable folder the program goes on."""
    from logging.handlers import RotatingFileHandler  # noqa: PLC0415 - it imports sockets, which --version can do without

    from draftlight import paths  # noqa: PLC0415 - see _run_command

    logging.captureWarnings(capture=True)
    sys.excepthook = _log_uncaught
    threading.excepthook = _log_uncaught_in_thread
    try:
        folder = paths.make_folder(paths.log_dir())
        handler = RotatingFileHandler(folder / "draftlight.log", maxBytes=1_000_000, backupCount=3, encoding="utf-8")
        crashes = (folder / "crash.log").open("a", encoding="utf-8")
    except (OSError, UserError) as error:
        sys.stderr.write(f"No log is kept: {error}\n")
        return
    handler.setFormatter(
        logging.Formatter("%(asctime)s %(process)d %(threadName)s %(levelname)s %(name)s: %(message)s")
    )
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    faulthandler.enable(file=crashes)
    _LOG.info("Draftlight %s starts: Python %s, %s", __version__, platform.python_version(), platform.platform())


def _report(bug: BaseException) -> int:
    """Write a crash report and name it. The report holds no chat and no prompt."""
    _LOG.error("A bug", exc_info=bug)
    report = "".join(
        [
            f"Draftlight {__version__}, Python {platform.python_version()}, {platform.platform()}\n\n",
            *traceback.format_exception(bug),
        ],
    )
    try:
        path = _crash_file()
        path.write_text(report, encoding="utf-8")
    except (OSError, UserError) as error:
        sys.stderr.write(f"{report}\nThis is a bug in Draftlight. The report above could not be saved: {error}\n")
    else:
        sys.stderr.write(f"This is a bug in Draftlight: {bug!r}.\nThe report is in {path}; please send it in.\n")
    return _BUG


def _crash_file() -> Path:
    from draftlight import paths  # noqa: PLC0415 - see _run_command

    stamp = time.strftime("%Y%m%d-%H%M%S")
    return paths.make_folder(paths.log_dir()) / f"crash-{stamp}-{os.getpid()}.txt"


def _log_uncaught(_kind: type[BaseException], error: BaseException, _traceback: TracebackType | None) -> None:
    _report(error)


def _log_uncaught_in_thread(uncaught: threading.ExceptHookArgs) -> None:
    if uncaught.exc_value is not None:
        _report(uncaught.exc_value)


def _open_store() -> "HistoryStore":
    """Open the chats for the calling thread. Raises UserError."""
    from draftlight import paths  # noqa: PLC0415 - see _run_command
    from draftlight.history.store import HistoryStore  # noqa: PLC0415 - see _run_command

    return HistoryStore.open(paths.chats_file())


def load_pair(settings: "PairSettings", cancel: "CancelToken") -> "Iterator[ModelLoading | LoadedPair]":
    """Check both files' headers, then load them: the loader of both front ends. Raises UserError.

    The headers tell in milliseconds, and in better words, what llama.cpp would find out late or by crashing.
    """
    from draftlight.llama.loader import load  # noqa: PLC0415 - see _run_command

    _check_files(settings)
    yield from load(settings, cancel)


def _check_files(settings: "PairSettings") -> None:
    """Raise UserError for files that cannot be a target and its draft model."""
    from draftlight.library.gguf import read_header  # noqa: PLC0415 - see _run_command
    from draftlight.library.pairing import check_pair  # noqa: PLC0415 - see _run_command

    target = read_header(settings.target)
    if not target.kind.writes_text:
        raise UserError(f"{settings.target.name} is {target.kind.description}.", "Choose a model that writes text.")
    if settings.draft is None:
        return
    verdict = check_pair(target, read_header(settings.draft))
    if not verdict.ok:
        raise UserError(
            f"{settings.draft.name} cannot draft for {settings.target.name}: {' '.join(verdict.reasons)}",
            "Choose another draft model, n-gram drafts or none.",
        )


def _library() -> str:
    """Name the build of llama.cpp that runs the models."""
    from draftlight.llama.library import library_version, system_info  # noqa: PLC0415 - see _run_command

    return f"llama-cpp-python {library_version()}: {system_info()}"


def _probe_pair(settings: "PairSettings", cancel: "CancelToken") -> "Iterator[ModelLoading | Preflight]":
    """Find out in a child process what works here. Raises UserError; KeyboardInterrupt after a cancel."""
    from draftlight.engine.events import ModelLoading  # noqa: PLC0415 - see _run_command
    from draftlight.llama import preflight  # noqa: PLC0415 - see _run_command
    from draftlight.llama.backend import LoadCancelled  # noqa: PLC0415 - see _run_command
    from draftlight.llama.report import Preflight  # noqa: PLC0415 - see _run_command

    _check_files(settings)
    try:
        for found in preflight.run(settings, cancel):
            yield found if isinstance(found, Preflight) else ModelLoading(found.sentence)
    except LoadCancelled:
        raise KeyboardInterrupt from None
