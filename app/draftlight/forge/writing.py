"""Lets a torch model continue many texts at once, and keeps what it thought at each place. Knows no chats and no files.

The model's modules are transformers'; the cache and the attention over it are ours, because those that come with it
copy the whole cache at every step, which on a processor takes longer than the model itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedModel

from draftlight.forge.torch_model import capped, hidden_states, output_weight

ATTENTION = "draftlight-growing-cache"  # the attn_implementation a model must be loaded with
_COMPACT_BELOW = 0.75  # share of rows still being written below which the others are taken out of the cache
_NEVER = -1e30


@dataclass(frozen=True, slots=True)
class Written:
    """What was written after one prompt, the end token included.

    `label_ids` and `label_logprobs`, (n_tokens, n_labels): the model's likeliest tokens at each place, temperature 1.
    """

    tokens: tuple[int, ...]
    label_ids: NDArray[np.int32]
    label_logprobs: NDArray[np.float16]


@dataclass(frozen=True, slots=True)
class Manner:
    """How texts are continued: at most `n_longest` tokens, `ends` end one; the law is cut to the `top_k` likeliest."""

    n_longest: int
    ends: frozenset[int]
    top_k: int = 48
    n_labels: int = 16


def write(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    temperatures: Sequence[float],
    manner: Manner,
    seed: int,
    go_on: Callable[[], bool],
) -> list[Written] | None:
    """Continue every prompt; a temperature of 0 takes the likeliest token. None as soon as `go_on` says no.

    The same arguments give the same texts, up to the order in which the device sums.
    """
    with torch.inference_mode():
        batch = _Batch(model, prompts, temperatures, manner, seed)
        while not batch.done:
            if not go_on():
                return None
            batch.step()
        return batch.results()


class _GrowingCache:
    """Keys and values of all layers, written in place. The parts of transformers' Cache that the models use."""

    is_compileable = False
    is_sliding = (False,)

    def __init__(self, n_rows: int, longest: int) -> None:
        self.n_held = 0
        self._shape = (n_rows, longest)
        self._keys: list[torch.Tensor] = []
        self._values: list[torch.Tensor] = []

    def update(
        self,
        keys: torch.Tensor,
        values: torch.Tensor,
        layer_idx: int,
        *_: object,
        **__: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        n_rows, longest = self._shape
        if layer_idx == len(self._keys):
            heads = keys.shape[1]
            self._keys.append(keys.new_zeros((n_rows, heads, longest, keys.shape[-1])))
            self._values.append(values.new_zeros((n_rows, heads, longest, values.shape[-1])))
        end = self.n_held + keys.shape[2]
        self._keys[layer_idx][:, :, self.n_held : end] = keys
        self._values[layer_idx][:, :, self.n_held : end] = values
        return self._keys[layer_idx][:, :, :end], self._values[layer_idx][:, :, :end]

    def get_seq_length(self, *_: object) -> int:
        return self.n_held

    def get_mask_sizes(self, n_new: int, *_: object) -> tuple[int, int]:
        return self.n_held + n_new, 0

    def keep(self, rows: torch.Tensor) -> None:
        """Keep these rows only."""
        for held in (self._keys, self._values):
            for layer, tensor in enumerate(held):
                held[layer] = tensor[rows].contiguous()
        self._shape = (len(rows), self._shape[1])


def _attend(
    _module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """Attention over shared keys without copying them: for one new place, heads of a group look like several places."""
    rows, heads, places, width = query.shape
    groups = key.shape[1]
    if places == 1:
        folded = query.view(rows, groups, heads // groups, width)
        mixed = scaled_dot_product_attention(folded, key, value, attn_mask=attention_mask, scale=scaling)
        mixed = mixed.reshape(rows, heads, 1, value.shape[-1])
    else:
        shared = heads // groups
        mixed = scaled_dot_product_attention(
            query,
            key.repeat_interleave(shared, 1),
            value.repeat_interleave(shared, 1),
            attn_mask=attention_mask,
            is_causal=attention_mask is None,
            scale=scaling,
        )
    return mixed.transpose(1, 2).contiguous(), None


AttentionInterface.register(ATTENTION, _attend)


class _Batch:
    """Texts that grow together. Prompts are padded on the left; rows that have ended leave from time to time."""

    def __init__(
        self,
        model: PreTrainedModel,
        prompts: Sequence[Sequence[int]],
        temperatures: Sequence[float],
        manner: Manner,
        seed: int,
    ) -> None:
        self._model, self._manner = model, manner
        self._device = model.device
        self._random = torch.Generator(self._device).manual_seed(seed)
        longest = max(map(len, prompts))
        self._padding = torch.tensor([longest - len(prompt) for prompt in prompts], device=self._device)
        ids = [[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
        self._temperatures = torch.tensor(temperatures, device=self._device)
        self._rows = torch.arange(len(prompts), device=self._device)  # which prompts are in the batch, in order
        self._writing = torch.ones(len(prompts), dtype=torch.bool, device=self._device)
        self._ends = torch.tensor(sorted(manner.ends), device=self._device)
        self._cache = _GrowingCache(len(prompts), longest + manner.n_longest)
        self._tokens: list[list[int]] = [[] for _ in prompts]
        self._labels: list[list[tuple[NDArray[np.int32], NDArray[np.float16]]]] = [[] for _ in prompts]
        self._n_written = 0
        self._next = torch.tensor(ids, device=self._device)

    @property
    def done(self) -> bool:
        return not len(self._rows)

    def step(self) -> None:
        """Write one more token of each text."""
        logits = self._forward(self._next).float()
        n_largest = min(max(self._manner.top_k, self._manner.n_labels), logits.shape[-1])
        largest, ids = logits.topk(n_largest)  # one search for both, which is a good part of what is not a product
        self._keep_labels(largest, ids, logits.logsumexp(-1, keepdim=True))
        tokens = self._choose(largest[:, : self._manner.top_k], ids)
        for row, token, writing in zip(self._rows.tolist(), tokens.tolist(), self._writing.tolist(), strict=True):
            if writing:
                self._tokens[row].append(token)
        self._n_written += 1
        self._writing &= ~torch.isin(tokens, self._ends)
        if self._n_written == self._manner.n_longest:
            self._writing[:] = False
        self._next = tokens[:, None]
        n_writing = int(self._writing.sum())
        if n_writing < _COMPACT_BELOW * len(self._rows):
            self._leave_out_ended()

    def _forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the logits after the last of these tokens, (rows, n_vocab)."""
        n_new = ids.shape[1]
        places = torch.arange(self._cache.n_held, self._cache.n_held + n_new, device=self._device)
        positions = (places[None, :] - self._padding[:, None]).clamp(min=0)
        hidden = hidden_states(
            self._model,
            ids,
            attention_mask=self._mask(places),
            position_ids=positions,
            cache=self._cache,
            use_cache=True,
        )[:, -1]
        self._cache.n_held += n_new
        return capped(self._model, hidden @ output_weight(self._model).T)

    def _mask(self, places: torch.Tensor) -> Any:  # noqa: ANN401 - a tensor, or one for each kind of layer
        """Return what is added to the scores: nothing for what stands before a place, the padding excepted."""
        keys = torch.arange(int(places[-1]) + 1, device=self._device)[None, None, :]
        here = places[None, :, None]
        seen = (keys <= here) & (keys >= self._padding[:, None, None])
        seen |= keys == here  # padding sees itself: no row may be empty
        whole = self._added(seen)
        config: Any = self._model.config
        if "sliding_attention" not in (getattr(config, "layer_types", None) or ()):
            return whole
        return {
            "full_attention": whole,
            "sliding_attention": self._added(seen & (keys > here - config.sliding_window)),
        }

    def _added(self, seen: torch.Tensor) -> torch.Tensor:
        mask = torch.zeros(seen.shape, dtype=self._model.dtype, device=self._device)
        return mask.masked_fill_(~seen, _NEVER)[:, None]

    def _keep_labels(self, largest: torch.Tensor, ids: torch.Tensor, total: torch.Tensor) -> None:
        n = self._manner.n_labels
        logprobs = (largest[:, :n] - total).to(torch.float16).cpu().numpy()
        likeliest = ids[:, :n].to(torch.int32).cpu().numpy()
        for place, (row, writing) in enumerate(zip(self._rows.tolist(), self._writing.tolist(), strict=True)):
            if writing:
                self._labels[row].append((likeliest[place], logprobs[place]))

    def _choose(self, largest: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Draw from the law, cut to these logits, by adding Gumbel noise, the greedy rows excepted."""
        uniform = torch.rand(largest.shape, generator=self._random, device=self._device).clamp_(1e-10, 1 - 1e-7)
        noise = -torch.log(-torch.log(uniform))
        scores = largest / self._temperatures[:, None].clamp(min=1e-6) + noise
        scores = torch.where(self._temperatures[:, None] > 0, scores, largest)
        return ids.gather(-1, scores.argmax(-1, keepdim=True)).squeeze(-1)

    def _leave_out_ended(self) -> None:
        kept = self._writing.nonzero().squeeze(-1)
        self._rows, self._padding, self._temperatures = self._rows[kept], self._padding[kept], self._temperatures[kept]
        self._next, self._writing = self._next[kept], self._writing[kept]
        if len(kept):
            self._cache.keep(kept)

    def results(self) -> list[Written]:
        n = self._manner.n_labels
        return [
            Written(
                tuple(tokens),
                np.array([ids for ids, _ in labels], dtype=np.int32).reshape(-1, n),
                np.array([logprobs for _, logprobs in labels], dtype=np.float16).reshape(-1, n),
            )
            for tokens, labels in zip(self._tokens, self._labels, strict=True)
        ]
