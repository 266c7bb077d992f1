"""The promise on real models: any draft commits what plain decoding commits.

Bit for bit wherever a verify of that width gives bit-equal logits here, which each test measures first; elsewhere the
first fork must be a near-tie, and both scores are shown. The same text at three context lengths decides a width.
Temperature 0 uses no noise, so one seed says all there.
"""

import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from draftlight.engine.cancel import CancelToken
from draftlight.engine.context import Context
from draftlight.engine.decoding import GenerationRequest, SpeculativeDecoder
from draftlight.engine.drafting.base import Drafter
from draftlight.engine.drafting.model import ModelDrafter
from draftlight.engine.drafting.suffix import SuffixDrafter
from draftlight.engine.events import GenerationFinished, RoundVerified, TokenReport
from draftlight.engine.sampling import SamplingParams
from draftlight.llama.backend import LlamaModel, ModelOptions
from draftlight.settings import KvType
from findings import note
from twins import Twins, make_twins

PROMPTS = (
    "Write a short story about a fox who keeps a lighthouse.",
    "Explain to a child why the sky is blue.",
    "Write a Python function that returns the n-th Fibonacci number.",
    "List five things to pack for a rainy weekend.",
    "Rewrite this sentence politely: Give me the report now.",
    "What is 17 times 23? Think step by step.",
    'Return JSON with the keys "name" and "age" for: Ada is 36.',
    "Repeat after me, three times: the quick brown fox jumps over the lazy dog.",
)
ARMS = (1, 3, 7, "ngram")
N_CTX = 1024
N_TOKENS = 48
# tests/device sets these, for both models.
N_GPU_LAYERS = int(os.environ.get("DRAFTLIGHT_TEST_GPU_LAYERS", "0"))
N_THREADS = int(os.environ.get("DRAFTLIGHT_TEST_THREADS", "0"))
MAX_WIDTH = 8
NEAR_TIE = 1.0  # score units; the largest difference seen between two widths on any quantised model


@dataclass(frozen=True, slots=True)
class Pair:
    """A loaded pair with its contexts."""

    name: str
    target: LlamaModel
    target_context: Context
    draft: LlamaModel
    draft_context: Context

    def decoder(self, drafter: Drafter | None) -> SpeculativeDecoder:
        return SpeculativeDecoder(self.target_context, [drafter] if drafter else [], self.target.vocabulary)

    def drafter(self, arm: int | str) -> tuple[Drafter, int]:
        if arm == "ngram":
            return SuffixDrafter(), 3
        return ModelDrafter(self.draft_context, self.target.n_vocab), int(arm)


def loaded(name: str, target: Path, draft: Path, kv_type: KvType = KvType.Q8_0) -> Iterator[Pair]:
    options = ModelOptions(n_ctx=N_CTX, n_threads=N_THREADS, n_gpu_layers=N_GPU_LAYERS, kv_type=kv_type)
    with LlamaModel(target, options) as big, LlamaModel(draft, options) as small:
        yield Pair(name, big, Context(big), small, Context(small))


@pytest.fixture(scope="module")
def starter(starter_target: Path, starter_draft: Path) -> Iterator[Pair]:
    yield from loaded("starter", starter_target, starter_draft)


@pytest.fixture(scope="module")
def twins(twin_pair: Twins) -> Iterator[Pair]:
    yield from loaded("twins", twin_pair.target, twin_pair.draft)


@pytest.fixture(scope="module")
def f16_twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    made = make_twins(tmp_path_factory.mktemp("f16-twins"), weights="F16")
    yield from loaded("F16 twins, F32 cache", made.target, made.draft, KvType.F32)


def exact_widths(model: LlamaModel, widths: Sequence[int]) -> frozenset[int]:
    """Widths whose logits equal width 1's bit for bit, at contexts of about 100, 250 to 266 and 600 tokens."""
    text = model.vocabulary.encode("A draft model proposes a few tokens; the target verifies them in one go. " * 60)
    exact = set(widths)
    for start in (100, 250, 600):
        rows = {}
        for width in (1, *widths):
            model.rollback(0)
            for first in range(0, start, 50):
                model.forward(text[first : first + 50], 0)
            pieces = [
                model.forward(text[first : first + width], width).copy()
                for first in range(start, start + 16 // width * width, width)
            ]
            rows[width] = np.concatenate(pieces)
        exact -= {width for width in widths if not np.array_equal(rows[width], rows[1][: len(rows[width])])}
    model.rollback(0)
    return frozenset(exact)


@dataclass(frozen=True, slots=True)
class Answer:
    """What one generation committed."""

    tokens: tuple[int, ...]
    reports: tuple[TokenReport, ...]
    n_drafted: int


def generate(decoder: SpeculativeDecoder, prompt: tuple[int, ...], temperature: float, seed: int, k: int) -> Answer:
    asked = GenerationRequest(prompt, SamplingParams(temperature), seed, draft_length=k, max_new_tokens=N_TOKENS)
    reports: list[TokenReport] = []
    drafted = 0
    for event in decoder.generate(asked, CancelToken()):
        if isinstance(event, RoundVerified):
            reports += event.committed
            drafted += len(event.drafted)
    assert isinstance(event, GenerationFinished)
    return Answer(event.tokens, tuple(reports), drafted)


def check_against_plain(plain: Answer, drafted: Answer, *, exact: bool, where: str) -> None:
    if drafted.tokens == plain.tokens:
        return
    fork = next(place for place, (a, b) in enumerate(zip(plain.tokens, drafted.tokens, strict=False)) if a != b)
    own, other = plain.reports[fork], drafted.reports[fork]
    scores = f"{own.text!r} {own.choice_score:.4f} (lead {own.margin:.4f}), {other.text!r} {other.choice_score:.4f}"
    assert not exact, f"{where}: forked at token {fork} though the width is bit-exact: {scores}"
    assert own.margin is not None
    assert own.margin < NEAR_TIE, f"{where}: forked at token {fork}, which is no near-tie: {scores}"
    note(f"{where}: forked at the near-tie {fork}: {scores}")


def check_pair(pair: Pair, prompts: Sequence[str], seeds: Sequence[int]) -> None:
    exact = exact_widths(pair.target, range(2, MAX_WIDTH + 1))
    note(f"{pair.name}: verify widths whose logits equal width 1's bit for bit: {sorted(exact) or 'none'}")
    vocabulary = pair.target.vocabulary
    n_drafted = dict.fromkeys(ARMS, 0)
    for text in prompts:
        turn = vocabulary.control_tokens["<|im_start|>"]
        prompt = (turn, *vocabulary.encode(f"user\n{text}\nassistant\n"))
        for temperature, seed in [(0.0, 1), *((0.8, seed) for seed in seeds)]:
            plain = generate(pair.decoder(None), prompt, temperature, seed, 0)
            for arm in ARMS:
                drafter, k = pair.drafter(arm)
                answer = generate(pair.decoder(drafter), prompt, temperature, seed, k)
                n_drafted[arm] += answer.n_drafted
                where = f"{pair.name}, {text[:20]!r}, T {temperature}, seed {seed}, {arm}"
                check_against_plain(plain, answer, exact=exact.issuperset(range(2, k + 2)), where=where)
    note(f"{pair.name}: {len(prompts) * (1 + len(seeds))} answers, each plain and with {len(ARMS)} drafts, compared")
    assert all(n_drafted.values()), f"an arm drafted nothing, so it showed nothing: {n_drafted}"


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_starter_pair_commits_the_same_tokens_for_every_draft(starter: Pair) -> None:
    check_pair(starter, PROMPTS, seeds=(1, 2, 3))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_twins_commit_the_same_tokens_for_every_draft(twins: Pair) -> None:
    check_pair(twins, PROMPTS, seeds=(1, 2, 3))


def test_where_widths_are_not_exact_a_fork_is_a_near_tie(f16_twins: Pair) -> None:
    check_pair(f16_twins, PROMPTS[:3], seeds=(1,))


@pytest.mark.model
@pytest.mark.skipif(platform.machine() not in {"x86_64", "AMD64"} or N_GPU_LAYERS > 0, reason="is about x86 processors")
def test_over_a_half_precision_cache_our_build_gives_a_verify_the_bits_of_single_tokens(starter_target: Path) -> None:
    with LlamaModel(starter_target, ModelOptions(n_ctx=N_CTX, n_threads=N_THREADS, kv_type=KvType.F16)) as target:
        assert exact_widths(target, range(2, 17)) == frozenset(range(2, 17))
