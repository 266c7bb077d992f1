"""The window as a program: one instance, errors reported, everything stopped at the end."""

import logging
import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from PySide6.QtCore import QMessageLogContext, QObject, Qt, QtMsgType, Signal, Slot, qInstallMessageHandler
from PySide6.QtWidgets import QApplication, QMessageBox

from draftlight.chat.service import ChatService
from draftlight.errors import UserError
from draftlight.history.store import HistoryStore
from draftlight.settings import PairSettings, Settings
from draftlight.ui.forge.run import Forge
from draftlight.ui.jobs import GarbageCollector
from draftlight.ui.main_window import MainWindow, WindowParts
from draftlight.ui.models.listing import ListModels
from draftlight.ui.single_instance import SingleInstance
from draftlight.ui.theme import Theme

_LEVELS = {
    QtMsgType.QtDebugMsg: logging.DEBUG,
    QtMsgType.QtInfoMsg: logging.INFO,
    QtMsgType.QtWarningMsg: logging.WARNING,
    QtMsgType.QtCriticalMsg: logging.ERROR,
    QtMsgType.QtFatalMsg: logging.CRITICAL,
}
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Parts:
    """What the window needs of the rest. `open_store` and `list_models` are called on more than one thread."""

    service: ChatService
    open_store: Callable[[], HistoryStore]
    settings: Settings
    save_settings: Callable[[Settings], None]
    list_models: ListModels
    forge: Forge
    default_pair: PairSettings | None
    notices: tuple[str, ...]
    log_dir: Path
    data_dir: Path
    pair: PairSettings | None = None  # named on the command line: loaded before what the settings say


class _FaultReporter(QObject):
    """Logs what nobody caught and says so, once at a time. Faults of other threads come here by a queued signal."""

    _fault = Signal(str)

    def __init__(self, log_dir: Path) -> None:
        super().__init__()
        self._log_dir = log_dir
        self._open = False
        self._fault.connect(self._tell, Qt.ConnectionType.QueuedConnection)

    def install(self) -> None:
        sys.excepthook = self._report
        threading.excepthook = self._report_thread

    def _report(self, kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            QApplication.quit()
            return
        _log.critical("Nobody caught this", exc_info=(kind, error, traceback))
        self._fault.emit(str(error) if isinstance(error, UserError) else f"{kind.__name__}: {error}")

    def _report_thread(self, fault: threading.ExceptHookArgs) -> None:
        error = fault.exc_value or fault.exc_type()
        self._report(fault.exc_type, error, fault.exc_traceback)

    @Slot(str)
    def _tell(self, what: str) -> None:
        if self._open:
            return
        self._open = True
        QMessageBox.critical(
            None,
            "Draftlight",
            f"Something went wrong in the program: {what}\n\nYour chats are saved. Details are in {self._log_dir}.",
        )
        self._open = False


def run(parts: Parts, argv: Sequence[str]) -> int:
    """Show the window until it is closed; return the exit status, 0 also where another window was raised instead.

    Raises UserError where the chats cannot be opened at all.
    """
    qInstallMessageHandler(_log_message)
    application = QApplication(list(argv))
    application.setApplicationName("Draftlight")
    application.setDesktopFileName("draftlight")
    instance = SingleInstance(parts.data_dir)
    if not instance.acquire():
        sys.stdout.write("Draftlight is already open; its window was brought to the front.\n")
        return 0
    reporter = _FaultReporter(parts.log_dir)
    reporter.install()
    collector = GarbageCollector(application)
    try:
        with parts.open_store() as store:
            ended = _show(application, parts, store, instance)
    finally:
        collector.stop()
        instance.release()
    logging.shutdown()
    if not ended:
        sys.stdout.flush()
        os._exit(0)  # a thread is stuck inside a library; everything is saved, and ending it by force could hang
    return 0


def _show(application: QApplication, parts: Parts, store: HistoryStore, instance: SingleInstance) -> bool:
    """Run the window; tell whether all its threads ended."""
    theme = Theme(application)
    window = MainWindow(
        WindowParts(
            parts.service,
            parts.open_store,
            store,
            parts.settings,
            parts.save_settings,
            parts.list_models,
            parts.forge,
            parts.default_pair,
            parts.data_dir / "window.ini",
        ),
        theme,
    )
    instance.raised.connect(window.bring_to_front)
    for notice in (*parts.notices, *store.notices):
        window.notices.tell(notice)
    try:
        window.show()
        window.start(parts.pair)
        application.exec()
    finally:  # Qt aborts the process where a thread still runs when it is freed
        ended = window.shutdown()
        if ended:
            parts.service.unload()
    return ended


def _log_message(kind: QtMsgType, context: QMessageLogContext, message: str) -> None:
    logging.getLogger(f"qt.{context.category or 'default'}").log(_LEVELS.get(kind, logging.WARNING), "%s", message)
    if kind is QtMsgType.QtFatalMsg:  # Qt ends the process next, for example where the display does not answer
        sys.stderr.write(f"The window cannot open: {message.strip()}\nRun this instead: draftlight chat\n")
        sys.stderr.flush()
