"""Runner, figures and report in one, over toy models whose clock is their own: the figures are known beforehand."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from draftlight.bench.arms import parse_arms
from draftlight.bench.doubts import Circumstances
from draftlight.bench.figures import Figures, figures
from draftlight.bench.measurement import Caches, EngineArm, EngineSetup, predicted_cost
from draftlight.bench.page import as_page, write_folder
from draftlight.bench.plots import acceptance_by_position, cost_staircase, speed_up_by_kind
from draftlight.bench.prompts import WrittenPrompt
from draftlight.bench.report import BenchReport, as_json, as_markdown
from draftlight.bench.runner import Plan, Results, run
from draftlight.engine.cancel import CancelToken
from draftlight.engine.context import Context
from draftlight.engine.costs import PairFacts, StepCosts
from draftlight.engine.decoding import SpeculativeDecoder
from draftlight.engine.drafting.base import Drafter
from draftlight.engine.drafting.model import ModelDrafter
from draftlight.engine.drafting.suffix import SuffixDrafter
from draftlight.engine.model import FloatArray
from draftlight.engine.sampling import SamplingParams
from draftlight.errors import UserError
from toys import LetterTokenizer, TableModel

STEP, DRAFT_STEP, ROW = 100.0, 10.0, 2.0  # seconds: so long that the real time of the host code is nothing beside them
ARMS = "plain,k1,k3,k7,ngram3"
WIDTHS = tuple(range(1, 17))
FACTS = PairFacts(
    target=StepCosts((100, 1000), WIDTHS, tuple(tuple(STEP + ROW * (w - 1) for w in WIDTHS) for _ in range(2))),
    draft=StepCosts((100,), (1,), ((DRAFT_STEP,),)),
    exact_widths=frozenset({1, 2, 4}),
)


class TimedModel(TableModel):
    """A toy whose forward passes take so long by its own clock, but for the prompt's: that the engine times itself."""

    def __init__(self, step: float, row: float, noise: float = 0.0) -> None:
        super().__init__(noise=noise)
        self._step, self._row = step, row

    def forward(self, tokens: Sequence[int], rows: int) -> FloatArray:
        before, is_prompt = self.decode_seconds, not self.held
        logits = super().forward(tokens, rows)
        self.decode_seconds = before + (0.0 if is_prompt else self._step + self._row * (len(tokens) - 1))
        return logits


def toy_results(
    noise: float, *, arms: str = ARMS, temperature: float = 0.0, warm: bool = False, auto: bool = False
) -> Results:
    """Measure nine prompts of three kinds, 25 tokens each."""
    target, draft = TimedModel(STEP, ROW), TimedModel(DRAFT_STEP, 0.0, noise)
    tokenizer = LetterTokenizer()
    drafters: list[Drafter] = [ModelDrafter(Context(draft), n_vocab=16), SuffixDrafter()]
    decoder = SpeculativeDecoder(Context(target), drafters, tokenizer, FACTS if auto else None)
    setup = EngineSetup(
        decoder=decoder,
        sampling=SamplingParams(temperature),
        mode=None,
        facts=FACTS,
        caches=Caches(decoder, warm=warm),
        clock=lambda: target.decode_seconds + draft.decode_seconds,
    )
    prompts = tuple(WrittenPrompt(str(n), ("chat", "code", "prose")[n % 3], (n, 3, 1, n % 5)) for n in range(9))
    plan = Plan(prompts, max_tokens=25, seed=7)
    return run(plan, [EngineArm(arm, setup) for arm in parse_arms(arms)], CancelToken(), lambda _: None, lambda: 10**8)


def toy_figures(noise: float, **changes: str) -> Figures:
    arms = changes.get("arms", ARMS)
    return figures(toy_results(noise, arms=arms), arms.split(","), frozenset(), greedy=True)


@pytest.fixture(scope="module")
def report() -> BenchReport:
    found = toy_results(0.5)
    return BenchReport(
        figures=figures(found, ARMS.split(","), frozenset(), greedy=True),
        settings={"pair": {"target": "/models/a <b>.gguf"}, "seed": 7, "widths": frozenset({2, 1})},
        memory=found.memory,
        how=Circumstances(),
        facts=FACTS,
    )


def test_a_perfect_draft_gains_what_its_costs_allow() -> None:
    found = {arm.name: arm for arm in toy_figures(0.0, arms="plain,k3").arms}
    k3, plain = found["k3"], found["plain"]
    assert plain.ratio is not None
    assert plain.ratio.value == 1.0
    assert plain.tok_s == pytest.approx(1 / STEP, rel=1e-3)
    assert k3.acceptance_rate == 1.0
    assert k3.ratio is not None
    # Six rounds of four tokens, after the first token; the draft model's first step is free, being its prompt's.
    spent = 6 * (STEP + 3 * ROW + 3 * DRAFT_STEP) - DRAFT_STEP
    assert k3.ratio.value == pytest.approx(24 * STEP / spent, rel=1e-3)
    assert k3.bound is not None
    assert k3.bound.by_this_run == pytest.approx(k3.ratio.value, rel=1e-2)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_every_arm_commits_plain_s_tokens(temperature: float) -> None:
    results = toy_results(1.0, temperature=temperature)
    assert len(results.measurements) == 45
    assert all(each.identical for each in results.measurements)


def test_no_arm_profits_from_the_one_before_it() -> None:
    stats = [each.answer.stats for each in toy_results(0.5).measurements]
    assert {each.n_reused for each in stats if each is not None} == {0}


def test_warm_every_arm_finds_the_prompt_in_both_caches() -> None:
    results = toy_results(0.5, warm=True)
    assert {each.answer.stats.n_reused for each in results.measurements if each.answer.stats is not None} == {3}
    first = {
        each.answer.tally.first_draft_ms for each in results.measurements if each.answer.tally and each.arm == "k1"
    }
    assert first == {1000.0 * DRAFT_STEP}  # one step: nothing of the prompt is read again
    assert all(each.identical for each in results.measurements)


def test_a_useless_draft_costs_time_and_that_is_what_is_reported() -> None:
    found = {arm.name: arm for arm in toy_figures(50.0, arms="plain,k7").arms}
    assert found["k7"].ratio is not None
    assert found["k7"].ratio.value < 0.8
    assert found["k7"].identical == 1.0


def test_auto_learns_from_its_own_answers_alone() -> None:
    alone, among = toy_results(0.5, arms="plain,auto", auto=True), toy_results(0.5, arms="plain,k7,k3,auto", auto=True)

    def lengths(results: Results) -> list[object]:
        return [each.answer.tally and each.answer.tally.lengths for each in results.measurements if each.arm == "auto"]

    assert lengths(alone) == lengths(among)


def test_reasons_that_differ_in_a_figure_alone_are_counted_together() -> None:
    results = toy_results(50.0, arms="plain,model", auto=True)
    reasons = {reason for each in results.measurements if each.answer.tally for reason in each.answer.tally.reasons}
    assert any("does not pay" in reason for reason in reasons)
    assert len(reasons) < 8
    assert not any(character.isdigit() for reason in reasons for character in reason)


def test_the_predicted_cost_is_a_verify_and_a_draft_step_for_each_token_by_the_model() -> None:
    assert predicted_cost(FACTS, 0, 0, 50) == 1.0
    assert predicted_cost(FACTS, 3, 2, 500) == pytest.approx((STEP + 3 * ROW + 2 * DRAFT_STEP) / STEP)


def test_the_json_holds_every_arm_s_figures_and_nothing_that_json_cannot(report: BenchReport) -> None:
    told = json.loads(json.dumps(as_json(report, prompts=True), allow_nan=False))
    wanted = [
        "tok_s",
        "ratio",
        "ratio_low",
        "ratio_high",
        "identical",
        "acceptance_rate",
        "block_efficiency",
        "host_share",
        "by_kind",
    ]
    assert list(told["arms"]) == ARMS.split(",")
    for arm in told["arms"].values():
        assert set(wanted) <= set(arm)
        assert set(arm["by_kind"]) == {"chat", "code", "prose"}
    assert told["arms"]["k3"]["ratio_low"] <= told["arms"]["k3"]["ratio"] <= told["arms"]["k3"]["ratio_high"]
    assert told["settings"]["widths"] == [1, 2]
    assert len(told["prompts"]) == 9
    assert "prompts" not in as_json(report)


def test_a_fair_toy_run_raises_no_doubt(report: BenchReport) -> None:
    assert report.doubts == ()


def test_the_markdown_names_every_arm_and_kind_and_each_table_is_even(report: BenchReport) -> None:
    text = as_markdown(report)
    assert all(name in text for name in (*ARMS.split(","), "chat", "code", "prose", "seed: 7"))
    for block in text.split("\n\n"):
        if block.startswith("|"):
            assert len({line.count(" | ") for line in block.splitlines()}) == 1


def test_the_page_is_one_file_that_asks_the_network_for_nothing(report: BenchReport) -> None:
    page = as_page(report)
    assert page.count("<svg") == 3
    assert set(re.findall(r"https?://[^\"' ]+", page)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<script|<link|<img|url\(|@import|src=", page)
    assert "a &lt;b&gt;.gguf" in page
    for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        ET.fromstring(svg)  # noqa: S314 - our own


def test_the_pictures_show_every_arm_and_the_exact_widths(report: BenchReport) -> None:
    by_kind = speed_up_by_kind(report.figures)
    assert all(f">{name}<" in by_kind for name in ("all", "chat", "code", "prose"))
    assert all(f">{name} " in by_kind for name in ("k1", "k3", "k7", "ngram3"))
    assert ">plain" not in by_kind
    assert ">k7<" in acceptance_by_position(report.figures)
    assert cost_staircase(FACTS).count('fill="#fff" stroke=') == 2 * 13


def test_without_figures_there_are_no_pictures_and_the_report_still_stands(report: BenchReport) -> None:
    nothing = figures(Results((), report.memory), ["plain", "k3"], frozenset(), greedy=True)
    empty = BenchReport(nothing, {}, report.memory, Circumstances(interrupted=True))
    assert (speed_up_by_kind(nothing), acceptance_by_position(nothing), cost_staircase(None)) == ("", "", "")
    assert "stopped before its end" in as_page(empty)
    json.dumps(as_json(empty, prompts=True), allow_nan=False)


def test_the_folder_holds_all_three_and_one_that_cannot_be_written_is_told(report: BenchReport, tmp_path: Path) -> None:
    written = write_folder(report, tmp_path / "new" / "folder")
    assert [path.name for path in written] == ["report.md", "report.json", "report.html"]
    assert json.loads(written[1].read_text("utf-8"))["event"] == "bench"
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    with pytest.raises(UserError):
        write_folder(report, tmp_path / "file")
