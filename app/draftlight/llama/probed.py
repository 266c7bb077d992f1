"""A model as the probe measures it: its cache can be of another type, and of any length without reading for minutes."""

import ctypes
from dataclasses import replace
from pathlib import Path
from typing import Any

from draftlight.llama.backend import LlamaModel, ModelNotLoaded, ModelOptions
from draftlight.llama.library import native_log
from draftlight.settings import KvType

_PASSING = 1  # a sequence beside the measured one, 0, that copies pass through


class ProbedModel(LlamaModel):
    """Satisfies measuring.MeasuredModel.

    A long context is made of a short one that is kept as bytes and put back several times over: llama.cpp then holds
    that many cells, all seen by the next token, at the positions of the short one. Its kernels do what they do for a
    long text; reading one would take a slow machine minutes.
    """

    def __init__(self, path: Path, options: ModelOptions) -> None:
        """Load the file. Raises ModelNotLoaded."""
        self._options = options
        self._kv_type = options.kv_type
        self._kept: ctypes.Array[ctypes.c_uint8] | None = None
        self._n_kept = 0
        super().__init__(path, options)

    def _context_params(self, options: ModelOptions) -> Any:  # noqa: ANN401 - a ctypes structure
        params = super()._context_params(options)
        if self.can_roll_back:
            params.n_seq_max = _PASSING + 1
            params.kv_unified = True
        return params

    def renew_cache(self, kv_type: KvType) -> None:
        """Replace the cache by an empty one of another type. Raises ModelNotLoaded; then there is none."""
        if self._context is not None:
            self._lib.llama_free(self._context)
        self._context = None
        self._kv_type, self._kept, self._n_kept, self.n_past = kv_type, None, 0, 0
        try:
            self._make_context(replace(self._options, kv_type=kv_type))
        finally:
            native_log.hand_over()
        self._rows_address = 0  # the buffer of the logits is another one now

    @property
    def kv_type(self) -> KvType:
        """The type of the cache."""
        return self._kv_type

    @property
    def bytes_per_token(self) -> int:
        """What a token that keep() saw takes in this cache."""
        return 0 if self._kept is None else len(self._kept) // self._n_kept

    def keep(self) -> None:
        """Remember what the cache holds. Raises ModelNotLoaded where llama.cpp does not hand it out."""
        self._kept, self._n_kept = self._state(), self.n_past

    def cache_bits(self) -> bytes:
        """Return all that the cache holds. Raises ModelNotLoaded where llama.cpp does not hand it out."""
        return bytes(self._state())

    def _state(self) -> "ctypes.Array[ctypes.c_uint8]":
        size: int = self._lib.llama_state_seq_get_size(self._context, 0)
        state = (ctypes.c_uint8 * size)()
        if self._lib.llama_state_seq_get_data(self._context, state, size, 0) != size:
            raise ModelNotLoaded(f"The cache of {self.path.name} could not be copied.")
        return state

    def refill(self, n_tokens: int) -> None:
        """Make the cache hold `n_tokens` of what was kept: cut short, or the same again and again.

        Raises ModelNotLoaded where llama.cpp does not take it back.
        """
        if self._kept is None:
            raise ValueError("nothing was kept")
        self.rollback(0)
        whole, rest = divmod(n_tokens, self._n_kept)
        for part in [
            rest,
            *[self._n_kept] * whole,
        ]:  # the rest first: then there is always room for all of what was kept
            if part:
                self._put_back(part)
        self.n_past = min(n_tokens, self._n_kept)

    def _put_back(self, part: int) -> None:
        """Add the first tokens of what was kept to the cache."""
        if self._lib.llama_state_seq_set_data(self._context, self._kept, len(self._kept or ()), _PASSING) == 0:
            raise ModelNotLoaded(f"The cache of {self.path.name} could not be put back.")
        self._lib.llama_memory_seq_cp(self._memory, _PASSING, 0, 0, part)
        self._lib.llama_memory_seq_rm(self._memory, _PASSING, -1, -1)
