"""Accept, reject, correct: the heart of speculative decoding, for shared noise.

At each position the target chooses x = argmax(log p + g), exactly as it would without a draft. A drafted token is
accepted iff it equals x. The first that does not ends the round, and x takes its place: the correction. When all are
accepted, the last row gives one token more: the bonus. The output is therefore the target's own, token by token, and
any draft is safe; a good one only makes it come sooner. (Rejection sampling, Leviathan et al. 2023, has the same law
but not the same tokens for a seed.)
"""

from collections.abc import Sequence
from typing import NamedTuple

from draftlight.engine.model import FloatArray
from draftlight.engine.sampling import Choice, Law, Sampler


class Judgement(NamedTuple):
    """The target's law at one position and what it chose there."""

    law: Law
    choice: Choice


class Verdict(NamedTuple):
    """Of the draft, the first `n_accepted` stand; `target_token` follows them. One judgement for each row looked at.

    `target_token` is None only where rejudged() ended the round right behind a drafted token.
    """

    n_accepted: int
    target_token: int | None
    judgements: tuple[Judgement, ...]


def verify(draft: Sequence[int], logits: FloatArray, history: Sequence[int], sampler: Sampler) -> Verdict:
    """Judge a draft of K tokens by the target's logits (K + 1, n_vocab) after `history` and after each drafted token.

    Each row's law takes the tokens before that row as its history: the committed ones and the draft up to there.
    """
    judgements = []
    sequence = list(history)
    for row, drafted in zip(logits, [*draft, None], strict=True):
        law = sampler.law(row, sequence)
        choice = law.choose(sampler.seed, len(sequence))
        judgements.append(Judgement(law, choice))
        if choice.token != drafted:
            break
        sequence.append(choice.token)
    return Verdict(len(judgements) - 1, judgements[-1].choice.token, tuple(judgements))


def rejudged(
    verdict: Verdict, place: int, row: FloatArray, draft: Sequence[int], history: Sequence[int], sampler: Sampler
) -> Verdict:
    """Return the verdict with the row at `place` (n_vocab,) evaluated anew, and with nothing behind it."""
    sequence = [*history, *draft[:place]]
    law = sampler.law(row, sequence)
    choice = law.choose(sampler.seed, len(sequence))
    judgements = (*verdict.judgements[:place], Judgement(law, choice))
    if place < len(draft) and draft[place] == choice.token:
        return Verdict(place + 1, None, judgements)
    return Verdict(place, choice.token, judgements)
