"""What the engine needs of a model: logits for tokens, text for tokens. It does not know where they come from."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from draftlight.errors import UserError

FloatArray: TypeAlias = NDArray[np.float32]


class Token(NamedTuple):
    """A token id and the text it completes: empty while a character is still incomplete, and for control tokens."""

    id: int
    text: str


class CannotRollBack(UserError):
    """The model's memory cannot drop a suffix (recurrent and hybrid models), so no draft can be taken back."""


class LanguageModel(Protocol):
    """A model with its cache. It holds the tokens it was fed, in order; it knows ids, not text."""

    @property
    def n_ctx(self) -> int:
        """Tokens the cache can hold."""
        ...

    @property
    def n_vocab(self) -> int:
        """Width of a row of logits."""
        ...

    @property
    def decode_seconds(self) -> float:
        """Seconds spent so far inside the model's own forward passes, without the host code around them."""
        ...

    def forward(self, tokens: Sequence[int], rows: int) -> FloatArray:
        """Append `tokens` to the cache and return the logits after each of the last `rows` of them.

        Shape (rows, n_vocab), float32; `rows` may be 0. The array stays valid until the next call only.
        """
        ...

    def rollback(self, n_past: int) -> None:
        """Drop every cached token from index `n_past` on; all of them always can be. Raises CannotRollBack."""
        ...


class Tokenizer(Protocol):
    """Text to token ids and back."""

    def encode(self, text: str) -> list[int]:
        """Token ids of plain text. Control-token texts inside it stay text; no BOS is added."""
        ...

    def piece(self, token: int) -> bytes:
        """UTF-8 bytes of a token, possibly part of a character; empty for control tokens."""
        ...

    def label(self, token: int) -> str:
        """What to call a token on a screen: its text, or a control token's name; never empty for a known id."""
        ...

    def is_end(self, token: int) -> bool:
        """Tell whether the token ends an answer (end of sequence, end of turn)."""
        ...
