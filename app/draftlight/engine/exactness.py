"""EXACT: which verify widths keep plain decoding's choices, which rows to look at twice, and whether it holds up.

Kernels differ by width, so a verify's row is not always bit-equal to the row that plain decoding would have computed,
and a near-tie then goes the other way. Some widths are bit-equal, as measured. Of others the cache is, and only the
last bits of the logits differ: where the chosen token leads by far more than they ever did, the choice is the same;
where it does not, the row is evaluated again alone. That holds for greedy choices; a truncated law has an edge of its
own, which a margin does not see. Now and then a row is evaluated again in any case: the measurement audits itself.
"""

import numpy as np

from draftlight.engine.costs import PairFacts
from draftlight.engine.model import FloatArray
from draftlight.engine.sampling import SamplingParams
from draftlight.engine.verification import Verdict

_SAFETY = 32.0  # times the largest difference seen
_AUDIT_TOKENS = 512  # committed by verifies between two audits


class Exactness:
    """What is exact for a loaded pair. It outlives the single answer: a width that fails an audit is used no more."""

    def __init__(self, facts: PairFacts) -> None:
        """Start from what preflight measured."""
        self._exact = facts.exact_widths
        self._near = facts.near_exact - facts.exact_widths
        self._difference = facts.logit_difference
        self._n_unaudited = 0

    def widths(self, params: SamplingParams) -> frozenset[int]:
        """Return the widths that a verify may have under this sampling."""
        greedy = params.temperature <= 0.0 and not params.penalises
        return self._exact | self._near if greedy else self._exact

    def row_to_check(self, verdict: Verdict, width: int) -> int | None:
        """Return the row of a verify that has to be evaluated again alone: a near-tie, or one drawn for an audit."""
        self._n_unaudited += verdict.n_accepted + 1
        if width in self._near:
            for row, judgement in enumerate(verdict.judgements):
                if judgement.choice.margin < _SAFETY * self._difference:
                    return row
        if self._n_unaudited < _AUDIT_TOKENS:
            return None
        self._n_unaudited = 0
        return len(verdict.judgements) - 1

    def holds(self, width: int, row: FloatArray, alone: FloatArray) -> bool:
        """Compare a row (n_vocab,) of a verify with the same row evaluated alone; where it fails, forget the width."""
        if width in self._near:
            same = float(np.abs(row - alone).max()) <= _SAFETY / 2 * self._difference
        else:
            same = bool(np.array_equal(row, alone))
        if not same:
            self._exact -= {width}
            self._near -= {width}
        return same
