"""What is told about each token: its probabilities, ranks, scores and fate. Changes nothing of what is committed."""

import math
from collections.abc import Sequence

from draftlight.engine.drafting.base import Drafted
from draftlight.engine.events import Alternative, TokenFate, TokenReport
from draftlight.engine.model import Token, Tokenizer
from draftlight.engine.sampling import Sampler
from draftlight.engine.text import Utf8Stream
from draftlight.engine.verification import Judgement, Verdict

_TOP = 5


class Reporter:
    """Writes the TokenReports of one generation."""

    def __init__(self, tokenizer: Tokenizer, sampler: Sampler) -> None:
        """Name tokens with `tokenizer`; score them with the generation's own noise."""
        self._tokenizer = tokenizer
        self._sampler = sampler

    def drafted(self, proposal: Drafted, stream: Utf8Stream) -> TokenReport:
        """Report a pending token; its text continues `stream`."""
        return TokenReport(
            id=proposal.token,
            text=stream.feed(self._tokenizer.piece(proposal.token)),
            fate=TokenFate.PENDING,
            source=proposal.source,
            q=_short(proposal.q),
            q_rank=proposal.rank,
            draft_margin=None if proposal.margin is None else _short(proposal.margin),
            draft_top=self._alternatives(proposal.top),
            draft_ms=_short(1000.0 * proposal.decode_seconds),
            matched=proposal.matched,
        )

    def judged(
        self, pending: Sequence[TokenReport], n_submitted: int, verdict: Verdict, n_committed: int, position: int
    ) -> tuple[TokenReport, ...]:
        """Give each pending token its fate; those behind the first `n_submitted` were left out of the verify.

        `n_committed` of the round's tokens entered the answer: fewer than the verdict allows where the answer ended
        among them; what lies behind the end was never needed, so it counts as not reached. `position` is the first
        drafted token's index in the whole sequence.
        """
        judged = []
        for place, report in enumerate(pending):
            if place < min(verdict.n_accepted, n_committed):
                fate = TokenFate.ACCEPTED
            elif place == verdict.n_accepted < min(n_committed, n_submitted):
                fate = TokenFate.REJECTED
            else:
                judged.append(_not_reached(report))
                continue
            judged.append(self._judged(report, fate, verdict.judgements[place], position + place))
        return tuple(judged)

    def target_token(self, verdict: Verdict, n_submitted: int, text: str, position: int) -> TokenReport:
        """Report the target's own token at the end of a round: correction, bonus or plain."""
        judgement = verdict.judgements[-1]
        if not n_submitted:
            fate = TokenFate.PLAIN
        else:
            fate = TokenFate.BONUS if verdict.n_accepted == n_submitted else TokenFate.CORRECTION
        report = TokenReport(id=judgement.choice.token, text=text, fate=fate)
        return self._judged(report, fate, judgement, position)

    def _judged(self, report: TokenReport, fate: TokenFate, judgement: Judgement, position: int) -> TokenReport:
        """Add what the target thought of a token. Spelled out, since dataclasses.replace is several times slower."""
        law, choice = judgement
        score = law.score(report.id, self._sampler.seed, position)
        return TokenReport(
            id=report.id,
            text=report.text,
            fate=fate,
            source=report.source,
            p=_short(law.probability(report.id)),
            p_rank=law.rank(report.id),
            score=None if score is None else _short(score),
            choice=Token(choice.token, self._tokenizer.label(choice.token)),
            choice_score=_short(choice.score),
            margin=_short(choice.margin),
            q=report.q,
            q_rank=report.q_rank,
            draft_margin=report.draft_margin,
            draft_top=report.draft_top,
            draft_ms=report.draft_ms,
            matched=report.matched,
            target_top=self._alternatives(law.top(_TOP)),
        )

    def _alternatives(self, top: Sequence[tuple[int, float]]) -> tuple[Alternative, ...]:
        return tuple(Alternative(token, self._tokenizer.label(token), _short(share)) for token, share in top)


def _not_reached(report: TokenReport) -> TokenReport:
    """Mark a token that was never judged. Spelled out for the same reason as above."""
    return TokenReport(
        id=report.id,
        text=report.text,
        fate=TokenFate.NOT_REACHED,
        source=report.source,
        q=report.q,
        q_rank=report.q_rank,
        draft_margin=report.draft_margin,
        draft_top=report.draft_top,
        draft_ms=report.draft_ms,
        matched=report.matched,
    )


def _short(figure: float) -> float:
    """Six decimals: reports are for the eye, and every stored trace is made of them. By far quicker than round()."""
    return math.floor(figure * 1e6 + 0.5) / 1e6 if math.isfinite(figure) else figure
