"""Toy models for what measures them: their cache can be refilled, and they are wrong exactly where a test says so."""

from collections.abc import Sequence

from draftlight.engine.model import FloatArray
from draftlight.llama.backend import ModelNotLoaded
from draftlight.settings import KvType
from toys import TableModel

FASTEST = {KvType.Q8_0: 0.010, KvType.F32: 0.008, KvType.F16: 0.009}  # seconds of a pass


class PlantedModel(TableModel):
    """Rows of logits are off in passes at least `odd_logits_from` wide, the cache in those `odd_cache_from` wide."""

    def __init__(
        self,
        *,
        odd_logits_from: int = 99,
        odd_cache_from: int = 99,
        odd_after_rollback: bool = False,
        odd_single_thread: bool = False,
        n_ctx: int = 4096,
    ) -> None:
        super().__init__(n_vocab=16, n_ctx=n_ctx)
        self.odd_logits_from = odd_logits_from
        self.odd_cache_from = odd_cache_from
        self.odd_after_rollback = odd_after_rollback
        self.odd_single_thread = odd_single_thread
        self.can_roll_back = True
        self.n_threads = 4
        self.kv_type = KvType.Q8_0
        self.refused: frozenset[KvType] = frozenset()
        self.exact_types = frozenset(KvType)
        self.seconds = FASTEST
        self._kept: list[int] = []
        self._marks: list[int] = []  # beside each token held: whether its cache is odd
        self._disturbed = False

    @property
    def n_past(self) -> int:
        return len(self.held)

    @property
    def bytes_per_token(self) -> int:
        return {KvType.Q8_0: 34, KvType.F16: 64, KvType.F32: 128}[self.kv_type]

    def forward(self, tokens: Sequence[int], rows: int) -> FloatArray:
        width = len(tokens)
        before = self.decode_seconds
        logits = super().forward(tokens, rows)
        self.decode_seconds = before + self.seconds[self.kv_type] * (1 + width / 10)
        odd = self.kv_type not in self.exact_types and width > 1
        self._marks += [int(width >= self.odd_cache_from or odd)] * width
        if width >= self.odd_logits_from or odd or self._disturbed or (self.odd_single_thread and self.n_threads == 1):
            logits += 0.001
        self._disturbed = False
        return logits

    def rollback(self, n_past: int) -> None:
        self._disturbed = self.odd_after_rollback and 0 < n_past < len(self.held)
        super().rollback(n_past)
        del self._marks[n_past:]

    def keep(self) -> None:
        self._kept = list(self.held)

    def refill(self, n_tokens: int) -> None:
        self.held = (self._kept * (n_tokens // len(self._kept) + 1))[:n_tokens]
        self._marks = [0] * n_tokens

    def cache_bits(self) -> bytes:
        return bytes(self.held) + bytes(self._marks)

    def use_threads(self, n_threads: int) -> None:
        self.n_threads = n_threads

    def renew_cache(self, kv_type: KvType) -> None:
        if kv_type in self.refused:
            raise ModelNotLoaded(f"No {kv_type} cache.", about_cache=True)
        self.kv_type, self.held, self._marks = kv_type, [], []
