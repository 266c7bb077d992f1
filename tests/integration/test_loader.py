"""The loader: two files become a decoder; whatever goes wrong is a sentence, and nothing stays loaded."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from draftlight.engine.cancel import CancelToken
from draftlight.engine.costs import StepCosts
from draftlight.engine.decoding import GenerationRequest
from draftlight.engine.events import GenerationFinished, ModelLoading, RoundVerified
from draftlight.engine.sampling import SamplingParams
from draftlight.errors import UserError
from draftlight.llama import loader
from draftlight.llama.backend import LlamaModel, ModelNotLoaded
from draftlight.llama.loader import LoadedLlamaPair, load, thread_policy
from draftlight.llama.report import Exactness, ModelProbe, Preflight, ProbeReport, ThreadTrial
from draftlight.llama.trial import Stage
from draftlight.settings import KvType, PairSettings
from twins import Twins, make_twins, write_twin

COSTS = StepCosts((100, 400), (1, 4, 64), ((0.001, 0.002, 0.02), (0.001, 0.002, 0.02)))
MEASURED = ModelProbe(512, 4096, 334, 0.01, KvType.Q8_0, "as asked", (), COSTS, ("CPU",), 10**7)


def report(settings: PairSettings) -> ProbeReport:
    draft = None if settings.draft is None else MEASURED
    return ProbeReport(MEASURED, draft, Exactness((1, 2, 3, 4), prefill=32), 1, (), ())


def trusting(settings: PairSettings, cancel: CancelToken) -> Iterator[Stage | Preflight]:
    """A check that starts no child: what works is what was asked for."""
    del cancel
    yield Preflight(settings, (), report(settings))


@pytest.fixture
def settings(twin_pair: Twins) -> PairSettings:
    return PairSettings(target=twin_pair.target, draft=twin_pair.draft, n_ctx=512, n_threads=1)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[LlamaModel]:
    """Every model that was loaded during the test."""
    models: list[LlamaModel] = []

    class Noted(LlamaModel):
        def __init__(self, *arguments: object) -> None:
            models.append(self)
            super().__init__(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(loader, "LlamaModel", Noted)
    return models


@pytest.fixture
def load_pair() -> Iterator[Callable[[PairSettings], LoadedLlamaPair]]:
    pairs: list[LoadedLlamaPair] = []

    def load_one(settings: PairSettings) -> LoadedLlamaPair:
        *steps, pair = load(settings, CancelToken(), check=trusting)
        assert all(isinstance(step, ModelLoading) for step in steps)
        assert isinstance(pair, LoadedLlamaPair)
        pairs.append(pair)
        return pair

    yield load_one
    for pair in pairs:
        pair.close()


def test_a_thread_count_measured_beside_busy_programs_is_open_again(
    settings: PairSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "default_threads", lambda: 8)
    trials = (ThreadTrial(1, 0.1, 0.2), ThreadTrial(8, 9.0, 9.0))
    quiet = replace(report(settings), thread_trials=trials)
    policy, costs, draft_costs = thread_policy(Preflight(settings, (), quiet))
    assert (policy.n_threads, costs, draft_costs) == (1, COSTS, COSTS)
    busy = replace(quiet, others_busy=0.9)
    policy, costs, draft_costs = thread_policy(Preflight(settings, (), busy))
    assert (policy.n_threads, costs, draft_costs) == (8, None, None)
    by_hand = replace(busy, thread_trials=())
    assert thread_policy(Preflight(replace(settings, n_threads=3), (), by_hand))[0].n_threads == 3


def generate(pair: LoadedLlamaPair, draft_length: int = 3) -> list[object]:
    request = GenerationRequest(
        prompt=tuple(pair.vocabulary.encode("the draft model and the target model")),
        sampling=SamplingParams(temperature=0.0),
        seed=1,
        draft_length=draft_length,
        max_new_tokens=24,
    )
    return list(pair.decoder.generate(request, CancelToken()))


def is_freed(model: LlamaModel) -> bool:
    return model._model is None and model._context is None


def test_a_real_check_and_a_real_pair_end_in_a_decoder_that_drafts(settings: PairSettings) -> None:
    *steps, pair = load(settings, CancelToken())
    assert isinstance(pair, LoadedLlamaPair)
    told = [step.step for step in steps if isinstance(step, ModelLoading) and step.fraction in {None, 0.0}]
    assert told[:2] == [f"Checking how {settings.target.name} runs on this computer", f"Loading {settings.target.name}"]
    assert f"Decoding 4 tokens with {settings.target.name}" in told
    assert told[-2:] == [f"Loading {settings.target.name}", f"Loading {settings.draft.name if settings.draft else ''}"]
    assert pair.decoder.facts is not None
    assert pair.decoder.facts.draft is not None
    rounds = [event for event in generate(pair) if isinstance(event, RoundVerified)]
    pair.close()
    assert sum(len(event.drafted) for event in rounds) > 0
    assert sum(event.n_accepted for event in rounds) > 0


def test_progress_rises_to_the_end(settings: PairSettings) -> None:
    *steps, pair = load(settings, CancelToken(), check=trusting)
    assert isinstance(pair, LoadedLlamaPair)
    pair.close()
    fractions = [
        step.fraction
        for step in steps
        if isinstance(step, ModelLoading) and step.step.endswith(settings.target.name) and step.fraction is not None
    ]
    assert fractions == sorted(fractions)
    assert fractions[-1] > 0.9


def test_a_draft_without_noise_is_always_accepted(
    tmp_path: Path, load_pair: Callable[[PairSettings], LoadedLlamaPair]
) -> None:
    twins = make_twins(tmp_path, noise=0.0)
    pair = load_pair(PairSettings(target=twins.target, draft=twins.draft, n_ctx=512, n_threads=1))
    finished = generate(pair)[-1]
    assert isinstance(finished, GenerationFinished)
    assert finished.stats.acceptance_rate == 1.0


def test_a_draft_model_on_a_device_of_its_own_drafts_ahead_of_the_verify(
    settings: PairSettings, load_pair: Callable[[PairSettings], LoadedLlamaPair], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_turn = generate(load_pair(settings))
    monkeypatch.setattr(loader, "on_different_devices", lambda _: True)
    pair = load_pair(settings)
    ahead = generate(pair)
    assert isinstance(ahead[-1], GenerationFinished)
    assert isinstance(in_turn[-1], GenerationFinished)
    assert ahead[-1].tokens == in_turn[-1].tokens
    assert sum(event.ahead_ms for event in ahead if isinstance(event, RoundVerified)) > 0
    pair.close()
    assert "draft-ahead" not in " ".join(thread.name for thread in threading.enumerate())


def test_ngram_and_plain_pairs_load_one_model(
    settings: PairSettings, load_pair: Callable[[PairSettings], LoadedLlamaPair]
) -> None:
    texts = []
    for ngram in (True, False):
        pair = load_pair(replace(settings, draft=None, ngram=ngram))
        assert len(pair.models) == 1
        finished = generate(pair)[-1]
        assert isinstance(finished, GenerationFinished)
        texts.append(finished.tokens)
    assert texts[0] == texts[1]


def test_the_draft_s_context_is_at_most_its_own_training_context(
    tmp_path: Path, settings: PairSettings, load_pair: Callable[[PairSettings], LoadedLlamaPair]
) -> None:
    write_twin(tmp_path / "short.gguf", n_ctx_train=300)
    pair = load_pair(replace(settings, draft=tmp_path / "short.gguf"))
    assert [model.n_ctx for model in pair.models] == [512, 300]


def test_a_context_longer_than_trained_is_shortened_and_said(
    tmp_path: Path, load_pair: Callable[[PairSettings], LoadedLlamaPair]
) -> None:
    write_twin(tmp_path / "short.gguf", n_ctx_train=300)
    pair = load_pair(PairSettings(target=tmp_path / "short.gguf", n_ctx=4096, n_threads=1))
    assert pair.decoder.n_ctx == 300
    assert pair.notices == (
        "short.gguf was trained on contexts of 300 tokens, so its context is that long, not 4,096.",
    )


def test_a_draft_of_another_vocabulary_is_a_sentence_and_both_are_freed(
    tmp_path: Path, settings: PairSettings, opened: list[LlamaModel]
) -> None:
    write_twin(tmp_path / "target.gguf", extra_tokens=("north",))
    write_twin(tmp_path / "draft.gguf", extra_tokens=("south",))
    strangers = replace(settings, target=tmp_path / "target.gguf", draft=tmp_path / "draft.gguf")
    with pytest.raises(UserError, match=r"draft\.gguf cannot draft for target\.gguf: token 334 is 'south' to it"):
        list(load(strangers, CancelToken(), check=trusting))
    assert len(opened) == 2
    assert all(map(is_freed, opened))


@pytest.mark.parametrize("broken", ["target", "draft"])
def test_a_file_that_breaks_after_the_check_is_a_sentence_and_the_other_is_freed(
    tmp_path: Path, settings: PairSettings, opened: list[LlamaModel], broken: str
) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(settings.target.read_bytes()[:40_000])
    pair = replace(settings, target=bad) if broken == "target" else replace(settings, draft=bad)
    with pytest.raises(ModelNotLoaded, match=r"bad\.gguf could not be loaded"):
        list(load(pair, CancelToken(), check=trusting))
    assert all(map(is_freed, opened))


def test_a_cancel_at_any_step_ends_without_a_pair_and_frees_everything(
    settings: PairSettings, opened: list[LlamaModel]
) -> None:
    n_steps = len(list(load(settings, CancelToken(), check=trusting))) - 1
    for model in opened:
        model.close()
    for step_to_cancel in range(1, n_steps):  # after the last step there is nothing left to cancel
        cancel = CancelToken()
        seen = []
        for number, step in enumerate(load(settings, cancel, check=trusting)):
            seen.append(step)
            if number == step_to_cancel:
                cancel.cancel()
        for step in seen:
            if isinstance(step, LoadedLlamaPair):  # it was ready before the cancel came: the receiver closes it
                step.close()
        assert all(map(is_freed, opened))


def test_a_cancel_before_the_load_loads_nothing(settings: PairSettings, opened: list[LlamaModel]) -> None:
    cancel = CancelToken()
    cancel.cancel()
    assert not any(isinstance(step, LoadedLlamaPair) for step in load(settings, cancel, check=trusting))
    assert all(map(is_freed, opened))


@pytest.mark.parametrize("fraction", [0.0, 1.0])  # before the file is read, and when it is about to be ready
def test_a_receiver_that_goes_away_leaves_nothing_loaded(
    settings: PairSettings, opened: list[LlamaModel], fraction: float
) -> None:
    steps = load(settings, CancelToken(), check=trusting)
    for step in steps:
        if step == ModelLoading("Loading twin-draft-0.08-Q8_0.gguf", fraction):
            break
    steps.close()  # type: ignore[attr-defined]  # a generator
    assert len(opened) == 2
    assert all(map(is_freed, opened))


def test_what_the_check_changed_is_what_is_loaded_and_said(settings: PairSettings) -> None:
    def fallen_back(asked: PairSettings, _cancel: CancelToken) -> Iterator[Stage | Preflight]:
        yield Stage("decoding 4 tokens")
        yield Preflight(replace(asked, use_extra_buffers=False), ("It crashed.",), report(asked))

    *_, pair = load(settings, CancelToken(), check=fallen_back)
    assert isinstance(pair, LoadedLlamaPair)
    pair.close()
    assert pair.settings.use_extra_buffers is False
    assert pair.notices == ("It crashed.",)


@pytest.mark.model
def test_the_starter_pair_loads_and_drafts(
    starter_target: Path, starter_draft: Path, load_pair: Callable[[PairSettings], LoadedLlamaPair]
) -> None:
    pair = load_pair(PairSettings(target=starter_target, draft=starter_draft, n_ctx=512, n_threads=1))
    finished = generate(pair)[-1]
    assert isinstance(finished, GenerationFinished)
    assert finished.stats.n_drafted > 0
    assert pair.vocabulary.chat_template
