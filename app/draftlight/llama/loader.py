"""Two files and options in, a ready SpeculativeDecoder out; with progress, and freed again on a cancel or a failure."""

import queue
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from draftlight.engine.cancel import CancelToken
from draftlight.engine.context import Context
from draftlight.engine.costs import StepCosts
from draftlight.engine.decoding import SpeculativeDecoder
from draftlight.engine.drafting.ahead import AheadDrafter
from draftlight.engine.drafting.base import Drafter
from draftlight.engine.drafting.model import ModelDrafter
from draftlight.engine.drafting.suffix import SuffixDrafter
from draftlight.engine.events import ModelLoading
from draftlight.errors import UserError
from draftlight.llama import preflight
from draftlight.llama.backend import MAX_BATCH, LlamaModel, LoadCancelled, ModelOptions
from draftlight.llama.devices import offload_notice, on_different_devices
from draftlight.llama.library import default_threads
from draftlight.llama.preflight import BUSY
from draftlight.llama.report import Preflight
from draftlight.llama.threads import ThreadPolicy, ThreadState, ThreadWatch
from draftlight.llama.trial import Stage
from draftlight.llama.vocabulary import LlamaVocabulary
from draftlight.settings import PairSettings

_COMPARED_TOKENS = 1000  # of both vocabularies; the header check has compared them all
_REPORT_STEP = 0.05

Check = Callable[[PairSettings, CancelToken], Iterator[Stage | Preflight]]


@dataclass(frozen=True, slots=True)
class LoadedLlamaPair:
    """A ready pair. `settings` are those that work here: preflight may have changed them, and `notices` then say so.

    What was measured of the pair is `decoder.facts`.
    """

    settings: PairSettings
    decoder: SpeculativeDecoder
    vocabulary: LlamaVocabulary
    notices: tuple[str, ...]
    models: tuple[LlamaModel, ...]
    threads: ThreadPolicy
    ahead: AheadDrafter | None = None

    @property
    def thread_state(self) -> ThreadState:
        """How many threads compute now, and why not all. Any thread may ask."""
        return self.threads.state

    def close(self) -> None:
        """Free the models; the decoder and the vocabulary must not be used afterwards."""
        if self.ahead is not None:
            self.ahead.close()
        for model in reversed(self.models):
            model.close()


def load(
    settings: PairSettings, cancel: CancelToken, *, check: Check = preflight.run
) -> Iterator[ModelLoading | LoadedLlamaPair]:
    """Report the steps and, last, the pair, which the receiver closes. After a cancel it ends without a pair.

    `check` finds out in a child process what works here; its stages are steps, too. Raises UserError: a file that
    cannot be loaded, a draft model of another vocabulary. Whatever was loaded by then is freed.
    """
    with ExitStack() as loaded:
        try:
            pair = yield from _load_pair(settings, cancel, check, loaded)
        except LoadCancelled:
            return
        loaded.pop_all()
    yield pair


def _load_pair(
    settings: PairSettings, cancel: CancelToken, check: Check, loaded: ExitStack
) -> Generator[ModelLoading, None, LoadedLlamaPair]:
    checked = yield from _checked(settings, cancel, check)
    settings, notices, report = checked.settings, list(checked.notices), checked.report
    if no_gpu := offload_notice(settings):
        notices.append(no_gpu)
    threads, costs, draft_costs = thread_policy(checked)
    options = replace(ModelOptions.of_target(settings), n_threads=threads.n_threads)
    target = loaded.enter_context((yield from _load_model(settings.target, options, threads.watch(costs), cancel)))
    if settings.n_ctx > target.n_ctx:
        notices.append(
            f"{target.path.name} was trained on contexts of {target.n_ctx:,} tokens, so its context is that long, "
            f"not {settings.n_ctx:,}."
        )
    models = [target]
    drafters: list[Drafter] = []
    ahead: AheadDrafter | None = None
    if (settings.draft is not None or settings.ngram) and not target.can_roll_back:
        notices.append(f"{target.path.name} cannot take back tokens that it has read, so it runs without drafts.")
    else:
        if settings.ngram:
            drafters.append(SuffixDrafter())
        if settings.draft is not None:
            options = replace(ModelOptions.of_draft(settings), n_threads=threads.n_threads, n_ctx=target.n_ctx)
            watch = threads.watch(draft_costs)
            draft = loaded.enter_context((yield from _load_model(settings.draft, options, watch, cancel)))
            _require_same_vocabulary(target, draft)
            models.append(draft)
            context = Context(draft) if report.draft is None else Context(draft, report.draft.prefill_chunk)
            drafter = ModelDrafter(context, target.n_vocab)
            if not no_gpu and on_different_devices(settings):
                ahead = AheadDrafter(drafter)
                loaded.callback(ahead.close)
            drafters.append(ahead or drafter)
    context = Context(target, min(report.target.prefill_chunk, report.exactness.prefill or MAX_BATCH))
    decoder = SpeculativeDecoder(context, drafters, target.vocabulary, report.facts)
    return LoadedLlamaPair(settings, decoder, target.vocabulary, tuple(notices), tuple(models), threads, ahead)


def thread_policy(checked: Preflight) -> tuple[ThreadPolicy, StepCosts | None, StepCosts | None]:
    """Return who decides on the threads, and what undisturbed passes of target and draft model cost, where known.

    The count only ever changes where that changes no bit. What was measured beside busy programs is no measure: the
    count is then open again, unless the person has set it.
    """
    report, n_threads = checked.report, checked.settings.n_threads or default_threads()
    may_change = report.exactness.threads is not False
    if report.others_busy <= BUSY:
        draft_costs = None if report.draft is None else report.draft.costs
        return ThreadPolicy(n_threads, may_change=may_change), report.target.costs, draft_costs
    return ThreadPolicy(default_threads() if report.thread_trials else n_threads, may_change=may_change), None, None


def _checked(settings: PairSettings, cancel: CancelToken, check: Check) -> Generator[ModelLoading, None, Preflight]:
    """Have the pair checked and report the stages. Raises UserError, LoadCancelled."""
    yield ModelLoading(f"Checking how {settings.target.name} runs on this computer")
    for found in check(settings, cancel):
        if isinstance(found, Preflight):
            return found
        yield ModelLoading(found.sentence)
    raise LoadCancelled


def _load_model(
    path: Path, options: ModelOptions, watch: ThreadWatch, cancel: CancelToken
) -> Generator[ModelLoading, None, LlamaModel]:
    """Load one file on a thread of its own, so that its progress can be reported. Raises UserError, LoadCancelled."""
    step = f"Loading {path.name}"
    fractions: queue.SimpleQueue[float | None] = queue.SimpleQueue()
    abandoned = threading.Event()
    told = 0.0

    def report(fraction: float) -> bool:
        nonlocal told
        if fraction >= told + _REPORT_STEP:
            told = fraction
            fractions.put(fraction)
        return not (cancel.cancelled or abandoned.is_set())

    with ThreadPoolExecutor(1, thread_name_prefix="load-model") as pool:
        future = pool.submit(LlamaModel, path, options, report, watch)
        future.add_done_callback(lambda _: fractions.put(None))
        try:
            yield ModelLoading(step, 0.0)
            while (fraction := fractions.get()) is not None:
                yield ModelLoading(step, fraction)
        except BaseException:
            abandoned.set()
            _close_when_done(future)
            raise
    model = future.result()
    if cancel.cancelled:
        model.close()
        raise LoadCancelled
    return model


def _close_when_done(future: "Future[LlamaModel]") -> None:
    """Free a model that nobody waits for any more."""
    if future.exception() is None:
        future.result().close()


def _require_same_vocabulary(target: LlamaModel, draft: LlamaModel) -> None:
    """Raise UserError unless an id means the same text to both models, among the ids that both have."""
    common = min(target.n_vocab, draft.n_vocab)
    for token in range(0, common, max(1, common // _COMPARED_TOKENS)):
        mine, theirs = target.vocabulary.text_of(token), draft.vocabulary.text_of(token)
        if mine != theirs:
            raise UserError(
                f"{draft.path.name} cannot draft for {target.path.name}: "
                f"token {token} is {theirs!r} to it, not {mine!r}.",
                "Choose a draft model of the same family, or n-gram drafts.",
            )
