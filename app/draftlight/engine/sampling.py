"""Logits to a law, a law to a token. Both models go through here, and so does plain decoding: one path for all."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from draftlight.engine import noise
from draftlight.engine.model import FloatArray

_HEAD = 64  # tokens kept apart where nothing truncates the law; the rest is one tail
_SHOWN = 8  # likeliest tokens a greedy law lists
_SAFE_EXPONENT = 50.0  # exp of this, a million times over, still fits float32
_GROUP = 64  # logits searched together


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the target's law is made from its logits; the draft's is made the same way.

    Applied in llama.cpp's order: logit bias, penalties over the last `penalty_last_n` tokens, top-k, top-p, min-p,
    temperature. 0 (top_k), 1.0 (top_p), 0.0 (min_p), 1.0 (repeat_penalty) switch a part off. Temperature 0 is the
    one-hot law of the largest logit, the lowest id among equals.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    penalty_last_n: int = 64
    logit_bias: Mapping[int, float] = field(default_factory=dict)

    @property
    def truncates(self) -> bool:
        """Whether any token's probability becomes 0."""
        return self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0

    @property
    def penalises(self) -> bool:
        """Whether earlier tokens change the law."""
        return self.repeat_penalty != 1.0 or self.frequency_penalty != 0.0 or self.presence_penalty != 0.0


class Choice(NamedTuple):
    """What a law and the noise chose. The score is log p + g, at temperature 0 the logit; the margin its lead."""

    token: int
    score: float
    margin: float


class Law(NamedTuple):
    """The probability of each token at one position.

    `ids` are the likeliest tokens in falling order and `log_p` their log probabilities. Where nothing truncates, the
    tokens outside `ids` form a tail of log mass `tail_log_p`; -inf where there is none. A greedy law chooses the
    largest logit; its log_p are the model's own at temperature 1, for the eye only.
    `logits` (n_vocab,) are the row this was made from: valid until the model's next forward pass.
    """

    ids: list[int]
    log_p: list[float]
    logits: FloatArray
    greedy: bool
    temperature: float
    log_z: float  # log of the sum of exp(logits / temperature) over the support
    tail_log_p: float = -math.inf

    def choose(self, seed: int, position: int) -> Choice:
        """Draw the token for this position; the same noise for the same seed and position, whoever asks."""
        if self.greedy:
            best = float(self.logits[self.ids[0]])
            margin = best - float(self.logits[self.ids[1]]) if len(self.ids) > 1 else math.inf
            return Choice(self.ids[0], best, margin)
        token, best, second = -1, -math.inf, -math.inf
        for drawn, log_p, g in zip(self.ids, self.log_p, noise.gumbel(seed, position, self.ids), strict=True):
            score = log_p + g
            if score > best:
                token, best, second = drawn, score, best
            elif score > second:
                second = score
        if self.tail_log_p > -math.inf:
            tail = self.tail_log_p + noise.gumbel(seed, position, [noise.TAIL])[0]
            if tail > best:
                return Choice(self._inside_tail(seed, position), tail, tail - best)
            second = max(second, tail)
        return Choice(token, best, best - second)

    def probability(self, token: int) -> float:
        """P of one token: 0 where it was truncated away."""
        if token in self.ids:
            return math.exp(self.log_p[self.ids.index(token)])
        if self.greedy or self.tail_log_p > -math.inf:
            return math.exp(float(self.logits[token]) / self.temperature - self.log_z)
        return 0.0

    def rank(self, token: int) -> int:
        """How many tokens are likelier; among equals the lower id counts as likelier."""
        if token in self.ids:
            return self.ids.index(token)
        return int(np.count_nonzero(self.logits > self.logits[token]))

    def score(self, token: int, seed: int, position: int) -> float | None:
        """Return the score `choose` compared for this token; None where it was truncated away or sits in the tail."""
        if self.greedy:
            return float(self.logits[token])
        if token not in self.ids:
            return None
        return self.log_p[self.ids.index(token)] + noise.gumbel(seed, position, [token])[0]

    def top(self, n: int) -> list[tuple[int, float]]:
        """Return the n likeliest tokens with their probabilities."""
        return [(token, math.exp(log_p)) for token, log_p in zip(self.ids[:n], self.log_p[:n], strict=True)]

    def _inside_tail(self, seed: int, position: int) -> int:
        """Draw within the tail by inverse CDF, with a number of its own."""
        outside = np.ones(self.logits.size, bool)
        outside[self.ids] = False
        ids = np.flatnonzero(outside)
        weights = self.logits[ids].astype(np.float64) / self.temperature
        cumulative = np.exp(weights - weights.max()).cumsum()
        u = noise.uniform(seed, position, [noise.INSIDE_TAIL])[0]
        return int(ids[min(int(np.searchsorted(cumulative, u * cumulative[-1], side="right")), ids.size - 1)])


def law(logits: FloatArray, params: SamplingParams, recent: Sequence[int]) -> Law:
    """Make the law of one row of logits (n_vocab,). `recent` are the tokens before it, for the penalties."""
    if params.logit_bias or (params.penalises and recent):
        logits = _adjusted(logits, params, recent)
    if params.temperature <= 0.0:
        ids, values = _largest(logits, _SHOWN)
        log_z = _log_sum_exp(logits, values[0])
        return Law(ids, [value - log_z for value in values], logits, greedy=True, temperature=1.0, log_z=log_z)
    ids, values = _support(logits, params)
    scaled = [value / params.temperature for value in values]
    log_z, tail = _log_sum(scaled), -math.inf
    if not params.truncates and len(ids) < logits.size:
        rest = logits.astype(np.float64) / params.temperature
        rest[ids] = -np.inf
        rest_log_z = _log_sum_exp(rest, float(rest.max()))
        log_z = float(np.logaddexp(log_z, rest_log_z))
        tail = rest_log_z - log_z
    log_p = [value - log_z for value in scaled]
    return Law(ids, log_p, logits, greedy=False, temperature=params.temperature, log_z=log_z, tail_log_p=tail)


def _support(logits: FloatArray, params: SamplingParams) -> tuple[list[int], list[float]]:
    """Token ids that survive top-k, top-p and min-p, in falling order of their logits, and these logits."""
    ids, values = _largest(logits, params.top_k if params.top_k > 0 else _HEAD)
    if params.top_p >= 1.0 and params.min_p <= 0.0:
        return ids, values
    # Shares are taken of what top-k left, as llama.cpp does; of the whole vocabulary where top-k is off.
    log_z = _log_sum(values) if params.top_k > 0 else _log_sum_exp(logits, values[0])
    kept = _kept(values, log_z, params)
    if kept == len(ids) < logits.size and params.top_k <= 0:
        ids, values = _largest(logits, logits.size)
        kept = _kept(values, log_z, params)
    return ids[:kept], values[:kept]


def _kept(values: Sequence[float], log_z: float, params: SamplingParams) -> int:
    """How many of the falling logits top-p and min-p keep: one at the least."""
    floor = values[0] + math.log(params.min_p) if params.min_p > 0.0 else -math.inf
    reached = 0.0
    for n, value in enumerate(values):
        if value < floor or reached >= params.top_p:
            return max(n, 1)
        reached += math.exp(value - log_z)
    return len(values)


def _largest(logits: FloatArray, n: int) -> tuple[list[int], list[float]]:
    """Ids and values of the n largest logits, in falling order; the lower id first among equals.

    The n-th largest of the groups' maxima is a bound that at least n logits reach, and few more do; only those are
    sorted. A group is every n_groups-th logit, which numpy compares fastest. Several times quicker than a partition,
    and it touches little code: after a forward pass the caches are cold, and that costs more than the arithmetic.
    """
    n_groups = logits.size // _GROUP
    if n < n_groups:
        maxima = logits[: n_groups * _GROUP].reshape(_GROUP, n_groups).max(axis=0)
        maxima.partition(n_groups - n)
        reaching = (logits >= maxima[n_groups - n]).nonzero()[0]
    else:
        reaching = np.arange(logits.size)
    values = logits[reaching]
    order = (-values).argsort(kind="stable")[:n]
    return reaching[order].tolist(), values[order].tolist()


def _log_sum(values: Sequence[float]) -> float:
    """Log of the sum of exp of a few numbers in falling order."""
    return values[0] + math.log(sum(math.exp(value - values[0]) for value in values))


def _log_sum_exp(x: NDArray[np.float64] | FloatArray, largest: float) -> float:
    """Log of the sum of exp(x), in x's own precision: numpy sums pairwise, so float32 loses about 1e-6."""
    if abs(largest) < _SAFE_EXPONENT:  # the usual case, a pass over the row less
        return math.log(np.exp(x).sum())
    weights = x - x.dtype.type(largest)
    return largest + math.log(np.exp(weights, out=weights).sum())


def _adjusted(logits: FloatArray, params: SamplingParams, recent: Sequence[int]) -> FloatArray:
    """Return a copy with the bias added and repeated tokens made less likely (llama.cpp's three penalties)."""
    logits = logits.copy()
    for token, bias in params.logit_bias.items():
        logits[token] += bias
    if params.penalises and params.penalty_last_n > 0:
        window = np.array(recent[-params.penalty_last_n :], np.int64)
        ids, counts = np.unique(window, return_counts=True)
        values = logits[ids]
        values = np.where(values > 0, values / params.repeat_penalty, values * params.repeat_penalty)
        logits[ids] = values - counts * params.frequency_penalty - params.presence_penalty
    return logits


@dataclass(frozen=True, slots=True)
class Sampler:
    """One generation's parameters and seed: what draft and target must share to choose alike."""

    params: SamplingParams
    seed: int

    def law(self, logits: FloatArray, history: Sequence[int]) -> Law:
        """Make the law of the row of logits after `history`."""
        recent = history[-self.params.penalty_last_n :] if self.params.penalises else ()
        return law(logits, self.params, recent)
