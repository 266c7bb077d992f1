"""A model and the tokens it holds. Prefill, prefix reuse, rollback and catch-up are one operation: advance()."""

from collections.abc import Iterator, Sequence

from draftlight.engine.model import CannotRollBack, FloatArray, LanguageModel


class Context:
    """The only way to move a model. It keeps the truth about what the model's cache holds."""

    def __init__(self, model: LanguageModel, chunk: int = 256) -> None:
        """Take an empty model. `chunk` is the most tokens fed in one forward pass."""
        self._model = model
        self._chunk = chunk
        self._tokens: list[int] = []

    @property
    def tokens(self) -> tuple[int, ...]:
        """The tokens in the cache."""
        return tuple(self._tokens)

    @property
    def n_ctx(self) -> int:
        """Tokens the cache can hold."""
        return self._model.n_ctx

    @property
    def n_vocab(self) -> int:
        """Width of a row of logits."""
        return self._model.n_vocab

    @property
    def decode_seconds(self) -> float:
        """Seconds spent so far inside the model."""
        return self._model.decode_seconds

    def shared_prefix(self, sequence: Sequence[int]) -> int:
        """How many of the first tokens of `sequence` the cache already holds."""
        held = self._tokens
        n = min(len(held), len(sequence))
        given = sequence if len(sequence) == n else sequence[:n]  # a copy less: it is asked for a dozen times a round
        if (held if len(held) == n else held[:n]) == (given if isinstance(given, list) else list(given)):
            return n
        low, high = 0, n  # the first `low` are equal, the first `high` are not
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if held[low:middle] == list(sequence[low:middle]) else (low, middle)
        return low

    def begin(self, sequence: Sequence[int]) -> int:
        """Make ready for a new text and return how many of its tokens are reused: all that are shared but the last.

        A model that cannot drop part of its memory starts anew. Within a text that would be far too slow, so there
        advance() raises instead.
        """
        keep = max(0, min(self.shared_prefix(sequence), len(sequence) - 1))
        try:
            self._roll_back(keep)
        except CannotRollBack:
            keep = 0
            self._roll_back(keep)
        return keep

    def prefill(self, sequence: Sequence[int], n_left: int | None = None) -> Iterator[int]:
        """Feed chunks until no more than `n_left` tokens of `sequence` are left, by default one chunk.

        Yields the tokens held after each. Chunks end at multiples of the chunk size, so that the same text is cut the
        same way whatever was reused. The caller looks for a cancel between them.
        """
        last = len(sequence) - (self._chunk if n_left is None else n_left)
        while (held := self.shared_prefix(sequence)) < last:
            end = (held // self._chunk + 1) * self._chunk
            if n_left is not None:
                end = min(end, last)
            self.advance(sequence[:end], rows=0)
            yield end

    def advance(self, sequence: Sequence[int], rows: int = 1) -> FloatArray:
        """Make the cache hold exactly `sequence` and return the logits after each of its last `rows` tokens.

        Shape (rows, n_vocab). Only what the cache lacks is evaluated; what it holds beyond is rolled back. When a
        forward pass fails the cache is as it was before the new tokens. Raises CannotRollBack.
        """
        keep = min(self.shared_prefix(sequence), len(sequence) - rows)
        self._roll_back(keep)
        new = list(sequence[keep:])
        try:
            logits = self._model.forward(new, rows)
        except BaseException:
            self._model.rollback(keep)
            raise
        self._tokens += new
        return logits

    def _roll_back(self, keep: int) -> None:
        if keep < len(self._tokens):
            self._model.rollback(keep)
            del self._tokens[keep:]
