"""200,000 draws of the whole loop against the target's exact law, by chi-square. Seeds are fixed: no flicker."""

import numpy as np
import pytest
from scipy import stats

from draftlight.engine.cancel import CancelToken
from draftlight.engine.context import Context
from draftlight.engine.decoding import GenerationRequest, SpeculativeDecoder
from draftlight.engine.drafting.model import ModelDrafter
from draftlight.engine.events import GenerationFinished
from draftlight.engine.sampling import SamplingParams
from toys import LetterTokenizer, TableModel

N_VOCAB = 6
N_TOKENS, N_RUNS = 1_000, 200
SAMPLING = SamplingParams(temperature=0.9, top_k=0, top_p=1.0, min_p=0.0)


def draws(k: int) -> np.ndarray:
    """Counts of each token after each pair of tokens before it: (n_vocab, n_vocab, n_vocab)."""
    tokenizer = LetterTokenizer()
    target = Context(TableModel(N_VOCAB))
    drafter = ModelDrafter(Context(TableModel(N_VOCAB, noise=1.0)), N_VOCAB)
    decoder = SpeculativeDecoder(target, [drafter], tokenizer)
    counts = np.zeros((N_VOCAB,) * 3, np.int64)
    for seed in range(N_RUNS):
        asked = GenerationRequest((1, 2), SAMPLING, seed, draft_length=k, max_new_tokens=N_TOKENS)
        *_, finished = decoder.generate(asked, CancelToken())
        assert isinstance(finished, GenerationFinished)
        text = np.array([1, 2, *finished.tokens])
        np.add.at(counts, (text[:-2], text[1:-1], text[2:]), 1)
    return counts


@pytest.mark.slow
@pytest.mark.timeout(900)  # 200,000 draws: a minute on a quiet machine
@pytest.mark.parametrize("k", [0, 3], ids=["plain", "shared noise, K = 3"])
def test_committed_tokens_follow_the_target_s_law(k: int) -> None:
    counts = draws(k)
    assert counts.sum() == N_TOKENS * N_RUNS == 200_000
    logits = TableModel(N_VOCAB).table.astype(np.float64) / SAMPLING.temperature
    p = np.exp(logits - logits.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    expected = counts.sum(-1, keepdims=True) * p
    usable = expected >= 5  # cells too thin for chi-square are pooled with their row's others
    statistic, freedom = 0.0, 0
    for seen, wanted, thick in zip(
        counts.reshape(-1, N_VOCAB), expected.reshape(-1, N_VOCAB), usable.reshape(-1, N_VOCAB), strict=True
    ):
        cells = [*zip(seen[thick], wanted[thick], strict=True)]
        if not thick.all() and wanted[~thick].sum() > 0.5:
            cells.append((seen[~thick].sum(), wanted[~thick].sum()))
        if len(cells) > 1:
            statistic += sum((a - b) ** 2 / b for a, b in cells)
            freedom += len(cells) - 1
    assert freedom > 100
    assert 1e-4 < stats.chi2.sf(statistic, freedom) < 1 - 1e-4
