"""A conversation's widgets, or the whole window, opened for a test and handled as a person would."""

from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QMimeData, Qt
from PySide6.QtGui import QAction
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QPlainTextEdit, QPushButton
from pytestqt.qtbot import QtBot

from draftlight.chat.service import ChatService, GenerationOptions, PairReady
from draftlight.engine.decoding import Mode
from draftlight.engine.sampling import SamplingParams
from draftlight.history.store import HistoryStore
from draftlight.settings import Settings
from draftlight.ui.chat.composer import Composer
from draftlight.ui.chat.controller import ChatController, ChatWidgets
from draftlight.ui.chat.conversation_list import ConversationList
from draftlight.ui.chat.status_bar import StatusBar
from draftlight.ui.chat.transcript import TranscriptView
from draftlight.ui.jobs import JobThread
from draftlight.ui.main_window import MainWindow
from draftlight.ui.theme import Theme
from gui.scripted import PAIR, ScriptedLoader, StoryDecoder

QUESTION = "What is the capital of France?"
READY = PairReady(PAIR, 2048, Mode.FAST, ())


class Screen:
    """A controller with everything around it."""

    def __init__(self, path: Path, service: ChatService, decoder: StoryDecoder, theme: Theme) -> None:
        self.decoder = decoder
        self.store = HistoryStore.open(path)
        self.engine, self.reader = JobThread("engine"), JobThread("chats")
        self.widgets = ChatWidgets(TranscriptView(theme), Composer(), ConversationList(self.store), StatusBar())
        self.controller = ChatController(
            service,
            lambda: HistoryStore.open(path),
            self.store,
            (self.engine, self.reader),
            self.widgets,
            lambda: GenerationOptions(SamplingParams(temperature=0.7), draft_length=3, seed=7),
        )
        self.told = told = list[str]()
        self.controller.failed.connect(lambda error: told.append(str(error)))  # not self: a cycle would free it late
        self.controller.noticed.connect(told.append)

    def type_and_send(self, text: str) -> None:
        entry = self.widgets.composer.findChild(QPlainTextEdit)
        assert entry is not None
        pasted = QMimeData()
        pasted.setText(text)
        entry.insertFromMimeData(pasted)
        QTest.keyClick(entry, Qt.Key.Key_Return)

    def finish(self, qtbot: QtBot) -> None:
        """Wait until no answer is coming and no chat is being read."""
        qtbot.waitUntil(lambda: not (self.controller.busy or self.engine.busy or self.reader.busy), timeout=10_000)

    def ask(self, qtbot: QtBot, text: str = QUESTION) -> int:
        """Send a message, wait for its answer, return the conversation."""
        self.type_and_send(text)
        self.finish(qtbot)
        assert self.controller.current is not None
        return self.controller.current

    def open(self, qtbot: QtBot, conversation: int) -> None:
        """Open a conversation and wait until it is read."""
        self.controller.open_conversation(conversation)
        qtbot.waitUntil(lambda: not self.reader.busy)

    @property
    def shown(self) -> str:
        return self.widgets.transcript.toPlainText()

    @property
    def button(self) -> QPushButton:
        found = self.widgets.composer.findChild(QPushButton)
        assert found is not None
        return found


@dataclass
class Opened:
    """The whole window."""

    window: MainWindow
    store: HistoryStore
    decoder: StoryDecoder
    loader: ScriptedLoader
    saved: list[Settings]

    @property
    def entry(self) -> QPlainTextEdit:
        found = self.window.composer.findChild(QPlainTextEdit)
        assert found is not None
        return found

    def send(self, text: str) -> None:
        self.entry.setPlainText(text)
        QTest.keyClick(self.entry, Qt.Key.Key_Return)

    def finish(self, qtbot: QtBot) -> None:
        """Wait until no answer is coming."""
        qtbot.waitUntil(lambda: not self.window.controller.busy, timeout=10_000)

    def act(self, text: str) -> None:
        """Trigger a menu entry."""
        found = [action for action in self.window.findChildren(QAction) if action.text() == text]
        assert len(found) == 1, text
        found[0].trigger()
