"""One answer, measured: the engine's own times, what was drafted and by whom, and what was committed."""

import re
import time
from array import array
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from draftlight.bench.arms import Arm
from draftlight.engine.cancel import CancelToken
from draftlight.engine.costs import PairFacts
from draftlight.engine.decoding import GenerationRequest, Mode, SpeculativeDecoder
from draftlight.engine.events import DraftSource, GenerationFinished, RoundVerified, StopReason, TokenFate
from draftlight.engine.metrics import SpeculationStats
from draftlight.engine.sampling import SamplingParams

_NUMBER = re.compile(r"[+-]?\d+(?:[.,]\d+)*")  # reasons that differ in their figures alone are one reason


@dataclass(frozen=True, slots=True)
class Tally:
    """What the rounds of one answer did. The first one, whose logits are the prompt's, is left out of everything.

    `drafted_by` and `accepted_by` count tokens by source, `lengths` rounds by their number of drafted tokens, `reasons`
    rounds without a draft by why; `n_mixed` rounds drafted from more than one source. `predicted_cost` is what the
    rounds should have cost in plain steps by the costs measured before, without host time; None where none were.
    `first_draft_ms` is what the draft model took in the first round it drafted in: it then reads the prompt as well.
    """

    n_rounds: int = 0
    drafted_by: Mapping[DraftSource, int] = field(default_factory=dict)
    accepted_by: Mapping[DraftSource, int] = field(default_factory=dict)
    lengths: Mapping[int, int] = field(default_factory=dict)
    reasons: Mapping[str, int] = field(default_factory=dict)
    n_mixed: int = 0
    predicted_cost: float | None = None
    first_draft_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. Times in seconds: `decode` from the first token on, `wall` all of it as seen from outside.

    `margins` are the target's lead at each token, where the engine tells; `stats` and `tally` are our engine's alone.
    """

    tokens: tuple[int, ...]
    decode_seconds: float
    first_token_seconds: float
    wall_seconds: float
    n_drafted: int
    n_accepted: int
    margins: Sequence[float] = ()
    reason: StopReason | None = None
    stats: SpeculationStats | None = None
    tally: Tally | None = None

    @property
    def seconds_per_token(self) -> float | None:
        """Decode time of a token; the first one is the prompt's own, so a single token has none."""
        return self.decode_seconds / (len(self.tokens) - 1) if len(self.tokens) > 1 else None


class Answerer(Protocol):
    """An arm, ready to answer."""

    @property
    def name(self) -> str:
        """What the arm is called."""
        ...

    def answer(self, prompt: tuple[int, ...], seed: int, max_tokens: int, cancel: CancelToken) -> Answer | None:
        """Answer from an empty cache; None where it was cancelled. Raises UserError."""
        ...


@dataclass(frozen=True, slots=True)
class EngineSetup:
    """What all of our engine's arms share, the caches too: `caches` makes them alike before each answer."""

    decoder: SpeculativeDecoder
    sampling: SamplingParams
    mode: Mode | None
    facts: PairFacts | None
    caches: "Caches"
    clock: Callable[[], float] = time.perf_counter


class Caches:
    """Sees to it that no arm profits from the one before it: both models' caches are the same before each answer.

    Cold, they are empty. Warm, both hold the prompt, as in a chat that goes on.
    """

    def __init__(self, decoder: SpeculativeDecoder, *, warm: bool) -> None:
        """Look after this decoder's caches."""
        self._decoder = decoder
        self._warm = warm
        self._held: tuple[int, ...] = ()

    def make_alike(self, prompt: tuple[int, ...], cancel: CancelToken) -> None:
        """Empty both caches, or have both models read the prompt if it is another than before."""
        if not self._warm:
            self._decoder.forget()
        elif prompt != self._held:
            self._decoder.forget()
            request = GenerationRequest(prompt, SamplingParams(temperature=0), 0, draft_length=1, max_new_tokens=3)
            deque(self._decoder.generate(request, cancel), maxlen=0)
            self._held = prompt


class EngineArm:
    """Our engine, drafting in one of its ways."""

    def __init__(self, arm: Arm, setup: EngineSetup) -> None:
        """Answer with the setup's models, which all arms share; what AUTO learns of them is each arm's own."""
        self._arm = arm
        self._setup = setup
        self._decoder = setup.decoder.inexperienced()

    @property
    def name(self) -> str:
        """The arm's name."""
        return self._arm.name

    def answer(self, prompt: tuple[int, ...], seed: int, max_tokens: int, cancel: CancelToken) -> Answer | None:
        """Generate one answer and keep its figures, not its events."""
        setup = self._setup
        request = GenerationRequest(
            prompt=prompt,
            sampling=setup.sampling,
            seed=seed,
            draft_length=self._arm.draft_length,
            max_new_tokens=max_tokens,
            mode=setup.mode,
            sources=self._arm.sources,
        )
        setup.caches.make_alike(prompt, cancel)
        counting = _Counting(len(prompt), setup.facts)
        started = setup.clock()
        for event in self._decoder.generate(request, cancel):
            if isinstance(event, RoundVerified):
                counting.add(event)
            elif isinstance(event, GenerationFinished):
                if event.reason is StopReason.CANCELLED:
                    return None
                return counting.answer(event, setup.clock() - started)
        raise AssertionError("a generation ends with GenerationFinished")


class _Counting:
    """Adds up one answer's rounds as they come."""

    def __init__(self, n_prompt: int, facts: PairFacts | None) -> None:
        self._n_prompt = n_prompt
        self._facts = facts
        self._margins = array("f")
        self._n_rounds = self._n_mixed = 0
        self._drafted: Counter[DraftSource] = Counter()
        self._accepted: Counter[DraftSource] = Counter()
        self._lengths: Counter[int] = Counter()
        self._reasons: Counter[str] = Counter()
        self._cost = self._first_draft_ms = 0.0

    def add(self, done: RoundVerified) -> None:
        """Count one round."""
        self._margins.extend(float("nan") if token.margin is None else token.margin for token in done.committed)
        if done.round == 0:
            return
        self._n_rounds += 1
        sources = [token.source for token in done.drafted if token.source is not None]
        self._drafted.update(sources)
        self._accepted.update(
            token.source for token in done.drafted if token.source is not None and token.fate is TokenFate.ACCEPTED
        )
        self._n_mixed += len(set(sources)) > 1
        self._lengths[len(sources)] += 1
        if DraftSource.MODEL in sources and not self._first_draft_ms:
            self._first_draft_ms = done.draft_ms
        if not sources:
            self._reasons[_NUMBER.sub("N", done.no_draft_reason)] += 1
        if self._facts is not None:
            context = self._n_prompt + done.position
            self._cost += predicted_cost(self._facts, done.n_submitted, sources.count(DraftSource.MODEL), context)

    def answer(self, finished: GenerationFinished, wall_seconds: float) -> Answer:
        """Return everything together."""
        stats = finished.stats
        return Answer(
            tokens=finished.tokens,
            decode_seconds=stats.decode_ms / 1000.0,
            first_token_seconds=stats.first_token_ms / 1000.0,
            wall_seconds=wall_seconds,
            n_drafted=stats.n_drafted,
            n_accepted=stats.n_accepted,
            margins=self._margins,
            reason=finished.reason,
            stats=stats,
            tally=Tally(
                n_rounds=self._n_rounds,
                drafted_by=dict(self._drafted),
                accepted_by=dict(self._accepted),
                lengths=dict(self._lengths),
                reasons=dict(self._reasons),
                n_mixed=self._n_mixed,
                predicted_cost=None if self._facts is None else self._cost,
                first_draft_ms=self._first_draft_ms,
            ),
        )


def predicted_cost(facts: PairFacts, n_submitted: int, n_by_model: int, context: int) -> float:
    """Return what a round costs in plain steps at this context: its verify, and a draft step for each token drafted.

    Host time and the draft model's catching up are left out, so it can only be too low.
    """
    seconds = facts.target.at(n_submitted + 1, context)
    if facts.draft is not None:
        seconds += n_by_model * facts.draft.at(1, context)
    return seconds / facts.target.at(1, context)
