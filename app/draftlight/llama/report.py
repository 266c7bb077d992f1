"""What was found out about a pair on this machine, as values. Whoever reads them needs no llama.cpp."""

from dataclasses import dataclass
from enum import StrEnum

from draftlight.engine.costs import DraftTrial, PairFacts, StepCosts
from draftlight.settings import KvType, PairSettings

PREFILL_WIDTH = 64  # tokens of the widest pass that is timed: what a prompt's token costs follows from it
CHUNK_SECONDS = 0.25  # half of what may pass until a stop has freed the engine
CHUNKS = (512, 256, 128, 64, 32, 16, 8)  # tokens of a prompt that are fed at once
SMALLEST_CHUNK = 16  # smaller ones would make every prompt slow
_CHUNK_CONTEXT = 4096  # tokens of context at which CHUNK_SECONDS holds


class DeviceKind(StrEnum):
    """What a device is, in the order of ggml_backend_dev_type."""

    PROCESSOR = "processor"
    GPU = "gpu"
    INTEGRATED_GPU = "integrated_gpu"
    ACCELERATOR = "accelerator"
    SEVERAL = "several"


@dataclass(frozen=True, slots=True)
class Device:
    """A device, and its memory in bytes: all of it, and what was free when it was looked at."""

    name: str
    description: str
    kind: DeviceKind
    memory_free: int
    memory_total: int


@dataclass(frozen=True, slots=True)
class CacheTrial:
    """One type of cache that was tried for one model.

    `step_seconds` is what decides beside exactness, averaged over the contexts that were tried: for a target the
    time of a pass over 1 token and of one over 4, added up; for a draft model of one over 1; and of reading two
    tokens of prompt, as a chat does for each that is written. It is None where the type was not tried, and
    `why_not` says why. `exact_widths` is None where nobody looked, because it would not have decided.
    """

    kv_type: KvType
    bytes_per_token: int
    step_seconds: float | None = None
    exact_widths: tuple[int, ...] | None = None
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Exactness:
    """Which passes of the target compute the same bits as passes over one token, with its cache and thread count.

    `widths`: logits and cache bit-equal at all `contexts` (tokens in the cache); `near_widths`: the cache bit-equal,
    the logits no further apart than `logit_difference`. Only `tried_widths` were looked at. `prefill` is the longest
    chunk of a prompt whose cache is bit-equal, 0 where none is. `threads` says whether one thread computes the same
    bits as all of them; None where that was not looked at.
    """

    widths: tuple[int, ...] = (1,)
    near_widths: tuple[int, ...] = ()
    logit_difference: float = 0.0
    prefill: int = 0
    threads: bool | None = None
    contexts: tuple[int, ...] = ()
    tried_widths: tuple[int, ...] = (1,)


@dataclass(frozen=True, slots=True)
class ThreadTrial:
    """Fewest seconds of a pass over 1 token and of one over 4, with so many threads."""

    n_threads: int
    one_seconds: float
    four_seconds: float

    @property
    def seconds(self) -> float:
        """What decides: both added up."""
        return self.one_seconds + self.four_seconds


@dataclass(frozen=True, slots=True)
class ModelProbe:
    """What was measured of one model. Times are medians; a context is counted in tokens held by the cache."""

    n_ctx: int
    n_ctx_train: int
    n_vocab: int
    load_seconds: float
    kv_type: KvType
    cache_choice: str  # why that one, in a sentence
    cache_trials: tuple[CacheTrial, ...]
    costs: StepCosts
    weight_buffers: tuple[str, ...]  # as llama.cpp calls them: REPACK and AMX hold weights laid out anew, for speed
    memory_bytes: int  # what the process grew by, including the parts of the file that were read

    def prefill_seconds(self, context: int) -> float:
        """Return what a prompt's token costs with so many tokens before it."""
        widest = max(width for width in self.costs.widths if width <= PREFILL_WIDTH)
        return self.costs.at(widest, context) / widest

    @property
    def prefill_chunk(self) -> int:
        """How many prompt tokens to feed at once, so that a stop is obeyed soon: a power of two, 16 to 512."""
        seconds = self.prefill_seconds(min(self.n_ctx, _CHUNK_CONTEXT))
        return next(chunk for chunk in CHUNKS if chunk * seconds <= CHUNK_SECONDS or chunk == SMALLEST_CHUNK)


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """What was measured of a pair, by what, in how long, and under what load.

    `left_out` are sentences on what there was no time for; `devices` what this build of llama.cpp could compute on.
    `others_busy` is the share of all processors, 0 to 1, that other programs used meanwhile.
    """

    target: ModelProbe
    draft: ModelProbe | None
    exactness: Exactness
    n_threads: int
    thread_trials: tuple[ThreadTrial, ...]
    draft_trials: tuple[DraftTrial, ...]
    left_out: tuple[str, ...] = ()
    devices: tuple[Device, ...] = ()
    seconds: float = 0.0
    library: str = ""
    system: str = ""
    others_busy: float = 0.0

    @property
    def facts(self) -> PairFacts:
        """What the engine needs of all this."""
        return PairFacts(
            target=self.target.costs,
            draft=None if self.draft is None else self.draft.costs,
            exact_widths=frozenset(self.exactness.widths),
            exact_prefill=self.exactness.prefill,
            near_exact=frozenset(self.exactness.near_widths),
            logit_difference=self.exactness.logit_difference,
            trials=self.draft_trials,
        )


@dataclass(frozen=True, slots=True)
class Preflight:
    """A pair that runs here: the settings that work, what the person should know, what was measured.

    The settings hold what AUTO and 0 came to: the types of the caches and the number of threads.
    """

    settings: PairSettings
    notices: tuple[str, ...]
    report: ProbeReport
