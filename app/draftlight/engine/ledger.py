"""Adds up the rounds of one generation into its SpeculationStats."""

from collections import Counter
from dataclasses import replace

from draftlight.engine.events import RoundVerified, TokenFate
from draftlight.engine.metrics import SpeculationStats

NEAR_TIE = 0.1  # a smaller margin could have gone the other way in another order of the same sums


class StatsLedger:
    """The running figures; `stats` is a snapshot of them."""

    def __init__(self, n_prompt: int) -> None:
        """Start with nothing counted."""
        self.n_rounds = 0
        self._prompt = SpeculationStats(n_prompt=n_prompt)
        self._fates: Counter[TokenFate] = Counter()
        self._accepted_at: list[int] = []
        self._reached_at: list[int] = []
        self._n_committed = self._n_near_ties = 0
        self._draft_ms = self._verify_ms = self._host_ms = self._saved_ms = 0.0
        self._audits: Counter[bool] = Counter()

    def prompt_evaluated(self, n_reused: int, milliseconds: float) -> None:
        """Note what the prompt cost, and with it the first token."""
        self._prompt = replace(self._prompt, n_reused=n_reused, prefill_ms=milliseconds, first_token_ms=milliseconds)

    def add(self, report: RoundVerified) -> None:
        """Count one round."""
        self.n_rounds += 1
        for place, token in enumerate(report.drafted):
            if place == len(self._reached_at):
                self._reached_at.append(0)
                self._accepted_at.append(0)
            self._fates[token.fate] += 1
            self._reached_at[place] += token.fate is not TokenFate.NOT_REACHED
            self._accepted_at[place] += token.fate is TokenFate.ACCEPTED
        for token in report.committed:
            self._n_committed += 1
            self._n_near_ties += token.margin is not None and token.margin < NEAR_TIE
        self._draft_ms += report.draft_ms
        self._verify_ms += report.verify_ms
        self._host_ms += report.host_ms
        self._saved_ms += report.saved_ms
        if report.audit is not None:
            self._audits[report.audit] += 1

    def stats(self) -> SpeculationStats:
        """The figures so far."""
        return replace(
            self._prompt,
            n_rounds=self.n_rounds,
            n_drafted=self._fates.total(),
            n_accepted=self._fates[TokenFate.ACCEPTED],
            n_rejected=self._fates[TokenFate.REJECTED],
            n_not_reached=self._fates[TokenFate.NOT_REACHED],
            n_committed=self._n_committed,
            accepted_at=tuple(self._accepted_at),
            reached_at=tuple(self._reached_at),
            draft_ms=self._draft_ms,
            verify_ms=self._verify_ms,
            host_ms=self._host_ms,
            n_near_ties=self._n_near_ties,
            saved_ms=self._saved_ms,
            n_audits=self._audits.total(),
            n_audit_failures=self._audits[False],
        )
