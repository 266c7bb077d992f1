"""Logits to a law, a law to a token. Both models go through here, and so does plain decoding: one path for all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from draftlight.engine import noise
from draftlight.engine.model import FloatArray

_HEAD = 256  # tokens kept apart where nothing truncates the law; the rest is one tail
_SHOWN = 8  # likeliest tokens a greedy law lists
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
    def penalises(self) -> bool:
        """Whether earlier tokens change the law."""
        return self.repeat_penalty != 1.0 or self.frequency_penalty != 0.0 or self.presence_penalty != 0.0


class Choice(NamedTuple):
    """What a law and the noise chose. The score is log p + g, at temperature 0 the logit; the margin its lead."""

    token: int
    score: float
    margin: float


@dataclass(frozen=True, slots=True)
class Law:
    """The probability of each token at one position.

    `ids` (n,) are the likeliest tokens in falling order and `log_p` (n,) their log probabilities. Where nothing
    truncates, the tokens outside `ids` form a tail of log mass `tail_log_p`; -inf where there is none. A greedy law
    chooses the largest logit; its log_p are the model's own at temperature 1, for the eye only.
    `logits` (n_vocab,) are the row this was made from: valid until the model's next forward pass.
    """

    ids: NDArray[np.int64]
    log_p: NDArray[np.float64]
    logits: FloatArray
    greedy: bool
    temperature: float
    log_z: float  # log of the sum of exp(logits / temperature) over the support
    tail_log_p: float = -np.inf

    def choose(self, seed: int, position: int) -> Choice:
        """Draw the token for this position; the same noise for the same seed and position, whoever asks."""
        if self.greedy:
            token = int(self.logits.argmax())
            best = float(self.logits[token])
            others = self.logits[self.ids[self.ids != token]]
            return Choice(token, best, best - float(others.max()) if others.size else np.inf)
        scores = self.log_p + noise.gumbel(seed, position, self.ids)
        winner = int(scores.argmax())
        best = float(scores[winner])
        scores[winner] = -np.inf
        second = float(scores.max())
        if self.tail_log_p > -np.inf:
            tail = self.tail_log_p + float(noise.gumbel(seed, position, np.array([noise.TAIL]))[0])
            if tail > best:
                return Choice(self._inside_tail(seed, position), tail, tail - best)
            second = max(second, tail)
        return Choice(int(self.ids[winner]), best, best - second)

    def probability(self, token: int) -> float:
        """P of one token: 0 where it was truncated away."""
        place = np.flatnonzero(self.ids == token)
        if place.size:
            return float(np.exp(self.log_p[place[0]]))
        if self.greedy or self.tail_log_p > -np.inf:
            return float(np.exp(float(self.logits[token]) / self.temperature - self.log_z))
        return 0.0

    def rank(self, token: int) -> int:
        """How many tokens have a larger logit."""
        return int(np.count_nonzero(self.logits > self.logits[token]))

    def score(self, token: int, seed: int, position: int) -> float | None:
        """Return the score `choose` compared for this token; None where it was truncated away or sits in the tail."""
        if self.greedy:
            return float(self.logits[token])
        place = np.flatnonzero(self.ids == token)
        if not place.size:
            return None
        return float(self.log_p[place[0]] + noise.gumbel(seed, position, self.ids[place])[0])

    def top(self, n: int) -> list[tuple[int, float]]:
        """Return the n likeliest tokens with their probabilities."""
        return list(zip(self.ids[:n].tolist(), np.exp(self.log_p[:n]).tolist(), strict=True))

    def _inside_tail(self, seed: int, position: int) -> int:
        """Draw within the tail by inverse CDF, with a number of its own."""
        outside = np.ones(self.logits.size, bool)
        outside[self.ids] = False
        ids = np.flatnonzero(outside)
        weights = self.logits[ids].astype(np.float64) / self.temperature
        cumulative = np.exp(weights - weights.max()).cumsum()
        u = float(noise.uniform(seed, position, np.array([noise.INSIDE_TAIL]))[0])
        return int(ids[min(int(np.searchsorted(cumulative, u * cumulative[-1], side="right")), ids.size - 1)])


def law(logits: FloatArray, params: SamplingParams, recent: Sequence[int]) -> Law:
    """Make the law of one row of logits (n_vocab,). `recent` are the tokens before it, for the penalties."""
    if params.logit_bias or (params.penalises and recent):
        logits = _adjusted(logits, params, recent)
    if params.temperature <= 0.0:
        ids = _largest(logits, _SHOWN)
        log_z = _log_sum_exp(logits)
        return Law(ids, logits[ids].astype(np.float64) - log_z, logits, greedy=True, temperature=1.0, log_z=log_z)
    ids = _support(logits, params)
    scaled = logits[ids].astype(np.float64) / params.temperature
    log_z, tail = _log_sum_exp(scaled), -np.inf
    if not _truncates(params) and ids.size < logits.size:
        rest = logits.astype(np.float64) / params.temperature
        rest[ids] = -np.inf
        rest_log_z = _log_sum_exp(rest)
        log_z = float(np.logaddexp(log_z, rest_log_z))
        tail = rest_log_z - log_z
    return Law(ids, scaled - log_z, logits, greedy=False, temperature=params.temperature, log_z=log_z, tail_log_p=tail)


def _truncates(params: SamplingParams) -> bool:
    return params.top_k > 0 or params.top_p < 1.0 or params.min_p > 0.0


def _support(logits: FloatArray, params: SamplingParams) -> NDArray[np.int64]:
    """Token ids that survive top-k, top-p and min-p, in falling order of their logits."""
    n = min(params.top_k if params.top_k > 0 else _HEAD, logits.size)
    ids = _largest(logits, n)
    if params.top_p >= 1.0 and params.min_p <= 0.0:
        return ids
    # Shares are taken of what top-k left, as llama.cpp does; of the whole vocabulary where top-k is off.
    log_z = _log_sum_exp(logits[ids] if params.top_k > 0 else logits)
    kept = _kept(logits[ids] - log_z, params)
    if kept == ids.size and params.top_k <= 0 and ids.size < logits.size:
        ids = _largest(logits, logits.size)
        kept = _kept(logits[ids] - log_z, params)
    return ids[:kept]


def _kept(log_p: NDArray[np.float64] | FloatArray, params: SamplingParams) -> int:
    """How many of the falling log probabilities top-p and min-p keep: one at the least."""
    n = int(log_p.size)
    if params.top_p < 1.0:
        reached = np.exp(log_p, dtype=np.float64).cumsum() >= params.top_p
        n = int(reached.argmax()) + 1 if reached.any() else n
    if params.min_p > 0.0:
        n = min(n, int(np.count_nonzero(log_p >= log_p[0] + np.log(params.min_p))))
    return max(n, 1)


def _largest(logits: FloatArray, n: int) -> NDArray[np.int64]:
    """Ids of the n largest logits, in falling order; the lower id first among equals.

    The n largest lie within the n groups whose maxima are largest, so only those groups are searched: several times
    quicker than a partition of the whole row. A group is every n_groups-th logit, which numpy compares fastest.
    """
    n_groups = logits.size // _GROUP
    if n < n_groups:
        grouped = n_groups * _GROUP
        maxima = logits[:grouped].reshape(_GROUP, n_groups).max(axis=0)
        best = np.argpartition(maxima, n_groups - n)[n_groups - n :]
        members = (best + np.arange(0, grouped, n_groups)[:, None]).ravel()
        searched = np.concatenate((members, np.arange(grouped, logits.size)))
    else:
        searched = np.arange(logits.size)
    if n < searched.size:
        ids = searched[np.argpartition(logits[searched], searched.size - n)[searched.size - n :]]
    else:
        ids = searched
    ordered: NDArray[np.int64] = ids[np.lexsort((ids, -logits[ids]))]
    return ordered


def _log_sum_exp(x: NDArray[np.float64] | FloatArray) -> float:
    """Log of the sum of exp(x), in x's own precision: numpy sums pairwise, so float32 loses about 1e-6."""
    largest = x.max()
    weights = x - largest
    return float(largest) + float(np.log(np.exp(weights, out=weights).sum()))


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
