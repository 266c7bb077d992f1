"""A decoder that plays rounds of drafts, with the real service and the real store around it."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from draftlight.chat.service import ChatService, LoadedPair
from draftlight.chat.trace import Trace
from draftlight.engine.cancel import CancelToken
from draftlight.engine.decoding import GenerationRequest, SpeculativeDecoder
from draftlight.engine.events import (
    Alternative,
    DraftSource,
    Event,
    GenerationFinished,
    ModelLoading,
    PromptEvaluated,
    RoundVerified,
    StopReason,
    TokenDrafted,
    TokenFate,
    TokenReport,
)
from draftlight.engine.ledger import StatsLedger
from draftlight.engine.model import Token
from draftlight.errors import UserError
from draftlight.history.store import HistoryStore
from draftlight.settings import PairSettings
from draftlight.ui.chat.transcript_document import ShownMessage
from scripted_chat import Pair

PAIR = PairSettings(Path("/models/big-target.gguf"), Path("/models/small-draft.gguf"), ngram=True)
_CHOICE_SCORE = 1.25


@dataclass(frozen=True)
class Round:
    """What one round drafts and what of it is accepted; `own` is the target's token, None where the answer ended."""

    drafted: Sequence[str]
    n_accepted: int
    own: str | None
    no_draft_reason: str = ""
    audit: bool | None = None
    saved_ms: float = 0.0


# fmt: off
STORY = (
    Round((" The", " capital", " of"), 3, " France"),
    Round((" is", " London", " and"), 1, " Paris"),
    Round((",", " a", " city"), 3, " of"),
    Round((" light", " and", " lots"), 2, " love"),
    Round((".", " It", " is"), 1, " The"),
    Round((" river", " Seine", " runs"), 3, " through"),
    Round((" the", " city", " center"), 1, " middle"),
    Round((" of", " the", " city"), 2, " town"),
    Round((".",), 1, None),
)
# fmt: on


def round_events(
    number: int, position: int, played: Round, text_length: int
) -> tuple[list[TokenDrafted], RoundVerified]:
    """Return the round's pending tokens and its verdict, with figures that add up."""
    pending = [_report(text, TokenFate.PENDING, place) for place, text in enumerate(played.drafted)]
    judged = []
    for place, text in enumerate(played.drafted):
        if place < played.n_accepted:
            judged.append(_report(text, TokenFate.ACCEPTED, place))
        elif place == played.n_accepted and played.own is not None:
            judged.append(_report(text, TokenFate.REJECTED, place, choice=played.own))
        else:
            judged.append(_report(text, TokenFate.NOT_REACHED, place))
    own = None
    if played.own is not None:
        full = played.n_accepted == len(played.drafted)
        fate = (TokenFate.BONUS if full else TokenFate.CORRECTION) if played.drafted else TokenFate.PLAIN
        own = _report(played.own, fate, len(played.drafted))
    drafted = [TokenDrafted(number, place, token) for place, token in enumerate(pending)]
    verified = RoundVerified(
        round=number,
        position=position,
        drafted=tuple(judged),
        target_token=own,
        text_length=text_length,
        draft_ms=2.0 * len(drafted),
        verify_ms=11.0,
        host_ms=0.3,
        no_draft_reason=played.no_draft_reason,
        n_submitted=len(played.drafted),
        saved_ms=played.saved_ms,
        audit=played.audit,
    )
    return drafted, verified


def _report(text: str, fate: TokenFate, place: int, choice: str = "") -> TokenReport:
    number = sum(map(ord, text)) % 49152
    drafted = fate not in (TokenFate.CORRECTION, TokenFate.BONUS, TokenFate.PLAIN)
    judged = fate not in (TokenFate.PENDING, TokenFate.NOT_REACHED)
    chosen = Token(number, text) if not choice else Token(number + 1, choice)
    others = (" Rome", " Berlin", " now", " also")
    top = tuple(Alternative(number + 2 + n, other, 0.2 / (n + 1)) for n, other in enumerate(others))
    return TokenReport(
        id=number,
        text=text,
        fate=fate,
        source=DraftSource.MODEL if drafted else None,
        p=(0.04 if choice else 0.61) if judged else None,
        q=0.48 if drafted else None,
        p_rank=(3 if choice else 0) if judged else None,
        q_rank=0 if drafted else None,
        score=(-0.87 if choice else _CHOICE_SCORE) if judged else None,
        choice=chosen if judged else None,
        choice_score=_CHOICE_SCORE if judged else None,
        margin=0.42 if judged else None,
        target_top=(Alternative(chosen.id, chosen.text, 0.61), *top) if judged else (),
        draft_top=(Alternative(number, text, 0.48), *top[1:]) if drafted else (),
        draft_ms=1.9 + place / 10 if drafted else None,
    )


def play(trace: Trace, rounds: Iterable[Round]) -> list[int]:
    """Fold the rounds in; return the first changed span of each event."""
    firsts = []
    for played in rounds:
        before = trace.rounds[-1].text_length if trace.rounds else 0
        length = before + sum(map(len, played.drafted[: played.n_accepted])) + len(played.own or "")
        drafted, verified = round_events(len(trace.rounds), 0, played, length)
        events: list[TokenDrafted | RoundVerified] = [*drafted, verified]
        firsts += [trace.apply(event).first for event in events]
    return firsts


def answer(rounds: Iterable[Round]) -> ShownMessage:
    """Return an answer of these rounds, as the transcript shows it."""
    trace = Trace()
    play(trace, rounds)
    return ShownMessage("Model", trace=trace, notes=("a note",))


class StoryDecoder(SpeculativeDecoder):
    """Plays rounds. `hold_at` is the round before which it waits until `go_on` is set or the answer is cancelled."""

    def __init__(self, rounds: Iterable[Round] = STORY, *, n_ctx: int = 2048, hold_at: int | None = None) -> None:
        self.facts = None
        self.rounds = list(rounds)
        self.requests: list[GenerationRequest] = []
        self.failure: Exception | None = None
        self.fails_in: int | None = None  # the round in whose draft it fails; before the first one where None
        self.go_on = threading.Event()
        self.holding = threading.Event()
        self.hold_at = hold_at
        self.slow_to_stop = threading.Event()  # set it when the engine may notice a cancel
        self.slow_to_stop.set()
        self._n_ctx = n_ctx

    @property
    def n_ctx(self) -> int:
        return self._n_ctx

    def generate(self, request: GenerationRequest, cancel: CancelToken) -> Iterator[Event]:
        self.requests.append(request)
        yield PromptEvaluated(len(request.prompt), len(request.prompt), 0, 0.02)
        self._fail(None)
        text, ledger = "", StatsLedger(n_prompt=len(request.prompt))
        tokens: list[int] = []
        reason = StopReason.END_TOKEN
        for number, played in enumerate(self.rounds):
            if number == self.hold_at:
                self._wait(cancel)
            if cancel.cancelled:
                reason = StopReason.CANCELLED
                break
            accepted = "".join(played.drafted[: played.n_accepted])
            drafted, verified = round_events(
                number, len(tokens), played, len(text) + len(accepted) + len(played.own or "")
            )
            yield from drafted
            self._fail(number)
            text += "".join(token.text for token in verified.committed)
            tokens += [token.id for token in verified.committed]
            ledger.add(verified)
            yield verified
        yield GenerationFinished(reason, tuple(tokens), text, ledger.stats())

    def _fail(self, in_round: int | None) -> None:
        if self.failure is not None and self.fails_in == in_round:
            raise self.failure

    def _wait(self, cancel: CancelToken) -> None:
        self.holding.set()
        while not cancel.cancelled and not self.go_on.wait(0.005):
            pass
        self.slow_to_stop.wait(5)


class ScriptedLoader:
    """Loads the same decoder for every pair, in the way that works here (`works`), or fails as told."""

    def __init__(self, decoder: StoryDecoder) -> None:
        self.decoder = decoder
        self.failure: UserError | None = None
        self.notices: tuple[str, ...] = ()
        self.works: Callable[[PairSettings], PairSettings] = lambda asked: asked
        self.loaded: list[PairSettings] = []
        self.go_on = threading.Event()  # clear it to hold a loading up in its middle
        self.go_on.set()

    def __call__(self, settings: PairSettings, cancel: CancelToken) -> Iterator[ModelLoading | LoadedPair]:
        yield ModelLoading("Loading the target", 0.5)
        self.go_on.wait(5)
        if cancel.cancelled:
            return
        if self.failure is not None:
            raise self.failure
        self.loaded.append(settings)
        yield Pair(self.decoder, self.works(settings), notices=self.notices)


class FullDisk(HistoryStore):
    """A store where an answer's row can be made but nothing of the answer can be saved."""

    def update_message(self, *_: object, **__: object) -> None:
        raise UserError("The disk is full.", "Free some space.")


def scripted_service(
    path: Path, decoder: StoryDecoder, stores: type[HistoryStore] = HistoryStore
) -> tuple[ChatService, ScriptedLoader]:
    """Return a real service that saves at `path`, by a store of that kind, and plays the decoder's script."""
    loader = ScriptedLoader(decoder)
    return ChatService(lambda: stores.open(path), loader), loader
