"""The answer that the engine is working on, and how it ended: on disk, on the screen, or only in part. No widgets."""

from dataclasses import dataclass

from draftlight.chat.trace import Trace
from draftlight.errors import UserError
from draftlight.history.records import Status
from draftlight.history.store import HistoryStore
from draftlight.ui.chat.shown_messages import FAULT, STOPPED, closing_notes
from draftlight.ui.chat.transcript_document import ShownMessage
from draftlight.ui.jobs import Job

_UNSAVED = "The end of this answer is not saved"


@dataclass(slots=True)
class RunningAnswer:
    """What is known of it so far. `failure` is the exception that ended its job."""

    job: Job
    conversation_id: int
    answer: ShownMessage
    asked: ShownMessage | None  # None when an old question is answered again
    answer_id: int | None = None
    waiting: str = "Reading …"
    stopped: bool = False
    failure: BaseException | None = None

    @property
    def unasked(self) -> ShownMessage | None:
        """The question, where it never reached the disk."""
        return self.asked if self.asked is not None and self.asked.message_id is None else None


@dataclass(frozen=True, slots=True)
class Ending:
    """What stands below an answer, and which of that the person should also be told, as the disk lacks it.

    `mode` is the one that it was made in, empty where the disk does not tell.
    """

    notes: tuple[str, ...]
    told: tuple[str, ...] = ()
    mode: str = ""


def ending_of(running: RunningAnswer, store: HistoryStore) -> Ending:
    """Return how an answer ended, from its row on disk; where that is not its last state, from what failed."""
    stopped = (STOPPED,) if running.stopped else ()
    if running.answer_id is None:
        return Ending(stopped if running.failure is None else (_reason(running.failure, "No answer"),))
    lost: tuple[str, ...] = ()
    try:
        message = store.message(running.answer_id)
        if message.status is not Status.STREAMING:
            mode = "" if message.settings is None else message.settings.mode
            return Ending(closing_notes(message, running.answer.trace), mode=mode)
    except UserError as error:
        lost = (str(error),)
    unsaved = _unsaved(running.answer.trace, running.failure)
    return Ending((*stopped, *unsaved), (*unsaved, *lost))


def _unsaved(trace: Trace | None, failure: BaseException | None) -> tuple[str, ...]:
    """Return what failed: the model, or saving what it had finished, or both (saving is then a note of the error)."""
    if failure is None:
        return ()
    finished = trace is not None and trace.finished is not None
    notes = [f"{_UNSAVED}: {note}" for note in getattr(failure, "__notes__", ())]
    return (_reason(failure, _UNSAVED if finished else "This answer failed"), *notes)


def _reason(failure: BaseException, what: str) -> str:
    return f"{what}: {failure}" if isinstance(failure, UserError) else FAULT
