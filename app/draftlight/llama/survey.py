"""What is measured of a model, in which order, and what is left out when time is short. Says each step before it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from draftlight.engine.costs import StepCosts
from draftlight.llama.backend import ModelNotLoaded
from draftlight.llama.cache_choice import (
    ENOUGH_EXACT_WIDTHS,
    EXACT_PRICE,
    MEMORY_SHARE,
    CacheChoice,
    bytes_per_token,
    choose_exact,
    choose_fast,
    next_to_examine,
)
from draftlight.llama.measuring import (
    Comparison,
    MeasuredModel,
    SingleSteps,
    TimeBox,
    Times,
    exactness_of,
    read,
    time_widths,
    timed,
)
from draftlight.llama.report import (
    CHUNK_SECONDS,
    CHUNKS,
    PREFILL_WIDTH,
    SMALLEST_CHUNK,
    CacheTrial,
    Exactness,
    ThreadTrial,
)
from draftlight.settings import KvType

_SHALLOW = 100  # tokens of context
_BORDER = 250  # a wide pass needs the next 256 cells earlier than single tokens do
_DEEP = 2000
_CHAT = 600  # what a chat soon has: a target's types of cache are timed there and at the shortest context
_READ_PER_TOKEN = 2.0  # tokens of prompt that a chat reads for each that is written
_LITTLE = 64  # tokens that are read where more would not change the time
_WIDTHS = (2, 3, 4, 5, 6, 7, 8, 12, 16)
_TIMED_WIDTHS = (1, 4, 2, 8, 3, 16, PREFILL_WIDTH, 6, 5, 12)  # the most useful first, for where time runs out
_DRAFT_WIDTHS = (1, 2, 4, 16, PREFILL_WIDTH, 8)
_LEAST_WIDTHS = 4  # of these are timed in any case
_ROUNDS = 3
_LOOKS = (48, 24, 16)  # tokens that are compared at a context: of these as many as there is time for
_LOOK_COST = 3.5  # comparing widths takes about so many times what single steps take
_FIRST_SHARE = 0.8  # of the time is for the first context, where most types show that they are not exact
_NARROW = 4
_FEWER = 24
_RAGGED = 37  # a prompt's last chunk has any size
_WORTH_A_THREAD = 1.05  # times faster that more threads must be
_HOPELESS = 1.25  # times slower than the best from which on still more threads are not tried


class SurveyedModel(MeasuredModel, Protocol):
    """A model whose cache can be of another type, too."""

    @property
    def n_threads(self) -> int:
        """Threads it computes with."""
        ...

    @property
    def can_roll_back(self) -> bool:
        """Whether tokens can be taken back."""
        ...

    @property
    def kv_type(self) -> KvType:
        """The type of its cache."""
        ...

    @property
    def bytes_per_token(self) -> int:
        """What a token that was kept takes in the cache."""
        ...

    def renew_cache(self, kv_type: KvType) -> None:
        """Replace the cache by an empty one of this type. Raises ModelNotLoaded."""
        ...


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found out about one model's cache, exactness and costs."""

    cache: CacheChoice
    cache_trials: tuple[CacheTrial, ...]
    costs: StepCosts
    exactness: Exactness


@dataclass(slots=True)
class Surveyor:
    """Measures one model. `text` is read and read again; `say` is told each step, as it reads after "while"."""

    model: SurveyedModel
    name: str
    text: Sequence[int]
    say: Callable[[str], None]
    left_out: list[str] = field(default_factory=list)

    @property
    def contexts(self) -> tuple[int, ...]:
        """The contexts to look at that this model has room for, the shortest first."""
        room = self.model.n_ctx - PREFILL_WIDTH - 2
        return tuple(each for each in (_SHALLOW, _BORDER, _CHAT, _DEEP) if each <= room) or (self.model.n_ctx // 4,)

    @property
    def _ahead(self) -> Sequence[int]:
        """A text to go on with that is not the one in the cache."""
        return self.text[len(self.text) // 3 :]

    def try_threads(self, counts: Sequence[int], box: TimeBox) -> tuple[ThreadTrial, ...]:
        """Time the model with these thread counts, rising, until more are clearly worse. Leaves it with the best.

        Rising, because beside a busy program two threads can take a hundred times what one does.
        """
        trials: list[ThreadTrial] = []
        context = self.contexts[0]
        self.model.use_threads(counts[0])
        read(self.model, self.text, min(context, _LITTLE), box.part(0.3))
        for index, n_threads in enumerate(counts):
            best = min((trial.seconds for trial in trials), default=float("inf"))
            if trials and (box.spent or trials[-1].seconds > best * _HOPELESS):
                break
            self.say(f"timing {self.name} with {n_threads} threads")
            self.model.use_threads(n_threads)
            times, part = Times(), box.part(1 / (len(counts) - index))
            time_widths(self.model, self._ahead, context, (1, 4), times, part, least=2)
            trials.append(ThreadTrial(n_threads, times.least(context, 1), times.least(context, 4)))
        self.model.use_threads(best_threads(trials))
        return tuple(trials)

    def survey_target(
        self, types: Sequence[KvType], free_memory: int, box: TimeBox, price: float = EXACT_PRICE
    ) -> Survey:
        """Choose the cache, find the exact widths, time all widths. Raises ModelNotLoaded where no type works.

        `price` is what an exact cache may cost, in times of the fastest.
        """
        if not self.model.can_roll_back:
            return self._survey_forward_only(types[0])
        trials = {trial.kv_type: trial for trial in self._time_types(types, (1, 4), _CHAT, free_memory, box.part(0.3))}
        examined: dict[KvType, tuple[Exactness, Times]] = {}
        examining = box.part(0.7)
        kv_type = next_to_examine(list(trials.values()), price)
        while kv_type is not None:
            examined[kv_type] = self._examine(kv_type, examining)
            trials[kv_type] = replace(trials[kv_type], exact_widths=examined[kv_type][0].widths)
            kv_type = next_to_examine(list(trials.values()), price)
        choice = choose_exact(list(trials.values()), price)
        exactness, times = examined.get(choice.kv_type, (Exactness(), Times()))
        costs = self._time(choice.kv_type, _TIMED_WIDTHS, times, box)
        return Survey(_as_asked(choice, types), tuple(trials.values()), costs, exactness)

    def survey_draft(self, types: Sequence[KvType], free_memory: int, box: TimeBox) -> Survey:
        """Choose the fastest cache and time the widths that drafting uses. Raises ModelNotLoaded."""
        if not self.model.can_roll_back:
            return self._survey_forward_only(types[0])
        trials = self._time_types(types, (1,), _DEEP, free_memory, box.part(0.5))
        choice = choose_fast(trials)
        costs = self._time(choice.kv_type, _DRAFT_WIDTHS, Times(), box)
        return Survey(_as_asked(choice, types), trials, costs, Exactness())

    def _time_types(
        self, types: Sequence[KvType], widths: Sequence[int], deepest: int, free_memory: int, box: TimeBox
    ) -> tuple[CacheTrial, ...]:
        """Time a few passes with each type of cache, at no more than `deepest` tokens, as time and memory allow."""
        trials: list[CacheTrial] = []
        known: CacheTrial | None = None
        slowest = 0.0
        for kv_type in types:
            n_bytes = 0 if known is None else bytes_per_token(known.kv_type, known.bytes_per_token, kv_type)
            why_not = ""
            if n_bytes * self.model.n_ctx > free_memory * MEMORY_SHARE:
                why_not = f"it would take {n_bytes * self.model.n_ctx / 1e9:.1f} GB, over a quarter of the free memory"
            elif known is not None and (box.spent or box.left < slowest):
                why_not = "there was no time to try it"
            if why_not:
                self.left_out.append(f"{self.name} with a {kv_type} cache: {why_not}.")
                trials.append(CacheTrial(kv_type, n_bytes, why_not=why_not))
                continue
            before = box.left
            trials.append(self._time_type(kv_type, widths, deepest, box))
            slowest = max(slowest, before - box.left)
            known = known or (trials[-1] if trials[-1].bytes_per_token else None)
        if known is None:
            raise ModelNotLoaded(trials[-1].why_not, "Choose a shorter context.", about_cache=True)
        return tuple(trials)

    def _time_type(self, kv_type: KvType, widths: Sequence[int], deepest: int, box: TimeBox) -> CacheTrial:
        self.say(f"timing {self.name} with a {kv_type} cache")
        try:
            self._renew(kv_type)
        except ModelNotLoaded as refused:
            return CacheTrial(kv_type, 0, why_not=refused.sentence)
        read(self.model, self.text, min(self.contexts[0], _LITTLE), box)
        times = Times()
        contexts = {self.contexts[0], min(self.contexts[-1], deepest)}
        for context in contexts:
            time_widths(self.model, self._ahead, context, widths, times, box.part(0.5), least=len(widths))
        seconds = sum(times.least(context, width) for context in contexts for width in widths)
        for context in contexts:
            if context + PREFILL_WIDTH < self.model.n_ctx:
                time_widths(self.model, self._ahead, context, (PREFILL_WIDTH,), times, box.part(0.02))
                seconds += _READ_PER_TOKEN * times.least(context, PREFILL_WIDTH) / PREFILL_WIDTH
        return CacheTrial(kv_type, self.model.bytes_per_token, seconds / len(contexts))

    def _renew(self, kv_type: KvType) -> None:
        if self.model.kv_type is not kv_type:
            self.model.renew_cache(kv_type)

    def _examine(self, kv_type: KvType, box: TimeBox) -> tuple[Exactness, Times]:
        """Compare wide passes with single steps at all contexts, as far as there is time; the most telling first."""
        self._renew(kv_type)
        self.say(f"reading with {self.name}")
        before = box.left
        read(self.model, self.text, min(self.contexts[-1], _CHAT), box.part(0.2))
        chunk_limit = max(SMALLEST_CHUNK, CHUNK_SECONDS * self.model.n_past / max(before - box.left, 1e-6))
        times = Times()
        comparisons: dict[int, dict[int, Comparison]] = {}
        found = Exactness()
        for context in sorted(self.contexts, key=lambda each: abs(each - _CHAT)):
            share = 1 / (len(self.contexts) - len(comparisons)) if comparisons else _FIRST_SHARE
            n_tokens = self._look_length(context, times, box.part(share))
            if comparisons and (box.spent or not n_tokens):
                self.left_out.append(f"{self.name} was not compared at {context:,} tokens, for want of time.")
                continue
            self.say(f"comparing passes of {self.name} at {context:,} tokens")
            steps = SingleSteps(self.model, context, self._ahead[: n_tokens or _LOOKS[-1]], times)
            comparisons[context] = self._compare(steps, box, taking_back=context == self._border)
            found = replace(exactness_of(comparisons), threads=found.threads, prefill=found.prefill)
            if len(found.widths) + len(found.near_widths) == 1:
                found = replace(found, prefill=0)  # chunks are wide passes, too
                break
            if len(comparisons) == 1:
                found = self._look_closer(steps, context, found, chunk_limit)
        return found, times

    def _look_length(self, context: int, times: Times, box: TimeBox) -> int:
        """Return how many tokens to compare; 0 where there is no time for any."""
        room = self.model.n_ctx - context - 1
        if not times.of:
            self.model.refill(context)
            time_widths(self.model, self._ahead, context, (1,), times, box)
        seconds = min(times.of[next(iter(times.of))][1]) * _LOOK_COST
        return next((n for n in _LOOKS if n <= room and n * seconds <= box.left), 0)

    @property
    def _border(self) -> int:
        return _BORDER if _BORDER in self.contexts else self.contexts[-1]

    def _compare(self, steps: SingleSteps, box: TimeBox, *, taking_back: bool) -> dict[int, Comparison]:
        """Compare widths, rising, until one leaves another cache: also once half of its pass is taken back.

        The narrow ones are compared over all tokens: what attention computes otherwise in wide passes shows in them.
        For the others' own kernels fewer will do. Short time ends it after those that decide whether the cache is
        exact enough.
        """
        found: dict[int, Comparison] = {}
        for width in _WIDTHS:
            if width > steps.n_tokens or (len(found) >= ENOUGH_EXACT_WIDTHS and box.spent):
                break
            one = steps.compare(width, steps.n_tokens if width <= _NARROW else _FEWER)
            if taking_back and one.cache_equal and not steps.survives_rollback(width):
                one = replace(one, cache_equal=False)
            found[width] = one
            if not one.cache_equal:
                break
        return found

    def _look_closer(self, steps: SingleSteps, context: int, found: Exactness, chunk_limit: float) -> Exactness:
        """Look at what one context shows as well as any: other thread counts, and chunks of a prompt."""
        if self.model.n_threads > 1:
            n_threads = self.model.n_threads
            self.model.use_threads(1)
            found = replace(found, threads=steps.repeat_equally(found.widths[1:4]))
            self.model.use_threads(n_threads)
        room = self.model.n_ctx - context - steps.n_tokens
        chunks = [chunk for chunk in CHUNKS if chunk <= min(chunk_limit, room)]
        exact = (chunk for chunk in chunks if steps.chunk_is_exact(chunk) and steps.chunk_is_exact(_RAGGED % chunk))
        return replace(found, prefill=next(exact, 0))

    def _time(self, kv_type: KvType, widths: Sequence[int], times: Times, box: TimeBox) -> StepCosts:
        """Time all widths at the shortest and the longest context."""
        self.say(f"timing {self.name}")
        if self.model.kv_type is not kv_type or not times.of:
            self._renew(kv_type)
            read(self.model, self.text, min(self.contexts[0], _LITTLE), box)
        ends = sorted({self.contexts[0], self.contexts[-1]})
        room = self.model.n_ctx - ends[-1]
        widths = [width for width in widths if width < room]
        for index, context in enumerate(ends):
            part = box.part(1 / (len(ends) - index))
            time_widths(self.model, self._ahead, context, widths, times, part, least=_LEAST_WIDTHS)
        costs = times.costs(ends)
        missing = sorted(set(widths) - set(costs.widths))
        if missing:
            self.left_out.append(f"{self.name} was not timed at widths {', '.join(map(str, missing))}.")
        return costs

    def _survey_forward_only(self, kv_type: KvType) -> Survey:
        """Time a model that cannot take tokens back, so that nobody drafts for it: reading and writing only."""
        self.say(f"timing {self.name}")
        times = Times()
        width = min(PREFILL_WIDTH, self.model.n_ctx // 2)
        for _ in range(_ROUNDS):
            self.model.rollback(0)
            times.add(0, width, timed(self.model, self.text[:width], 1)[0])
            for token in self.text[:_ROUNDS]:
                times.add(0, 1, timed(self.model, [token], 1)[0])
        choice = CacheChoice(kv_type, "it cannot take tokens back, so no other was tried")
        return Survey(choice, (), times.costs([0]), Exactness())


def best_threads(trials: Sequence[ThreadTrial]) -> int:
    """Return the fewest threads that are about as fast as any."""
    best = min(trial.seconds for trial in trials)
    return min(trial.n_threads for trial in trials if trial.seconds <= best * _WORTH_A_THREAD)


def _as_asked(choice: CacheChoice, types: Sequence[KvType]) -> CacheChoice:
    return choice._replace(reason="as asked, or found out before") if len(types) == 1 else choice
