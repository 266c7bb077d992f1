"""How large a run is made for its time: how much this computer writes and trains in a second, and in which numbers."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import torch
from transformers import PreTrainedModel

from draftlight.forge.chats import Chats
from draftlight.forge.distill import Distillation
from draftlight.forge.gguf_file import read_contents
from draftlight.forge.recipe import ChatPlan, Kind, Recipe, TrainingPlan
from draftlight.forge.reports import Outlook
from draftlight.forge.run_folder import Plan
from draftlight.forge.student import begin
from draftlight.forge.torch_model import head_width, moved
from draftlight.forge.writing import Manner, write
from draftlight.library.gguf import read_header

_CHATS_SHARE = 0.6  # of the time that is left for chats and training
_LOOKS_SHARE = 0.05  # of the time, at most, for looks at the acceptance
_LEAST_LEFT = 0.3  # of the time, whatever the rest takes
_FEWEST_LOOKS = 3
_LEAST_CHAT_TOKENS, _LEAST_TRAINED_TOKENS = 2_000, 4_000
_MOST_EPOCHS = 8.0  # beyond that a draft model learns its chats by heart
_MEMORY_SHARE = 0.4  # of the free memory, for the cache of the chats that are written
_GPU_SPARE_BYTES = 1 << 30  # for the logits of a batch and the rest
_MOST_TOGETHER = 128
_FASTER = 1.3  # times that half precision must be faster to be worth its rounding
_PRODUCT = 1024
_TRIED_STEPS = 4
_TRIED_PROMPT = 32
_FEWEST_TOGETHER = 16
_LANGUAGES = "general.languages"


def device(n_bytes: int) -> torch.device:
    """Return where to compute: a GPU that torch sees and that has so much memory free, else the processor."""
    if torch.cuda.is_available() and torch.cuda.mem_get_info()[0] >= n_bytes + _GPU_SPARE_BYTES:
        return torch.device("cuda")
    return torch.device("cpu")


def fastest_dtype(where: torch.device) -> torch.dtype:
    """Return bfloat16 where products of it are clearly faster than float32's, as with AMX or on a GPU."""
    if where.type == "cuda":
        return torch.bfloat16
    seconds = {}
    for dtype in (torch.float32, torch.bfloat16):
        one = torch.ones((_PRODUCT, _PRODUCT), dtype=dtype)
        taken = []
        for _ in range(5):
            started = time.perf_counter()
            one @ one
            taken.append(time.perf_counter() - started)
        seconds[dtype] = min(taken)
    return torch.bfloat16 if seconds[torch.float32] > _FASTER * seconds[torch.bfloat16] else torch.float32


def rows_together(teacher: PreTrainedModel, chats: ChatPlan) -> int:
    """Return how many chats to write at once: a power of two, as the free memory there allows, at most 128."""
    config: Any = teacher.config
    values = 2 * config.num_hidden_layers * config.num_key_value_heads * head_width(config)
    row = teacher.dtype.itemsize * values * (chats.longest_question + chats.longest_answer + 64)
    on_gpu = teacher.device.type == "cuda"
    free = torch.cuda.mem_get_info()[0] if on_gpu else psutil.virtual_memory().available
    fitting = _MEMORY_SHARE * free / row
    n = _MOST_TOGETHER
    while n > 1 and n > fitting:
        n //= 2
    return n


def rows_in_time(
    teacher: PreTrainedModel, chats: ChatPlan, seconds: float, go_on: Callable[[], bool], clock: Callable[[], float]
) -> int | None:
    """Return how many of these chats to write at once so that they take no longer than that, by a few steps of some.

    At least 16: fewer hardly take less time. None as soon as `go_on` says no.
    """
    together = chats.n_together
    while together > _FEWEST_TOGETHER:
        moments: list[float] = []

        def stepped(moments: list[float] = moments) -> bool:
            moments.append(clock())
            return go_on()

        manner = Manner(_TRIED_STEPS, frozenset(), n_labels=chats.n_labels)
        if write(teacher, [[0] * _TRIED_PROMPT] * together, [chats.temperature] * together, manner, 0, stepped) is None:
            return None
        step = statistics.median(after - before for before, after in pairwise(moments[1:]))
        if step * (chats.longest_question + chats.longest_answer) <= seconds:
            break
        together //= 2
    return together


def languages(target: Path, known: Sequence[str]) -> tuple[str, ...]:
    """Return those of the `known` languages that the file says the model speaks, English where it names none."""
    named = read_contents(read_header(target), _LANGUAGES).entries.get(_LANGUAGES)
    texts = named.value if named is not None and isinstance(named.value, list) else []
    spoken = [each.decode("utf-8", "replace") for each in texts if isinstance(each, bytes)]
    return tuple(each for each in known if each in spoken) or ("en",)


def trained_speed(
    teacher: PreTrainedModel,
    recipe: Recipe,
    chats: Chats,
    look: Callable[[PreTrainedModel], object],
    clock: Callable[[], float],
) -> tuple[float, float]:
    """Return the seconds by `clock` that an answer token takes in training, and those of a look.

    By a look at a draft model and a few steps of its training, which is then forgotten.
    """
    student = moved(begin(teacher, recipe.shape, recipe.seed), teacher.device)
    started = clock()
    look(student)
    look_seconds = clock() - started
    training = Distillation(student, chats, recipe.training, recipe.seed, teacher.dtype)
    steps = training.steps()
    next(steps)
    seen, started = training.n_seen, clock()
    for _ in range(_TRIED_STEPS):
        next(steps, None)
    return (clock() - started) / max(1, training.n_seen - seen), look_seconds


def training_for(kind: Kind) -> TrainingPlan:
    """Return the rates that suit a shape.

    New and narrow layers learn far more with Muon. What comes from the target must not be lost at once, and for
    matrices as wide as the target's Muon takes longer on a processor than the rest of a step.
    """
    if kind is Kind.PRUNED:
        return TrainingPlan(matrix_rate=0.0, learning_rate=1e-3, embedding_rate=0.3, weight_decay=0.01)
    return TrainingPlan()


@dataclass(frozen=True, slots=True)
class Budget:
    """Seconds: what the whole run may take, what was spent, what the end will take, and what each thing takes.

    `chat` and `step` are those of an answer token that is written, and trained; `look` is that of a look.
    """

    whole: float
    spent: float
    end: float
    chat: float
    step: float
    look: float


def sized(recipe: Recipe, n_written: int, budget: Budget) -> Recipe:
    """Return the recipe with as many looks, chats and training as fit; `n_written` tokens of chats are there."""
    n_looks = max(_FEWEST_LOOKS, min(recipe.held_out.n_looks, int(_LOOKS_SHARE * budget.whole / budget.look)))
    left = budget.whole - budget.spent - budget.end - n_looks * budget.look
    left = max(left, _LEAST_LEFT * budget.whole)
    n_chats = max(_LEAST_CHAT_TOKENS, n_written + round(_CHATS_SHARE * left / budget.chat))
    n_trained = max(_LEAST_TRAINED_TOKENS, round((1 - _CHATS_SHARE) * left / budget.step))
    return replace(
        recipe,
        chats=replace(recipe.chats, n_tokens=n_chats),
        training=replace(recipe.training, n_tokens=min(n_trained, round(_MOST_EPOCHS * n_chats))),
        held_out=replace(recipe.held_out, n_looks=n_looks),
    )


def whole(recipe: Recipe, outlook: Outlook, dtype: str) -> Plan:
    """Return the plan for this recipe; `dtype` is the name of what products are computed in."""
    return Plan(
        recipe=recipe,
        outlook=outlook,
        look_every=max(1, recipe.training.n_tokens // recipe.held_out.n_looks),
        dtype=dtype,
    )
