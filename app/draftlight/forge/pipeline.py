"""A forge run from the target's file to the draft model's: what is possible, chats, training, what came out.

Every part leaves its result in the run's folder and is skipped where that is there: a run that was killed goes on, and
ends as it would have.
"""

import math
from dataclasses import asdict, replace

import torch
from transformers import PreTrainedModel

from draftlight import paths
from draftlight.bench.prompts import read_prompts, spread
from draftlight.chat.prompt import ChatMessage, build_prompt
from draftlight.errors import UserError
from draftlight.forge import planning
from draftlight.forge.acceptance import HeldOut, answered
from draftlight.forge.chats import Chats, ChatWriter, Shards
from draftlight.forge.conditions import training_bytes
from draftlight.forge.finishing import bench_seconds, finish
from draftlight.forge.judging import Judge
from draftlight.forge.labels import labelled_by
from draftlight.forge.openers import known_languages, read_openers
from draftlight.forge.prospects import Prospector, shapes_for, usual_minutes, verify_costs
from draftlight.forge.recipe import ChatPlan, HeldOutPlan, Recipe, Shape, read_recipe
from draftlight.forge.reports import ChatsWritten, Outlook, Stage, StageBegun
from draftlight.forge.run_folder import Plan, Prospect
from draftlight.forge.student import begin
from draftlight.forge.teacher import load_target, parity
from draftlight.forge.torch_model import moved
from draftlight.forge.training import looked, train
from draftlight.forge.workshop import Workshop, needed
from draftlight.forge.writing import ATTENTION
from draftlight.library.gguf import read_header
from draftlight.llama import preflight
from draftlight.llama.backend import LlamaModel, ModelOptions
from draftlight.llama.report import Preflight
from draftlight.settings import PairSettings

_N_CTX = 2048
_LEAST_SAME_CHOICE = 0.85  # quantised arithmetic alone turns 4 % of the choices
_PARITY_TOKENS = 192
_TELL_SECONDS = 2.0
_FEWEST_STEPS = 40  # of the first chats, after which the time left is told: they begin slowly
_LEAST_CONTEXT = 1024
_FEWEST_HELD_OUT = 4
_OPENERS = "forge/openers.toml"
_HELD_OUT_SHARE = 0.05  # of the run's time, for the target's own answers
_SHARD_SHARE = 0.15  # of the run's time, for chats that are written together: they are whole or lost
_LOADED_SECONDS = 90.0  # that the finished pair's own preflight takes before `bench`
_LOOKS_TO_JUDGE = 7  # that judging both quantisations takes as long as


def run(shop: Workshop) -> None:
    """Make the draft model, or only tell the outlook where that was asked for. Raises UserError, Stopped, OSError."""
    request, folder = shop.request, shop.folder
    request.folder.mkdir(parents=True, exist_ok=True)
    target = LlamaModel(request.target, ModelOptions(n_ctx=_N_CTX))
    try:
        _require_chats(target)
        with shop.stage(Stage.LOADING, f"Loading {request.target.name} and comparing it with llama.cpp"):
            teacher = _teacher(shop, target)
        with shop.stage(Stage.OUTLOOK, "Measuring what a draft model could bring on this computer"):
            shape, outlook = _outlook(shop, teacher, target)
        shop.tell(outlook)
        if request.only_outlook:
            return
        with shop.stage(Stage.CHATS, f"{request.target.name} writes chats with itself to learn from"):
            held_out = _held_out(shop, target)
            looking, judge = (  # what chooses the best must not say how good it is
                Judge(target, half, outlook.verify_costs, shop.go_on) for half in (held_out[::2], held_out[1::2])
            )
            plan = folder.plan() or _plan(shop, teacher, looking, (shape, outlook))
            _write_chats(shop, teacher, target, plan)
        with shop.stage(Stage.TRAINING, f"Training the draft model: {plan.recipe.shape.label}"):
            student = moved(begin(teacher, plan.recipe.shape, plan.recipe.seed), teacher.device)
            del teacher  # it has said what it had to say, and takes the most memory
            student = train(shop, student, looking, plan)
        with shop.stage(Stage.MEASURING, "Measuring what the draft model is worth"):
            report = finish(shop, student, judge, plan)
        shop.tell(report)
    finally:
        target.close()


def _require_chats(target: LlamaModel) -> None:
    """Raise UserError for a target that cannot chat, before anything takes long."""
    name = target.path.name
    if target.vocabulary.chat_template is None:
        raise UserError(
            f"{name} brings no chat template, so it cannot chat with itself.", "Choose a model trained for chats."
        )
    if target.n_ctx < _LEAST_CONTEXT:
        raise UserError(
            f"{name} has a context of {target.n_ctx:,} tokens; making a draft model takes {_LEAST_CONTEXT:,}.",
            "Choose a model with a longer context.",
        )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _teacher(shop: Workshop, target: LlamaModel) -> PreTrainedModel:
    """Return the target in torch, where it computes fastest. Raises UserError where it does not compute the same."""
    decided = shop.folder.plan() or shop.folder.prospect()
    header = read_header(shop.request.target)
    in_training = training_bytes(header)
    where = planning.device(torch.bfloat16.itemsize * header.n_parameters + in_training)
    dtype = planning.fastest_dtype(where) if decided is None else getattr(torch, decided.dtype)
    beside = in_training if where.type == "cpu" else 0
    teacher = load_target(shop.request.target, dtype, shop.request.weights, beside)
    teacher.set_attn_implementation(ATTENTION)
    prompts = spread(read_prompts(paths.bench_suite()), 1)
    tokens = build_prompt(target.vocabulary, [ChatMessage("user", prompts[0].text)], _N_CTX, 0).tokens[:_PARITY_TOKENS]
    found = parity(teacher, target, tokens)
    shop.folder.log(parity=asdict(found))
    if found.same_choice < _LEAST_SAME_CHOICE:
        raise UserError(
            f"torch and llama.cpp compute {shop.request.target.name} differently: they choose the same token at "
            f"{found.same_choice:.0%} of {found.n_places} places.",
            "A draft model cannot be made for this file; please report it.",
        )
    return moved(teacher, where)


def _outlook(shop: Workshop, teacher: PreTrainedModel, target: LlamaModel) -> tuple[Shape, Outlook]:
    request, folder = shop.request, shop.folder
    planned = folder.plan()
    if planned is not None and not request.only_outlook:
        return planned.recipe.shape, planned.outlook
    recipe = None if request.recipe is None else read_recipe(request.recipe)
    minutes = request.minutes if recipe is None else usual_minutes(recipe.training)
    asked = f"{request.recipe or request.size}, {minutes:g} minutes"
    known = folder.prospect()
    if known is not None and known.asked == asked and (recipe is None or known.shape == recipe.shape):
        return known.shape, known.outlook
    report = None
    for step in preflight.run(PairSettings(request.target), shop.cancel):
        if isinstance(step, Preflight):
            report = step.report
        else:
            shop.tell(StageBegun(Stage.OUTLOOK, step.sentence))
    costs = verify_costs(needed(report).target.costs)
    shapes = shapes_for(teacher, request.size) if recipe is None else [recipe.shape]
    if not shapes:
        raise UserError(f"{request.target.name} is too small for a draft model of its own.", "Choose a larger target.")
    prospector = Prospector(teacher, target, request.target, folder.trial, costs)
    shape, outlook = needed(prospector.best(shapes, minutes, shop.go_on))
    folder.keep_prospect(Prospect(asked, shape, outlook, _name(teacher.dtype)))
    return shape, outlook


def _held_out(shop: Workshop, target: LlamaModel) -> list[HeldOut]:
    """Return the target's answers to questions that no chat begins with, written once."""
    kept = shop.folder.held_out()
    if kept is not None:
        return kept
    request, name = shop.request, shop.request.target.name
    plan = HeldOutPlan() if request.recipe is None else read_recipe(request.recipe).held_out
    seconds = math.inf if request.recipe is not None else 60.0 * max(1.0, request.minutes * _HELD_OUT_SHARE)
    deadline = shop.clock() + seconds
    found: list[HeldOut] = []
    for prompt in spread(read_prompts(paths.bench_suite()), plan.n_questions):
        answering = f"{name} answers questions to be tested with, {len(found) + 1} of {plan.n_questions}"
        shop.tell(StageBegun(Stage.CHATS, answering))
        tokens = build_prompt(target.vocabulary, [ChatMessage("user", prompt.text)], _N_CTX, 0).tokens
        if len(tokens) + plan.n_tokens > target.n_ctx:
            continue
        found += needed(answered(target, target.vocabulary, [tokens], plan.n_tokens, shop.go_on))
        if shop.clock() > deadline and len(found) >= _FEWEST_HELD_OUT:
            break
    if len(found) < _FEWEST_HELD_OUT:
        raise UserError(f"{name} has too short a context to be asked anything.", "Choose another target.")
    shop.folder.keep_held_out(found)
    return found


def _plan(shop: Workshop, teacher: PreTrainedModel, looking: Judge, found: tuple[Shape, Outlook]) -> Plan:
    """Decide for good how many chats, how much training and how many looks, by what each takes and what is left."""
    request, (shape, outlook) = shop.request, found
    if request.recipe is not None:
        recipe = read_recipe(request.recipe)
    else:
        chats = ChatPlan(
            n_together=planning.rows_together(teacher, ChatPlan()),
            languages=planning.languages(request.target, known_languages(paths.asset(_OPENERS))),
        )
        in_time = _SHARD_SHARE * 60.0 * request.minutes
        chats = replace(
            chats, n_together=needed(planning.rows_in_time(teacher, chats, in_time, shop.go_on, shop.clock))
        )
        recipe = Recipe(shape, chats, planning.training_for(shape.kind))
        shop.tell(StageBegun(Stage.CHATS, f"{request.target.name} writes its first chats, to see how long they take"))
        started = shop.clock()
        first = needed(_writer(teacher, looking.target, recipe).shard(0, shop.go_on))
        chat = (shop.clock() - started) / first.n_answer_tokens
        Shards(shop.folder.chats).keep(0, first)
        step, look = planning.trained_speed(
            teacher, recipe, first, lambda student: looked(student, looking, shop.folder.trial), shop.clock
        )
        end = bench_seconds(request.minutes) + _LOADED_SECONDS + _LOOKS_TO_JUDGE * look
        budget = planning.Budget(60.0 * request.minutes, shop.spent, end, chat, step, look)
        recipe = planning.sized(recipe, first.n_answer_tokens, budget)
    plan = planning.whole(recipe, outlook, _name(teacher.dtype))
    shop.folder.keep_plan(plan)
    return plan


def _writer(teacher: PreTrainedModel, target: LlamaModel, recipe: Recipe) -> ChatWriter:
    openers = read_openers(paths.asset(_OPENERS), recipe.chats.languages)
    return ChatWriter(teacher, target.vocabulary, openers, recipe.chats, recipe.seed)


def _write_chats(shop: Workshop, teacher: PreTrainedModel, target: LlamaModel, plan: Plan) -> None:
    """Write shards until there is enough. Raises Stopped, OSError."""
    wanted = plan.recipe.chats.n_tokens
    shards = Shards(shop.folder.chats)
    writer = _writer(teacher, target, plan.recipe)
    n_tokens, sample = 0, ""
    for kept in shards.all():
        n_tokens, sample = n_tokens + kept.n_answer_tokens, _sample(target, kept)
    progress = _ChatsProgress(shop, plan.recipe.chats, n_tokens, sample)
    shop.tell(StageBegun(Stage.CHATS, f"{shop.request.target.name} writes chats with itself to learn from"))
    while progress.n_tokens < wanted:
        chats = needed(writer.shard(shards.n_whole(), progress.go_on))
        if plan.recipe.chats.quantised_labels:
            chats = needed(labelled_by(target, chats, plan.recipe.chats.n_labels, shop.go_on))
        shards.keep(shards.n_whole(), chats)
        shop.note_spent()
        progress.add(chats.n_answer_tokens, _sample(target, chats))


class _ChatsProgress:
    """Tells how far the chats are, between shards by the tokens that each step should bring."""

    def __init__(self, shop: Workshop, plan: ChatPlan, n_tokens: int, sample: str) -> None:
        self._shop, self._plan = shop, plan
        self.n_tokens = self._n_before = n_tokens
        self._per_shard = 0.5 * plan.n_together * plan.longest_answer
        self._n_steps = 0
        self._started = self._told = shop.clock()
        self._sample = sample

    def go_on(self) -> bool:
        """Count a step, and tell from time to time; return whether to go on."""
        self._n_steps += 1
        known = self.n_tokens > self._n_before or self._n_steps >= _FEWEST_STEPS
        if known and self._shop.clock() - self._told > _TELL_SECONDS:
            self._tell()
        return self._shop.go_on()

    def add(self, n_tokens: int, sample: str) -> None:
        """Count a whole shard."""
        self.n_tokens += n_tokens
        self._per_shard, self._n_steps, self._sample = n_tokens, 0, sample
        self._tell()

    def _tell(self) -> None:
        steps = self._plan.longest_question + self._plan.longest_answer
        n_tokens = self.n_tokens + self._per_shard * min(1.0, self._n_steps / steps)
        seconds = self._shop.clock() - self._started
        left = max(0.0, self._plan.n_tokens - n_tokens) * seconds / max(1.0, n_tokens - self._n_before)
        done = min(round(n_tokens), self._plan.n_tokens)
        self._shop.tell(ChatsWritten(done, self._plan.n_tokens, left, self._sample))
        self._told = self._shop.clock()


def _sample(target: LlamaModel, chats: Chats) -> str:
    """Return the first chat as text."""
    tokens = chats.tokens[: chats.starts[1]].tolist()
    return b"".join(map(target.vocabulary.piece, tokens)).decode("utf-8", "replace")
