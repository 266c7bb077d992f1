"""What the figures mean: acceptance rate, block efficiency, where the time went. Knows rounds, not models."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SpeculationStats:
    """The figures of one generation. Times in milliseconds; rates are 0.0 where nothing was counted.

    A round is one target call. The first round takes its logits from the prompt's pass, so its time is prefill's.
    """

    n_prompt: int = 0
    n_reused: int = 0
    prefill_ms: float = 0.0
    first_token_ms: float = 0.0
    n_rounds: int = 0
    n_drafted: int = 0
    n_accepted: int = 0
    n_rejected: int = 0
    n_not_reached: int = 0
    n_committed: int = 0
    accepted_at: tuple[int, ...] = ()  # accepted drafts by place in the draft
    reached_at: tuple[int, ...] = ()  # judged drafts by place in the draft
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    host_ms: float = 0.0
    n_near_ties: int = 0
    saved_ms: float = 0.0  # by the measured cost of plain steps; negative where drafting cost time; 0 where unmeasured
    n_audits: int = 0  # EXACT: rows that were evaluated again alone
    n_audit_failures: int = 0  # of them, rows whose bits differed

    @property
    def acceptance_rate(self) -> float:
        """Accepted over drafted."""
        return self.n_accepted / self.n_drafted if self.n_drafted else 0.0

    @property
    def alpha(self) -> float:
        """Accepted over judged: the chance that a drafted token is accepted once it is reached."""
        judged = self.n_accepted + self.n_rejected
        return self.n_accepted / judged if judged else 0.0

    @property
    def block_efficiency(self) -> float:
        """Committed tokens per target call."""
        return self.n_committed / self.n_rounds if self.n_rounds else 0.0

    @property
    def decode_ms(self) -> float:
        """Time of all rounds, prefill apart."""
        return self.draft_ms + self.verify_ms + self.host_ms

    @property
    def tokens_per_second(self) -> float:
        """Committed tokens a second, prefill apart: the first token comes from the prompt's own pass."""
        return 1000.0 * (self.n_committed - 1) / self.decode_ms if self.n_committed > 1 and self.decode_ms > 0 else 0.0

    @property
    def host_share(self) -> float:
        """Share of the rounds' time spent outside the two models."""
        return self.host_ms / self.decode_ms if self.decode_ms > 0 else 0.0
