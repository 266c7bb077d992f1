"""Toy models for the engine's tests: logits from a random table, computed row by row, so widths cannot matter.

A toy's draft is the same table plus noise: noise 0 accepts everything, noise 3 almost nothing.
"""

from collections.abc import Callable, Sequence

import numpy as np

from draftlight.engine.model import CannotRollBack, FloatArray


class TableModel:
    """Logits depend on the last two tokens alone. Counts what it was asked to do."""

    def __init__(self, n_vocab: int = 16, *, seed: int = 0, noise: float = 0.0, n_ctx: int = 4096) -> None:
        rng = np.random.default_rng(seed)
        table = rng.standard_normal((n_vocab, n_vocab, n_vocab)) * 2.0
        table += np.random.default_rng(seed + 1).standard_normal(table.shape) * noise
        self.table: FloatArray = table.astype(np.float32)
        self.n_vocab = n_vocab
        self.n_ctx = n_ctx
        self.held: list[int] = []
        self.forwards: list[int] = []  # width of each forward pass
        self.decode_seconds = 0.0
        self.can_roll_back = True
        self.fail_at: int | None = None
        self.price: Callable[[int, int], float] = lambda _width, _context: 0.001

    def row(self, sequence: Sequence[int]) -> FloatArray:
        before = sequence[-2] if len(sequence) > 1 else 0
        row: FloatArray = self.table[before, sequence[-1]]
        return row

    def forward(self, tokens: Sequence[int], rows: int) -> FloatArray:
        assert 0 <= rows <= len(tokens)
        assert len(self.held) + len(tokens) <= self.n_ctx
        if self.fail_at is not None and len(self.forwards) >= self.fail_at:
            raise RuntimeError("the model broke")
        self.forwards.append(len(tokens))
        start = len(self.held)
        self.held += tokens
        self.decode_seconds += self.price(len(tokens), start)
        ends = range(start + len(tokens) - rows + 1, start + len(tokens) + 1)
        return np.array([self.row(self.held[:end]) for end in ends], np.float32).reshape(rows, self.n_vocab)

    def rollback(self, n_past: int) -> None:
        if not self.can_roll_back and n_past:
            raise CannotRollBack("This toy cannot roll back.")
        del self.held[n_past:]


class LetterTokenizer:
    """Token i is the i-th of `pieces`; without any, the letters from A on. `end` ends an answer and has no text."""

    def __init__(self, pieces: Sequence[bytes] = (), end: int | None = None) -> None:
        self._pieces = tuple(pieces) or tuple(bytes([65 + i]) for i in range(64))
        self._end = end

    def encode(self, text: str) -> list[int]:
        return [self._pieces.index(letter.encode()) for letter in text]

    def piece(self, token: int) -> bytes:
        return b"" if token == self._end else self._pieces[token]

    def label(self, token: int) -> str:
        return "<end>" if token == self._end else self._pieces[token].decode("utf-8", "replace")

    def is_end(self, token: int) -> bool:
        return token == self._end
