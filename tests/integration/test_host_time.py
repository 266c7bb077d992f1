"""The engine's own time, all but llama.cpp's, must stay small beside the models'."""

import statistics
from pathlib import Path

import pytest

from draftlight.engine.cancel import CancelToken
from draftlight.engine.context import Context
from draftlight.engine.decoding import GenerationRequest, SpeculativeDecoder
from draftlight.engine.drafting.model import ModelDrafter
from draftlight.engine.events import GenerationFinished
from draftlight.engine.sampling import SamplingParams
from draftlight.llama.backend import LlamaModel, ModelOptions
from findings import note

BAR = 0.05
RUNS = 9


@pytest.mark.model
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_host_time_is_under_5_percent_of_a_round_on_the_starter_pair(
    starter_target: Path, starter_draft: Path, temperature: float
) -> None:
    """The least of nine runs: a neighbour on the machine can only add to it, and adds more than the bar itself."""
    options = ModelOptions(n_ctx=512)
    with LlamaModel(starter_target, options) as target, LlamaModel(starter_draft, options) as draft:
        vocabulary = target.vocabulary
        drafter = ModelDrafter(Context(draft), vocabulary, target.n_vocab)
        decoder = SpeculativeDecoder(Context(target), drafter, vocabulary)
        prompt = tuple(vocabulary.encode("The fox kept the lighthouse. Every night he climbed the stairs and"))
        shares = []
        for seed in range(RUNS):
            asked = GenerationRequest(prompt, SamplingParams(temperature), seed, draft_length=3, max_new_tokens=64)
            *_, finished = decoder.generate(asked, CancelToken())
            assert isinstance(finished, GenerationFinished)
            shares.append(finished.stats.host_share)
    note(
        f"host time at K = 3 on the starter pair, T = {temperature}: least {min(shares):.1%}, "
        f"median {statistics.median(shares):.1%} of a round"
    )
    assert min(shares) < BAR
