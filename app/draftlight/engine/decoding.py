"""The loop: draft, verify, commit, repeat. Plain decoding is the same loop with K = 0. Knows no file and no screen."""

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from draftlight.engine.cancel import CancelToken
from draftlight.engine.context import Context
from draftlight.engine.controller import DraftLengthController, controller_for
from draftlight.engine.drafting.base import Drafter
from draftlight.engine.events import (
    DraftSource,
    Event,
    GenerationFinished,
    PromptEvaluated,
    RoundVerified,
    StopReason,
    TokenDrafted,
    TokenReport,
)
from draftlight.engine.ledger import StatsLedger
from draftlight.engine.model import FloatArray, Tokenizer
from draftlight.engine.reports import Reporter
from draftlight.engine.sampling import Sampler, SamplingParams
from draftlight.engine.text import AnswerText
from draftlight.engine.verification import verify
from draftlight.errors import UserError


class Mode(StrEnum):
    """How strictly the committed tokens must equal plain decoding's."""

    EXACT = "exact"  # only verify widths whose logits are bit-equal to plain decoding's, where they are known
    FAST = "fast"  # any width: equal up to floating point, near-ties counted


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One answer to be generated. `draft_length` None is AUTO: the controller chooses K each round.

    `sources` are those that may draft, None for all that are loaded; `mode` None is the pair's own best. `earlier` are
    further texts of the same conversation to draft from: turns that no longer fit, answers that were written anew.
    """

    prompt: tuple[int, ...]
    sampling: SamplingParams
    seed: int
    draft_length: int | None = 3
    max_new_tokens: int = 512
    stop: tuple[str, ...] = ()
    mode: Mode | None = None
    sources: frozenset[DraftSource] | None = None
    earlier: tuple[tuple[int, ...], ...] = ()


class ContextOverflow(UserError):
    """The prompt is longer than the target's context."""


@dataclass(frozen=True, slots=True)
class DecoderParts:
    """What the loop works with. `exact_widths`: verify widths bit-equal to width 1; None where nobody measured."""

    target: Context
    drafter: Drafter | None
    tokenizer: Tokenizer
    exact_widths: frozenset[int] | None = None


class SpeculativeDecoder:
    """A target, perhaps a drafter, and the loop that makes them one."""

    def __init__(
        self,
        target: Context,
        drafter: Drafter | None,
        tokenizer: Tokenizer,
        exact_widths: frozenset[int] | None = None,
    ) -> None:
        """Keep the parts; see DecoderParts."""
        self._parts = DecoderParts(target, drafter, tokenizer, exact_widths)

    @property
    def n_ctx(self) -> int:
        """Tokens that prompt and answer may have together."""
        return self._parts.target.n_ctx

    @property
    def exact_widths(self) -> frozenset[int] | None:
        """Verify widths bit-equal to width 1; None where nobody measured: EXACT then works like FAST."""
        return self._parts.exact_widths

    @property
    def end_tokens(self) -> frozenset[int]:
        """Ids that end an answer."""
        return frozenset(filter(self._parts.tokenizer.is_end, range(self._parts.target.n_vocab)))

    def forget(self) -> None:
        """Empty the target's cache, so that the next answer reads its whole prompt: what a fair measurement needs."""
        self._parts.target.begin(())

    def mode_for(self, request: GenerationRequest) -> Mode:
        """Return the mode that was asked for, or the one that this pair merits."""
        return Mode.FAST if request.mode is None else request.mode

    def generate(self, request: GenerationRequest, cancel: CancelToken) -> Iterator[Event]:
        """Report the answer as it comes; the last event is GenerationFinished, also after a cancel.

        Raises ContextOverflow for a prompt that does not fit. A model's failure passes through.
        """
        if not request.prompt:
            raise ValueError("a generation needs at least one prompt token")
        if len(request.prompt) > self.n_ctx:
            raise ContextOverflow(
                f"The prompt has {len(request.prompt):,} tokens; the context holds {self.n_ctx:,}.",
                "Shorten it, or load the model with a longer context.",
            )
        yield from _Generation(self._parts, request, cancel).events()


class _Watch:
    """Times one round without the time its listeners take between two events."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._since = time.perf_counter()

    def pause(self) -> None:
        self._seconds += time.perf_counter() - self._since

    def go_on(self) -> None:
        self._since = time.perf_counter()

    def milliseconds(self) -> float:
        return 1000.0 * (self._seconds + time.perf_counter() - self._since)


class _Generation:
    """The state of one generation. `_sequence`, prompt and committed tokens, is the truth that both models follow."""

    def __init__(self, parts: DecoderParts, request: GenerationRequest, cancel: CancelToken) -> None:
        self._parts = parts
        self._request = request
        self._cancel = cancel
        self._sampler = Sampler(request.sampling, request.seed)
        self._reporter = Reporter(parts.tokenizer, self._sampler)
        self._controller: DraftLengthController = controller_for(request.draft_length)
        self._ledger = StatsLedger(n_prompt=len(request.prompt))
        self._answer = AnswerText(request.stop)
        self._sequence = list(request.prompt)
        self._prompt_logits: FloatArray | None = None

    def events(self) -> Iterator[Event]:
        """Prefill, rounds, end."""
        yield from self._prefill()
        while (reason := self._limit()) is None:
            reason = yield from self._round()
            if reason is not None:
                break
        tokens = tuple(self._sequence[len(self._request.prompt) :])
        yield GenerationFinished(reason, tokens, self._answer.text, self._ledger.stats())

    @property
    def _n_committed(self) -> int:
        return len(self._sequence) - len(self._request.prompt)

    def _limit(self) -> StopReason | None:
        """Why no further round may start."""
        if self._cancel.cancelled:
            return StopReason.CANCELLED
        if self._n_committed >= self._request.max_new_tokens:
            return StopReason.LENGTH
        if len(self._sequence) > self._parts.target.n_ctx:
            return StopReason.CONTEXT_FULL
        return None

    def _prefill(self) -> Iterator[Event]:
        """Bring the target to the prompt's end; the first round uses the logits found there."""
        prompt, target = self._request.prompt, self._parts.target
        started = time.perf_counter()
        n_reused = target.begin(prompt)
        for held in target.prefill(prompt):
            yield PromptEvaluated(len(prompt), held, n_reused, time.perf_counter() - started)
            if self._cancel.cancelled:
                break
        if not self._cancel.cancelled:
            self._prompt_logits = target.advance(prompt)
            seconds = time.perf_counter() - started
            yield PromptEvaluated(len(prompt), len(prompt), n_reused, seconds)
            self._ledger.prompt_evaluated(n_reused, 1000.0 * seconds)

    def _round(self) -> Generator[Event, None, StopReason | None]:
        """One draft, one verify, one commit. Returns why the answer ends here; None where it goes on."""
        watch, times = _Watch(), _ModelTimes(self._parts)
        k, no_draft_reason = self._draft_length()
        pending: list[TokenReport] = []
        for report in self._draft(k):
            watch.pause()
            yield TokenDrafted(self._ledger.n_rounds, len(pending), report)
            watch.go_on()
            pending.append(report)
        if self._cancel.cancelled:
            return StopReason.CANCELLED
        if k and not pending and self._parts.drafter is not None:
            no_draft_reason = self._parts.drafter.silence

        draft = [report.id for report in pending]
        verdict = verify(draft, self._logits(draft), self._sequence, self._sampler)
        position, n_before = len(self._sequence), self._n_committed
        texts, reason = self._commit([*draft[: verdict.n_accepted], verdict.target_token])

        judged = self._reporter.judged(pending, verdict, len(texts), position)
        own = None
        if len(texts) > verdict.n_accepted:
            own = self._reporter.target_token(verdict, len(draft), texts[-1], position + verdict.n_accepted)
        draft_ms, verify_ms = times.milliseconds()
        report_ms = watch.milliseconds()
        done = RoundVerified(
            round=self._ledger.n_rounds,
            position=n_before,
            drafted=judged,
            target_token=own,
            text_length=self._answer.safe_length,
            draft_ms=draft_ms,
            verify_ms=verify_ms,
            host_ms=max(0.0, report_ms - draft_ms - verify_ms),
            no_draft_reason=no_draft_reason,
        )
        self._ledger.add(done)
        self._controller.observe(done)
        yield done
        return reason

    def _draft_length(self) -> tuple[int, str]:
        """K for this round, no longer than either context and the length limit allow; and why it is 0, in words."""
        if self._prompt_logits is not None:
            return 0, "the first token comes from the prompt's own pass, before the draft model reads anything"
        if self._parts.drafter is None:
            return 0, "no draft is chosen"
        k = self._controller.draft_length()
        if k == 0:
            return 0, self._controller.off_reason
        room = min(self._request.max_new_tokens - self._n_committed - 1, self._parts.target.n_ctx - len(self._sequence))
        if room <= 0:
            return 0, "there is room for one more token only"
        k = min(k, room)
        if self._request.mode is Mode.EXACT and self._parts.exact_widths is not None:
            k = max((width - 1 for width in self._parts.exact_widths if width <= k + 1), default=0)
        return k, "" if k else "no verify width is exact on this machine"

    def _draft(self, k: int) -> Iterator[TokenReport]:
        """Let the drafter propose; name each token as it comes."""
        if not k or self._parts.drafter is None:
            return
        stream = self._answer.draft_stream()
        for proposal in self._parts.drafter.draft(self._sequence, k, self._sampler, self._cancel):
            yield self._reporter.drafted(proposal, stream)

    def _logits(self, draft: Sequence[int]) -> FloatArray:
        """Logits after the committed text and after each drafted token: (K + 1, n_vocab)."""
        if self._prompt_logits is not None:
            logits, self._prompt_logits = self._prompt_logits, None
            return logits
        return self._parts.target.advance([*self._sequence, *draft], rows=len(draft) + 1)

    def _commit(self, tokens: Sequence[int]) -> tuple[list[str], StopReason | None]:
        """Add tokens to the answer up to an end token or a stop string; return the texts of those added."""
        texts = []
        for token in tokens:
            self._sequence.append(token)
            texts.append(self._answer.commit(self._parts.tokenizer.piece(token)))
            if self._parts.tokenizer.is_end(token):
                return texts, StopReason.END_TOKEN
            if self._answer.stopped:
                return texts, StopReason.STOP_STRING
        return texts, None


class _ModelTimes:
    """The time both models took since this was made."""

    def __init__(self, parts: DecoderParts) -> None:
        self._parts = parts
        self._draft, self._target = self._read()

    def _read(self) -> tuple[float, float]:
        drafter = self._parts.drafter
        return drafter.decode_seconds if drafter else 0.0, self._parts.target.decode_seconds

    def milliseconds(self) -> tuple[float, float]:
        """Milliseconds in the draft model and in the target."""
        draft, target = self._read()
        return 1000.0 * (draft - self._draft), 1000.0 * (target - self._target)
