"""From what the person does to jobs, and from what jobs report to the screen. What was typed is never lost."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from draftlight.chat.figures import AUDIT_FAILED
from draftlight.chat.service import (
    ChatService,
    GenerationOptions,
    MessageSaved,
    PairReady,
    SaveFailed,
    ThreadsChanged,
    TurnsDropped,
)
from draftlight.chat.trace import Trace
from draftlight.engine.cancel import CancelToken
from draftlight.engine.events import GenerationFinished, PromptEvaluated, RoundVerified, TokenDrafted
from draftlight.engine.metrics import SpeculationStats
from draftlight.errors import UserError
from draftlight.history.records import Role
from draftlight.history.store import HistoryStore
from draftlight.ui.chat.composer import Composer
from draftlight.ui.chat.conversation_list import ConversationList
from draftlight.ui.chat.running_answer import RunningAnswer, ending_of
from draftlight.ui.chat.shown_messages import (
    STOPPED,
    ConversationRead,
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


class ChatController(QObject):
    """One conversation on the screen, at most one answer coming, perhaps in another conversation."""

    failed = Signal(object)  # the exception that a notice should tell
    noticed = Signal(str)
    conversation_shown = Signal(object)  # its id, None for a new one
    answering = Signal(bool)
    answer_failed = Signal()

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
        self._running: RunningAnswer | None = None
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
        self._show_figures()

    @Slot()
    def new_chat(self) -> None:
        """Show an empty conversation; it is stored with its first message."""
        self._show(None, ())
        self._widgets.composer.setFocus()

    @Slot(int)
    def open_conversation(self, conversation_id: int) -> None:
        """Read a conversation from disk and show it."""
        self._forget_reading()
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
        running.answer.notes = (STOPPED,)
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
        self._running = RunningAnswer(job, self._current, answer, asked)
        job.reported.connect(self._on_reported)
        job.failed.connect(self._on_failed)
        job.finished.connect(self._on_finished)
        self._widgets.transcript.open_answer(answer, self._running.waiting)
        self._widgets.status.show_state("Reading the prompt …")
        self._widgets.status.show_threads()
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
                self._on_token(running, running.answer.trace, event)
            case SaveFailed():
                self.noticed.emit(event.sentence)
            case ThreadsChanged():
                self._widgets.status.show_threads(event.state)

    def _on_token(
        self, running: RunningAnswer, trace: Trace, event: TokenDrafted | RoundVerified | GenerationFinished
    ) -> None:
        change = trace.apply(event)
        if self._is_shown(running):
            self._widgets.transcript.spans_changed(change.first)
        if isinstance(event, RoundVerified) and event.audit is False:
            self.noticed.emit(AUDIT_FAILED)

    def _on_saved(self, running: RunningAnswer, saved: MessageSaved) -> None:
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
        here = running.conversation_id == self._current
        shown = here and self._reading is None
        self._end_trace(running, shown=shown)
        ending = ending_of(running, self._store)
        running.answer.notes, running.answer.mode = ending.notes, ending.mode
        for sentence in ending.told:
            self.noticed.emit(sentence)
        if shown:
            self._show_figures()
            self._widgets.transcript.close_answer()
        elif here:  # what is being read may lack the answer's end
            self.open_conversation(running.conversation_id)
        if running.unasked is not None:
            self._take_back(running.unasked, shown=shown)
            if running.failure is not None:
                self.failed.emit(running.failure)
        self._widgets.status.show_state("Stopped" if running.stopped and here else "")
        self._widgets.conversations.refresh()
        self._refresh_composer()
        if running.failure is not None:
            self.answer_failed.emit()
        self.answering.emit(False)

    def _end_trace(self, running: RunningAnswer, *, shown: bool) -> None:
        """Leave no token waiting for a verdict that will not come."""
        trace = running.answer.trace
        if trace is not None and trace.finished is None:
            change = trace.break_off()
            if shown:
                self._widgets.transcript.spans_changed(change.first)

    def _take_back(self, asked: ShownMessage, *, shown: bool) -> None:
        """Undo a message that never reached the disk."""
        transcript = self._widgets.transcript
        if shown and asked in transcript.messages:
            transcript.drop_messages(list(transcript.messages).index(asked))
        self._widgets.composer.restore(asked.text)

    @Slot(object)
    def _on_read(self, read: ConversationRead) -> None:
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

    def _forget_reading(self) -> None:
        """Hear no more of a chat that was being read: another one is wanted."""
        if self._reading is not None:
            self._reading.cancel()
            self._reading.reported.disconnect(self._on_read)
            self._reading.failed.disconnect(self._on_read_failed)
            self._reading = None

    @Slot(int)
    def _on_deleted(self, conversation_id: int) -> None:
        if self._running is not None and self._running.conversation_id == conversation_id:
            self.stop()
        if conversation_id == self._current:
            self.new_chat()

    def _show(self, conversation_id: int | None, messages: tuple[ShownMessage, ...]) -> None:
        if conversation_id is None:
            self._forget_reading()
        self._current = conversation_id
        self._widgets.transcript.show_messages(messages)
        running = self._running
        if running is not None and self._is_shown(running):
            self._show_coming(running)
        self._widgets.status.show_state("")
        self._show_figures()
        self._widgets.conversations.set_current(conversation_id)
        self._refresh_composer()
        self.conversation_shown.emit(conversation_id)

    def _show_coming(self, running: RunningAnswer) -> None:
        self._widgets.transcript.open_answer(running.answer, running.waiting)
        if running.stopped:
            self._widgets.transcript.freeze()

    def _is_shown(self, running: RunningAnswer) -> bool:
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
        """Show the figures of the last answer on the screen, the coming one as well as one from disk."""
        status, running = self._widgets.status, self._running
        shown = self._widgets.transcript.messages
        traces = [message.trace for message in shown if message.trace is not None]
        mode = next((message.mode for message in reversed(shown) if message.trace is not None), "")
        status.show_stats(traces[-1].stats if traces else SpeculationStats(), mode)
        read = next((trace for trace in reversed(traces) if trace.prompt is not None), None)
        used = 0 if read is None or read.prompt is None else read.prompt.n_tokens + read.stats.n_committed
        status.show_context(used, 0 if self._pair is None else self._pair.n_ctx)
        if running is not None and not running.stopped and self._is_shown(running) and traces and traces[-1].rounds:
            status.show_state("Answering")


def _same_question(shown: ShownMessage, asked: ShownMessage) -> bool:
    """Whether both are the same message; before its id is known, its text must do."""
    if asked.message_id is not None:
        return shown.message_id == asked.message_id
    return shown.from_person and shown.text == asked.text
