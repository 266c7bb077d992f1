"""The loop: draft, verify, commit, repeat. Plain decoding is the same loop with K = 0. Knows no file and no screen."""

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from draftlight.engine.cancel import CancelToken
from draftlight.engine.context import Context
from draftlight.engine.controller.auto import AutoLength
from draftlight.engine.controller.base import DraftLengthController, Outlook
from draftlight.engine.controller.experience import Experience
from draftlight.engine.controller.fixed import FixedLength
from draftlight.engine.costs import PairFacts
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
from draftlight.engine.exactness import Exactness
from draftlight.engine.ledger import StatsLedger
from draftlight.engine.model import FloatArray, Tokenizer
from draftlight.engine.parts import DecoderParts, RoundWatch
from draftlight.engine.reports import Reporter
from draftlight.engine.sampling import Sampler, SamplingParams
from draftlight.engine.text import AnswerText
from draftlight.engine.verification import Verdict, rejudged, verify
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


LONGEST_DRAFT = 16
_AUTO_UNTIL_MEASURED = 3  # llama.cpp's own default
_WIDTHS_FOR_EXACT = 3  # with fewer exact widths EXACT would cost too much to be the default


class SpeculativeDecoder:
    """A target, its drafters, and the loop that makes them one."""

    def __init__(
        self, target: Context, drafters: Sequence[Drafter], tokenizer: Tokenizer, facts: PairFacts | None = None
    ) -> None:
        """Keep the parts. `facts` is what was measured of them: without it EXACT works like FAST, AUTO drafts three."""
        self._target = target
        self._drafters = tuple(drafters)
        self._tokenizer = tokenizer
        self.facts = facts
        self._experience = None if facts is None else Experience(facts)
        self._exactness = None if facts is None else Exactness(facts)

    @property
    def n_ctx(self) -> int:
        """Tokens that prompt and answer may have together."""
        return self._target.n_ctx

    @property
    def sources(self) -> frozenset[DraftSource]:
        """What may draft."""
        return frozenset(drafter.source for drafter in self._drafters)

    @property
    def exact_widths(self) -> frozenset[int] | None:
        """Verify widths bit-equal to width 1; None where nobody measured: EXACT then works like FAST."""
        return None if self.facts is None else self.facts.exact_widths

    @property
    def end_tokens(self) -> frozenset[int]:
        """Ids that end an answer."""
        return frozenset(filter(self._tokenizer.is_end, range(self._target.n_vocab)))

    @property
    def best_mode(self) -> Mode:
        """The mode that this pair merits: exact where enough verify widths are."""
        return Mode.EXACT if len(self.exact_widths or ()) > _WIDTHS_FOR_EXACT else Mode.FAST

    def mode_for(self, request: GenerationRequest) -> Mode:
        """Return the mode that was asked for, or the best one."""
        return self.best_mode if request.mode is None else request.mode

    def forget(self) -> None:
        """Empty all caches, so that the next answer reads its whole prompt: what a fair measurement needs."""
        self._target.begin(())
        for drafter in self._drafters:
            drafter.begin(())

    def inexperienced(self) -> "SpeculativeDecoder":
        """Return a decoder of the same models that has learnt nothing yet and learns for itself from now on."""
        return SpeculativeDecoder(self._target, self._drafters, self._tokenizer, self.facts)

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
        allowed = self._drafters
        if request.sources is not None:
            allowed = tuple(drafter for drafter in self._drafters if drafter.source in request.sources)
        exactness = self._exactness if self.mode_for(request) is Mode.EXACT else None
        parts = DecoderParts(self._target, allowed, self._tokenizer, self._experience, exactness)
        yield from _Generation(parts, request, self._controller_for(request), cancel).events()

    def _controller_for(self, request: GenerationRequest) -> DraftLengthController:
        if request.draft_length is not None:
            return FixedLength(request.draft_length)
        if self._experience is None:
            return FixedLength(_AUTO_UNTIL_MEASURED)
        return AutoLength(self._experience, greedy=request.sampling.temperature <= 0.0)


class _Verified(NamedTuple):
    """A verdict, the rows of its pass, the time that the draft model worked meanwhile, and whether an audit held."""

    verdict: Verdict
    width: int
    ahead_ms: float
    audit: bool | None = None


class _Generation:
    """The state of one generation. `_sequence`, prompt and committed tokens, is the truth that both models follow."""

    def __init__(
        self, parts: DecoderParts, request: GenerationRequest, controller: DraftLengthController, cancel: CancelToken
    ) -> None:
        self._parts = parts
        self._request = request
        self._controller = controller
        self._cancel = cancel
        self._sampler = Sampler(request.sampling, request.seed)
        self._reporter = Reporter(parts.tokenizer, self._sampler)
        self._ledger = StatsLedger(n_prompt=len(request.prompt))
        self._answer = AnswerText(request.stop)
        self._sequence = list(request.prompt)
        self._prompt_logits: FloatArray | None = None
        self._n_read: list[int] = []  # tokens the draft model read for each of its proposals in this round

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
        for drafter in self._parts.drafters:
            drafter.begin(prompt, self._request.earlier)
        # Logits of a wide pass may differ in their last bits: in EXACT the last token is evaluated alone.
        for held in target.prefill(prompt, n_left=1 if self._parts.exactness else None):
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
        watch = RoundWatch(self._parts)
        self._n_read.clear()
        outlook, no_draft_reason = self._outlook()
        timed = self._prompt_logits is None  # else the time is the prefill's
        pending: list[TokenReport] = []
        n_submitted = 0
        self._controller.begin_round(outlook)
        if len(outlook.lengths) > 1:
            for report in self._draft():
                watch.pause()
                yield TokenDrafted(self._ledger.n_rounds, len(pending), report)
                watch.go_on()
                pending.append(report)
            if self._cancel.cancelled:
                return StopReason.CANCELLED
            n_submitted = self._controller.n_submitted()
            no_draft_reason = "" if pending else self._controller.off_reason

        draft = [report.id for report in pending[:n_submitted]]
        verified = self._verified(draft, outlook.width(n_submitted))
        done, reason = self._committed(pending, n_submitted, verified, watch, no_draft_reason)
        if timed and self._parts.experience is not None:
            saved_ms = self._parts.experience.learn(done, outlook.n_tokens, self._n_read)
            done = replace(done, saved_ms=saved_ms)
        if timed:
            self._controller.observe(done)
        self._ledger.add(done)
        yield done
        return reason

    def _outlook(self) -> tuple[Outlook, str]:
        """Return the draft lengths that contexts, limits and mode allow, and why it is 0 alone, in words."""
        n_tokens, n_left = len(self._sequence), self._request.max_new_tokens - self._n_committed
        none = Outlook(n_tokens, n_left, (0,))
        if self._prompt_logits is not None:
            return none, "the first token comes from the prompt's own pass, before the draft model reads anything"
        if not self._parts.drafters:
            return none, "no draft is chosen"
        widest = 1 + min(self._parts.target.n_ctx - n_tokens, LONGEST_DRAFT)
        if min(n_left, widest) <= 1:
            return none, "there is room for one more token only"
        widths = self._widths(widest)
        lengths = tuple(k for k in range(min(n_left, widest)) if widths[k])
        return Outlook(n_tokens, n_left, lengths, widths), "no verify width is exact on this machine"

    def _widths(self, widest: int) -> tuple[int, ...]:
        """Return the rows to verify K drafted tokens with, by K: the cheapest allowed width that holds them; or 0."""
        exactness, experience = self._parts.exactness, self._parts.experience
        allowed = None if exactness is None else exactness.widths(self._request.sampling)
        widths, best, least = [1] + [0] * (widest - 1), 0, float("inf")
        for width in range(widest, 1, -1):
            if allowed is None or width in allowed:
                price = width if experience is None else experience.prices.forward(width, len(self._sequence))
                if price < least or experience is None:
                    best, least = width, price
            widths[width - 1] = best
        return tuple(widths)

    def _draft(self) -> Iterator[TokenReport]:
        """Let the drafters propose, one token at a time, as the controller says; name each token as it comes."""
        stream = self._answer.draft_stream()
        sequence, n_committed = list(self._sequence), len(self._sequence)
        drafters = {drafter.source: drafter for drafter in self._parts.drafters}
        while not self._cancel.cancelled:
            asked = self._controller.asks(drafters)
            offers = {source: drafters[source].offer(sequence, n_committed) for source in asked}
            if n_read := self._controller.wants_review(offers):
                model = drafters[DraftSource.MODEL]
                started = time.perf_counter()
                trials = model.review(sequence, self._sampler, self._cancel, n_read)
                self._controller.reviewed(trials, time.perf_counter() - started)
                continue
            source = self._controller.next_source(offers)
            if source is None:
                return
            proposal = drafters[source].propose(sequence, self._sampler, self._cancel)
            if proposal is None:
                return
            self._controller.drafted(proposal)
            if offers[source].lag:
                self._n_read.append(offers[source].lag)
            yield self._reporter.drafted(proposal, stream)
            sequence.append(proposal.token)
            if self._parts.tokenizer.is_end(proposal.token):
                return

    def _verified(self, draft: Sequence[int], width: int) -> _Verified:
        """Judge the draft. In EXACT some rows are evaluated again alone."""
        logits, ahead_ms = self._logits(draft, width)
        verdict = verify(draft, logits, self._sequence, self._sampler)
        exactness = self._parts.exactness
        row = None if exactness is None or not draft else exactness.row_to_check(verdict, width)
        if exactness is None or row is None:
            return _Verified(verdict, width, ahead_ms)
        logits = logits.copy()  # the laws look at them, and the next pass overwrites them
        verdict = verify(draft, logits, self._sequence, self._sampler)
        alone = self._parts.target.advance([*self._sequence, *draft[:row]])[0]
        verdict = rejudged(verdict, row, alone, draft, self._sequence, self._sampler)
        return _Verified(verdict, width, ahead_ms, exactness.holds(width, logits[row], alone))

    def _logits(self, draft: Sequence[int], width: int) -> tuple[FloatArray, float]:
        """Logits after the committed text and each drafted token, (K + 1, n_vocab), from a pass of `width` rows.

        Also the milliseconds that the draft model worked meanwhile.
        """
        if self._prompt_logits is not None:
            logits, self._prompt_logits = self._prompt_logits, None
            return logits, 0.0
        sequence = [*self._sequence, *draft]
        padding = sequence[-1:] * (width - len(draft) - 1)
        ahead = self._parts.ahead if draft else None
        if ahead is None:
            return self._parts.target.advance([*sequence, *padding], rows=width)[: len(draft) + 1], 0.0
        before = ahead.ahead_seconds
        with ahead.drafting_ahead(sequence, self._sampler):
            logits = self._parts.target.advance([*sequence, *padding], rows=width)[: len(draft) + 1]
        return logits, 1000.0 * (ahead.ahead_seconds - before)

    def _committed(
        self,
        pending: Sequence[TokenReport],
        n_submitted: int,
        verified: _Verified,
        watch: RoundWatch,
        no_draft_reason: str,
    ) -> tuple[RoundVerified, StopReason | None]:
        """Commit what the verdict lets stand; report the round, and why the answer ends with it."""
        verdict, position, n_before = verified.verdict, len(self._sequence), self._n_committed
        accepted = [report.id for report in pending[: verdict.n_accepted]]
        own = [] if verdict.target_token is None else [verdict.target_token]
        texts, reason = self._commit([*accepted, *own])
        judged = self._reporter.judged(pending, n_submitted, verdict, len(texts), position)
        target_token = None
        if len(texts) > verdict.n_accepted:
            place = position + verdict.n_accepted
            target_token = self._reporter.target_token(verdict, n_submitted, texts[-1], place)
        draft_ms, verify_ms, host_ms = watch.milliseconds()
        return RoundVerified(
            round=self._ledger.n_rounds,
            position=n_before,
            drafted=judged,
            target_token=target_token,
            text_length=self._answer.safe_length,
            draft_ms=draft_ms,
            verify_ms=verify_ms,
            host_ms=host_ms,
            no_draft_reason=no_draft_reason,
            n_submitted=n_submitted,
            width=verified.width,
            reasoning=self._controller.reasoning,
            ahead_ms=verified.ahead_ms,
            audit=verified.audit,
        ), reason

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
