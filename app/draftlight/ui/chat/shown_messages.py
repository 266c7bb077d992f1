"""From what is on disk to what the transcript shows: headings, closing notes, replayed traces. Knows no widget."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from draftlight.chat.figures import AUDIT_FAILED, near_ties
from draftlight.chat.service import AND_NGRAM, drafted_by
from draftlight.chat.trace import Trace
from draftlight.engine.cancel import CancelToken
from draftlight.engine.events import StopReason
from draftlight.errors import UserError
from draftlight.history.records import AnswerSettings, Message, Role, Status
from draftlight.history.store import HistoryStore
from draftlight.settings import NGRAM, NO_DRAFT, PairSettings
from draftlight.ui.chat.figures import summary
from draftlight.ui.chat.transcript_document import ShownMessage
from draftlight.ui.jobs import Work

STOPPED = "Stopped by you."
FAULT = "A fault in the program ended this answer. The log has the details."
_PERSON = "You"
_MODEL = "Model"
_NOTHING_SAVED = "Draftlight ended before any of this answer was saved. Ctrl+R asks again."
_UNFINISHED = {
    Status.STOPPED: STOPPED,
    Status.INTERRUPTED: "Draftlight ended in the middle of this answer. This is what had been saved.",
    Status.STREAMING: "When this chat was opened, the end of this answer was not saved.",
}
_LIMITS: dict[str, str] = {
    StopReason.LENGTH: "Ended at the longest answer that is allowed.",
    StopReason.CONTEXT_FULL: "Ended because the context is full.",
}
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ConversationRead:
    """A conversation as it is on disk."""

    conversation_id: int
    messages: tuple[ShownMessage, ...]


def read_conversation(open_store: Callable[[], HistoryStore], conversation_id: int) -> Work:
    """Return the work of reading a conversation and replaying its traces, which takes a moment for a long one."""

    def work(cancel: CancelToken) -> Iterator[ConversationRead]:
        shown: list[ShownMessage] = []
        with open_store() as store:
            for message in store.messages(conversation_id):
                if cancel.cancelled:
                    return
                shown.append(_from_disk(message, store))
        yield ConversationRead(conversation_id, tuple(shown))

    return work


def question(text: str, message_id: int | None = None) -> ShownMessage:
    """Return a person's message."""
    return ShownMessage(_PERSON, text, from_person=True, message_id=message_id)


def coming_answer(pair: PairSettings, draft_length: int | None, temperature: float) -> ShownMessage:
    """Return an answer that has not begun."""
    heading = _heading(pair.target.name, drafted_by(pair, draft_length), draft_length)
    return ShownMessage(heading, trace=Trace(), greedy=temperature == 0)


def closing_notes(message: Message, trace: Trace | None) -> tuple[str, ...]:
    """Return what stands below an answer: how it ended, why nothing was drafted, its figures."""
    notes = [_ending(message)]
    if trace is not None:
        mode = "" if message.settings is None else message.settings.mode
        failed = AUDIT_FAILED if trace.stats.n_audit_failures else ""
        notes += [_why_no_draft(trace), failed, _figures(trace, message.settings), near_ties(trace.stats, mode)]
    return tuple(note for note in notes if note)


def dropped_turns(n_turns: int) -> str:
    """Return the sentence that says which turns the model does not see."""
    oldest = "The oldest turn no longer fits" if n_turns == 1 else f"The {n_turns} oldest turns no longer fit"
    return f"{oldest} into the context: the model does not see what was said there."


def _from_disk(message: Message, store: HistoryStore) -> ShownMessage:
    if message.role is Role.USER:
        return question(message.text, message.id)
    made = message.settings
    trace: Trace | None = None
    notes: tuple[str, ...] = ()
    try:
        trace = Trace.replay(store.rounds(message.id))
    except UserError as error:  # the text is still there; only its colours are lost
        _log.warning("The trace of message %d cannot be read: %s", message.id, error)
        notes = (str(error),)
    if trace is not None and not trace.spans:
        trace = None
    heading = _MODEL if made is None else _heading(made.target, made.draft, made.draft_length)
    return ShownMessage(
        heading,
        message.text,
        trace,
        greedy=made is not None and made.temperature == 0,
        mode="" if made is None else made.mode,
        message_id=message.id,
        notes=(*notes, *closing_notes(message, trace)),
    )


def _heading(target: str, draft: str, draft_length: int | None) -> str:
    name = target.removesuffix(".gguf")
    if draft == NO_DRAFT or draft_length == 0:
        return f"{name}, plain decoding"
    with_ngrams = draft.endswith(AND_NGRAM)
    model = draft.removesuffix(AND_NGRAM).removesuffix(".gguf")
    proposer = "n-grams" if draft == NGRAM else f"{model} and n-grams" if with_ngrams else model
    length = "K automatic" if draft_length is None else f"K = {draft_length}"
    return f"{name}, drafted by {proposer}, {length}"


def _ending(message: Message) -> str:
    if message.status is Status.FAILED:
        return f"This answer failed: {message.error or FAULT}"
    if message.status is Status.COMPLETE:
        return _LIMITS.get(message.stop_reason, "")
    if message.status is Status.INTERRUPTED and not message.text:
        return _NOTHING_SAVED
    return _UNFINISHED[message.status]


def _why_no_draft(trace: Trace) -> str:
    reasons = [verified.no_draft_reason for verified in trace.rounds if not verified.drafted]
    if not reasons or len(reasons) < len(trace.rounds):
        return ""
    reason = max(set(reasons), key=reasons.count)
    return f"Nothing was drafted: {reason}" if reason else ""


def _figures(trace: Trace, made: AnswerSettings | None) -> str:
    figures = summary(trace.stats, "" if made is None else made.mode)
    return f"{figures} · seed {made.seed}" if figures and made is not None else figures
