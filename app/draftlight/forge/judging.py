"""What a finished draft model is worth: its files, how often each is accepted, what each costs, what that brings."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedModel

from draftlight.bench.arms import parse_arms
from draftlight.bench.figures import figures
from draftlight.bench.intervals import Interval
from draftlight.bench.measurement import Caches, EngineArm, EngineSetup
from draftlight.bench.prompts import WrittenPrompt
from draftlight.bench.runner import Plan, run
from draftlight.engine.events import ModelLoading
from draftlight.engine.sampling import SamplingParams
from draftlight.forge.acceptance import HeldOut, agreement, block_efficiency
from draftlight.forge.export import write_draft
from draftlight.forge.prospects import drafted_token_cost
from draftlight.forge.rounding import rounded
from draftlight.forge.teacher import parity
from draftlight.forge.workshop import Workshop, needed
from draftlight.llama import loader
from draftlight.llama.backend import LlamaModel, ModelOptions
from draftlight.settings import PairSettings

QUANTISATIONS = ("Q8_0", "Q4_0")
_LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16)
_SHOWN_LENGTH = 4  # up to which all of them are tried, whatever they bring
_ARM = "model"  # AUTO with the draft model alone


@dataclass(frozen=True, slots=True)
class Judged:
    """One file of a draft model and its worth. See reports.Card for what the figures mean."""

    path: Path
    quantisation: str
    acceptance: float
    block_efficiency: dict[int, float]
    draft_cost: float
    expected: float
    best_k: int
    logit_difference: float


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges with one target and its held-out chats. `verify_costs` are in plain steps."""

    target: LlamaModel
    held_out: Sequence[HeldOut]
    verify_costs: Sequence[float]
    go_on: Callable[[], bool]

    def judged(self, student: PreTrainedModel, quantisation: str, path: Path) -> Judged:
        """Write the draft model to `path` and measure it. Raises Stopped, UserError."""
        write_draft(student, self.target.path, path, quantisation, {})
        with opened(path, self.target.n_threads) as draft:
            first = self.held_out[0]
            with rounded(student) if quantisation == "Q4_0" else nullcontext():  # as the file holds it
                computed = parity(student, draft, [*first.prompt, *first.answer][:256])
            accepted = needed(agreement(draft, self.held_out, self.go_on))
            cost = needed(drafted_token_cost(self.target, draft, self.go_on))
            prices = {k: self.verify_costs[k] + k * cost for k in _LENGTHS}
            efficiency: dict[int, float] = {}
            for k in _LENGTHS:
                efficiency[k] = needed(block_efficiency(draft, self.target.vocabulary, self.held_out, k, self.go_on))
                if k >= _SHOWN_LENGTH and longer_is_vain(efficiency, prices):
                    break  # trying them takes a minute
        gains = {k: tokens / prices[k] for k, tokens in efficiency.items()}
        best = max(gains, key=gains.__getitem__)
        return Judged(path, quantisation, accepted, efficiency, cost, gains[best], best, computed.largest)


def longer_is_vain(efficiency: Mapping[int, float], prices: Mapping[int, float]) -> bool:
    """Whether no longer draft can be worth more than those tried so far, shortest first.

    Each further token brings at most as much as the last ones did: it counts only where all before it are accepted.
    """
    *_, before, last = efficiency
    rise = (efficiency[last] - efficiency[before]) / (last - before)
    best = max(tokens / prices[k] for k, tokens in efficiency.items())
    return all((efficiency[last] + rise * (k - last)) / prices[k] <= best for k in prices if k > last)


@contextmanager
def opened(path: Path, n_threads: int) -> Iterator[LlamaModel]:
    """Load a draft model for a while."""
    draft = LlamaModel(path, ModelOptions(n_ctx=2048, n_threads=n_threads))
    try:
        yield draft
    finally:
        draft.close()


def measured_speed_up(shop: Workshop, draft: Path, held_out: Sequence[HeldOut], seconds: float) -> Interval | None:
    """Return AUTO's speed-up over plain decoding with this draft model alone, by `bench`; None after a cancel.

    Where nothing was measured in the time, the cancel included, there is None. A pause waits between answers.
    """
    for step in loader.load(PairSettings(shop.request.target, draft), shop.cancel):
        shop.go_on()
        if isinstance(step, ModelLoading):
            continue
        try:
            arms = parse_arms(_ARM)
            decoder = step.decoder
            setup = EngineSetup(decoder, SamplingParams(0.0), None, decoder.facts, Caches(decoder, warm=False))
            prompts = tuple(WrittenPrompt(str(n), "held out", each.prompt) for n, each in enumerate(held_out))
            plan = Plan(prompts, max_tokens=max(len(each.answer) for each in held_out), seed=1, seconds=seconds)
            measured = [EngineArm(arm, setup) for arm in arms]
            results = run(plan, measured, shop.cancel, lambda _: _waited(shop), clock=shop.clock)
            found = figures(results, [arm.name for arm in arms], frozenset(), greedy=True)
            return next((arm.ratio for arm in found.arms if arm.name == _ARM), None)
        finally:
            step.close()
    return None


def _waited(shop: Workshop) -> None:
    """Wait while the run is paused. A stop is seen by the cancel that goes with it."""
    shop.go_on()
