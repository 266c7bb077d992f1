"""From what the person does to jobs, and from what jobs report to the screen. What was typed is never lost."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from draftlight.chat.service import (
    ChatService,
    GenerationOptions,
    MessageSaved,
    PairReady,
    SaveFailed,
    TurnsDropped,
)
from draftlight.engine.cancel import CancelToken
from draftlight.engine.events import GenerationFinished, PromptEvaluated, RoundVerified, TokenDrafted
from draftlight.errors import UserError
from draftlight.history.records import Role
from draftlight.history.store import HistoryStore
from draftlight.ui.chat.composer import Composer
from draftlight.ui.chat.conversation_list import ConversationList
from draftlight.ui.chat.shown_messages import (
    FAULT,
    ConversationRead,
    closing_notes,
    coming_answer,
    dropped_turns,
    question,
    read_conversation,
)
from draftlight.ui.chat.status_bar import StatusBar
from draftlight.ui.chat.transcript import TranscriptView
from draftlight.ui.chat.transcript_document import ShownMessage
from draftlight.ui.jobs import Job, JobThread

_FIGURES_EVERY_MS = 200
LOADING = "The models are being made ready"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChatWidgets:
    """The parts of the screen that the controller fills."""

    transcript: TranscriptView
    composer: Composer
    conversations: ConversationList
    status: StatusBar


@dataclass(slots=True)
class _Running:
    """The answer that the engine is working on."""

    job: Job
    conversation_id: int
    answer: ShownMessage
    asked: ShownMessage | None  # None when an old question is answered again
    answer_id: int | None = None
    waiting: str = "Reading …"
    stopped: bool = False
    failure: BaseException | None = None


class ChatController(QObject):
    """One conversation on the screen, at most one answer coming, perhaps in another conversation."""

    failed = Signal(object)  # the exception that a notice should tell
    noticed = Signal(str)
    conversation_shown = Signal(object)  # its id, None for a new one
    answering = Signal(bool)

    def __init__(
        self,
        service: ChatService,
        open_store: Callable[[], HistoryStore],
        store: HistoryStore,
        threads: tuple[JobThread, JobThread],
        widgets: ChatWidgets,
        options: Callable[[], GenerationOptions],
        parent: QObject | None = None,
    ) -> None:
        """Connect the widgets. `threads` are the engine's and the one that reads chats; `options` tells the choices."""
        super().__init__(parent)
        self._service = service
        self._open_store = open_store
        self._store = store
        self._engine, self._reader = threads
        self._widgets = widgets
        self._options = options
        self.system_prompt = ""
        self._pair: PairReady | None = None
        self._current: int | None = None
        self._reading: Job | None = None
        self._running: _Running | None = None
        self._figures = QTimer(self)
        self._figures.setInterval(_FIGURES_EVERY_MS)
        self._figures.timeout.connect(self._show_figures)
        widgets.composer.sent.connect(self.send)
        widgets.composer.stop_asked.connect(self.stop)
        widgets.conversations.chosen.connect(self.open_conversation)
        widgets.conversations.deleted.connect(self._on_deleted)
        widgets.conversations.new_asked.connect(self.new_chat)
        widgets.conversations.failed.connect(self.failed)
        self.set_pair(None)

    @property
    def current(self) -> int | None:
        """The conversation on the screen, None for one that has not begun."""
        return self._current

    @property
    def busy(self) -> bool:
        """Whether an answer is coming."""
        return self._running is not None

    def set_pair(self, pair: PairReady | None, obstacle: str = LOADING) -> None:
        """Take note of the models that are loaded, or say why none are; a message waits while they are LOADING."""
        self._pair = pair
        self._obstacle = "" if pair is not None else obstacle
        self._refresh_composer()
        self._widgets.status.show_context(0, 0 if pair is None else pair.n_ctx)

    @Slot()
    def new_chat(self) -> None:
        """Show an empty conversation; it is stored with its first message."""
        self._show(None, ())
        self._widgets.composer.setFocus()

    @Slot(int)
    def open_conversation(self, conversation_id: int) -> None:
        """Read a conversation from disk and show it."""
        if self._reading is not None:
            self._reading.cancel()
        self._current = conversation_id
        self._reading = Job(read_conversation(self._open_store, conversation_id))
        self._reading.reported.connect(self._on_read)
        self._reading.failed.connect(self._on_read_failed)
        self._reader.start(self._reading)
        self._refresh_composer()

    @Slot(str)
    def send(self, text: str) -> None:
        """Send a message; should that fail before it is on disk, it goes back to where it was typed."""
        pair = self._pair
        if self._running is not None or pair is None:
            self._widgets.composer.restore(text)
            return
        if self._current is None:
            try:
                self._current = self._store.create_conversation(self.system_prompt).id
            except UserError as error:
                self._widgets.composer.restore(text)
                self.failed.emit(error)
                return
            self.conversation_shown.emit(self._current)
        asked = question(text)
        self._widgets.transcript.add_message(asked)
        self._start(partial(self._service.send, self._current, text), asked, pair)

    @Slot()
    def regenerate(self) -> None:
        """Answer the last question again; the old answer stays on disk."""
        shown = self._widgets.transcript.messages
        pair = self._pair
        if self._running is not None or self._reading is not None or pair is None or not shown:
            return
        # an answer that never began is not on disk: its question is answered then
        on_disk = next((message.message_id for message in reversed(shown) if message.message_id is not None), None)
        if on_disk is None:
            return
        if not shown[-1].from_person:
            self._widgets.transcript.drop_messages(len(shown) - 1)
        self._start(partial(self._service.regenerate, on_disk), None, pair)

    @Slot()
    def stop(self) -> None:
        """Stop the answer: shown at once, whatever the engine is still doing."""
        running = self._running
        self._widgets.composer.hold()
        if running is None or running.stopped:
            return
        running.stopped = True
        running.job.cancel()
        running.answer.notes = ("Stopped by you.",)
        if self._is_shown(running):
            self._widgets.transcript.freeze()
        self._widgets.status.show_state("Stopped")
        self._refresh_composer()

    def _start(
        self,
        ask: Callable[[GenerationOptions, CancelToken], Iterator[object]],
        asked: ShownMessage | None,
        pair: PairReady,
    ) -> None:
        options = self._options()
        answer = coming_answer(pair.settings, options.draft_length, options.sampling.temperature)
        job = Job(partial(ask, options))
        if self._current is None:
            raise AssertionError("an answer belongs to a conversation")
        self._running = _Running(job, self._current, answer, asked)
        job.reported.connect(self._on_reported)
        job.failed.connect(self._on_failed)
        job.finished.connect(self._on_finished)
        self._widgets.transcript.open_answer(answer, self._running.waiting)
        self._widgets.status.show_state("Reading the prompt …")
        self._figures.start()
        self._engine.start(job)
        self._refresh_composer()
        self.answering.emit(True)

    @Slot(object)
    def _on_reported(self, event: object) -> None:
        running = self._running
        if running is None or running.answer.trace is None:
            return
        transcript = self._widgets.transcript
        match event:
            case MessageSaved():
                self._on_saved(running, event)
            case TurnsDropped():
                running.answer.remarks = (dropped_turns(event.n_turns),)
                if self._is_shown(running):
                    transcript.drop_messages(len(transcript.messages) - 1)
                    self._show_coming(running)
            case PromptEvaluated():
                running.answer.trace.apply(event)
                running.waiting = f"Reading the prompt: {event.n_evaluated:,} of {event.n_tokens:,} tokens"
                if self._is_shown(running) and not running.stopped:
                    transcript.set_waiting(running.waiting)
            case TokenDrafted() | RoundVerified() | GenerationFinished():
                change = running.answer.trace.apply(event)
                if self._is_shown(running):
                    transcript.spans_changed(change.first)
            case SaveFailed():
                self.noticed.emit(event.sentence)

    def _on_saved(self, running: _Running, saved: MessageSaved) -> None:
        if saved.role == Role.ASSISTANT:
            running.answer_id = running.answer.message_id = saved.message_id
        elif running.asked is not None:
            running.asked.message_id = saved.message_id
            self._widgets.conversations.refresh()
            if self._is_shown(running):
                self._widgets.conversations.set_current(self._current)

    @Slot(object)
    def _on_failed(self, error: BaseException) -> None:
        if self._running is not None:
            self._running.failure = error

    @Slot()
    def _on_finished(self) -> None:
        running, self._running = self._running, None
        if running is None:
            return
        self._figures.stop()
        shown = running.conversation_id == self._current and self._reading is None
        unsaved = running.asked is not None and running.asked.message_id is None
        running.answer.notes = self._notes(running)
        if shown:
            self._show_figures_of(running)
            self._widgets.transcript.close_answer()
        if unsaved and running.asked is not None:
            self._take_back(running.asked, shown=shown)
        if unsaved and running.failure is not None:
            self.failed.emit(running.failure)
        self._widgets.status.show_state("Stopped" if running.stopped else "")
        self._widgets.conversations.refresh()
        self._refresh_composer()
        self.answering.emit(False)

    def _take_back(self, asked: ShownMessage, *, shown: bool) -> None:
        """Undo a message that never reached the disk."""
        transcript = self._widgets.transcript
        if shown and asked in transcript.messages:
            transcript.drop_messages(list(transcript.messages).index(asked))
        self._widgets.composer.restore(asked.text)

    def _notes(self, running: _Running) -> tuple[str, ...]:
        """Return what stands below the answer, from what is on disk where it got there."""
        if running.answer_id is not None:
            try:
                return closing_notes(self._store.message(running.answer_id), running.answer.trace)
            except UserError as error:
                self.failed.emit(error)
        if running.failure is not None:
            told = isinstance(running.failure, UserError)
            return (f"No answer: {running.failure}" if told else FAULT,)
        return ("Stopped by you.",) if running.stopped else ()

    @Slot(object)
    def _on_read(self, read: ConversationRead) -> None:
        if read.conversation_id != self._current:
            return
        self._reading = None
        running = self._running
        messages = read.messages
        if running is not None and running.conversation_id == self._current:
            messages = tuple(message for message in messages if message.message_id != running.answer_id)
            if running.asked is not None and all(not _same_question(message, running.asked) for message in messages):
                messages = (*messages, running.asked)
        self._show(self._current, messages)

    @Slot(object)
    def _on_read_failed(self, error: BaseException) -> None:
        self._reading = None
        self.failed.emit(error)
        self._show(None, ())

    @Slot(int)
    def _on_deleted(self, conversation_id: int) -> None:
        if self._running is not None and self._running.conversation_id == conversation_id:
            self.stop()
        if conversation_id == self._current:
            self.new_chat()

    def _show(self, conversation_id: int | None, messages: tuple[ShownMessage, ...]) -> None:
        if conversation_id is None and self._reading is not None:
            self._reading.cancel()
            self._reading = None
        self._current = conversation_id
        self._widgets.transcript.show_messages(messages)
        running = self._running
        if running is not None and self._is_shown(running):
            self._show_coming(running)
        self._widgets.conversations.set_current(conversation_id)
        self._refresh_composer()
        self.conversation_shown.emit(conversation_id)

    def _show_coming(self, running: _Running) -> None:
        self._widgets.transcript.open_answer(running.answer, running.waiting)
        if running.stopped:
            self._widgets.transcript.freeze()

    def _is_shown(self, running: _Running) -> bool:
        return running.conversation_id == self._current and self._reading is None

    def _refresh_composer(self) -> None:
        running = self._running
        here = running is not None and running.conversation_id == self._current
        composer = self._widgets.composer
        composer.set_answering(answering=here and running is not None and not running.stopped)
        if running is not None and running.stopped:
            composer.set_obstacle("Stopping", passing=True)
        elif running is not None and not here:
            composer.set_obstacle("Another chat is being answered")
        elif self._reading is not None:
            composer.set_obstacle("Opening the chat", passing=True)
        else:
            composer.set_obstacle(self._obstacle, passing=self._obstacle == LOADING)

    @Slot()
    def _show_figures(self) -> None:
        if self._running is not None:
            self._show_figures_of(self._running)

    def _show_figures_of(self, running: _Running) -> None:
        trace, status = running.answer.trace, self._widgets.status
        if trace is None or not self._is_shown(running):
            return
        stats = trace.stats
        status.show_stats(stats)
        if self._pair is not None and trace.prompt is not None:
            status.show_context(trace.prompt.n_tokens + stats.n_committed, self._pair.n_ctx)
        if trace.rounds and not running.stopped:
            status.show_state("Answering")


def _same_question(shown: ShownMessage, asked: ShownMessage) -> bool:
    """Whether both are the same message; before its id is known, its text must do."""
    if asked.message_id is not None:
        return shown.message_id == asked.message_id
    return shown.from_person and shown.text == asked.text
