"""Adds up the rounds of one generation into its SpeculationStats."""

from dataclasses import dataclass, field, replace

from draftlight.engine.events import RoundVerified, TokenFate
from draftlight.engine.metrics import SpeculationStats

NEAR_TIE = 0.1  # a smaller margin could have gone the other way in another order of the same sums


@dataclass(slots=True)
class StatsLedger:
    """The running figures; `stats` is a snapshot of them."""

    n_prompt: int
    _total: SpeculationStats = field(default_factory=SpeculationStats)
    _accepted_at: list[int] = field(default_factory=list)
    _reached_at: list[int] = field(default_factory=list)

    @property
    def n_rounds(self) -> int:
        """Rounds so far."""
        return self._total.n_rounds

    def prompt_evaluated(self, n_reused: int, milliseconds: float) -> None:
        """Note what the prompt cost, and with it the first token."""
        self._total = replace(
            self._total, n_reused=n_reused, prefill_ms=milliseconds, first_token_ms=milliseconds, n_prompt=self.n_prompt
        )

    def add(self, report: RoundVerified) -> None:
        """Count one round."""
        total, fates = self._total, [token.fate for token in report.drafted]
        for place, fate in enumerate(fates):
            if place == len(self._reached_at):
                self._reached_at.append(0)
                self._accepted_at.append(0)
            self._reached_at[place] += fate in (TokenFate.ACCEPTED, TokenFate.REJECTED)
            self._accepted_at[place] += fate is TokenFate.ACCEPTED
        ties = sum(token.margin is not None and token.margin < NEAR_TIE for token in report.committed)
        self._total = replace(
            total,
            n_rounds=total.n_rounds + 1,
            n_drafted=total.n_drafted + len(fates),
            n_accepted=total.n_accepted + fates.count(TokenFate.ACCEPTED),
            n_rejected=total.n_rejected + fates.count(TokenFate.REJECTED),
            n_not_reached=total.n_not_reached + fates.count(TokenFate.NOT_REACHED),
            n_committed=total.n_committed + len(report.committed),
            draft_ms=total.draft_ms + report.draft_ms,
            verify_ms=total.verify_ms + report.verify_ms,
            host_ms=total.host_ms + report.host_ms,
            n_near_ties=total.n_near_ties + ties,
        )

    def stats(self) -> SpeculationStats:
        """The figures so far."""
        return replace(self._total, accepted_at=tuple(self._accepted_at), reached_at=tuple(self._reached_at))
