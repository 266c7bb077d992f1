"""What follows from the measurements."""

from draftlight.engine.costs import StepCosts
from draftlight.llama.report import ModelProbe
from draftlight.settings import KvType


def measured(milliseconds: float, microseconds_per_context: float = 0.0, n_ctx: int = 8192) -> ModelProbe:
    """A model whose prompt tokens cost this much each, and this much more for each token before them."""
    seconds = [(milliseconds / 1e3 + microseconds_per_context / 1e6 * context) * 64 for context in (100, 1000)]
    costs = StepCosts((100, 1000), (1, 64), tuple((0.01, each) for each in seconds))
    return ModelProbe(n_ctx, 8192, 49152, 0.1, KvType.Q8_0, "", (), costs, (), 10**8)


def test_the_prefill_chunk_follows_the_measured_speed() -> None:
    chunks = [measured(milliseconds).prefill_chunk for milliseconds in (100, 5, 1.5, 0.9, 0.01)]
    assert chunks == [16, 32, 128, 256, 512]


def test_the_prefill_chunk_allows_for_what_attention_costs_in_a_long_context() -> None:
    assert measured(1.0, 1.0).prefill_chunk == 32
    assert measured(1.0, 1.0, n_ctx=512).prefill_chunk == 128
