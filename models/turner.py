"""Where each kind of layer believes its tokens to stand: rotations and query scales for one call.

Sliding layers and layers that keep everything use true positions. A full layer that is bounded sees a text that ends at
its last slot (see `models.cache_plan`), so whatever depends on length or position, distances apart, ends there as well.

Shape letters: B rows, T tokens of a call.
"""

from __future__ import annotations

import torch
from torch import Tensor

from models.attention import Turn
from models.cache_plan import Plan
from models.config import LayerConfig, ModelConfig
from models.ring_cache import KVCache
from models.rope import Rotary


class Turner:
    """Makes the `Turn` of one kind of layer for each call."""

    def __init__(self, config: ModelConfig, layer: LayerConfig) -> None:
        self._rope = layer.rope
        self._rotary = None if layer.rope is None else Rotary(layer.rope)
        self._is_full = layer.trained_window is None
        self._scale_beta, self._scale_tokens = config.query_scale_beta, config.query_scale_tokens

    def turn(self, cache: KVCache, plan: Plan, kind: int, indices_BT: Tensor, dtype: torch.dtype) -> Turn:
        """Rotations for tokens with these indices, and once more for the sinks where `plan` sets them apart."""
        own, sinks, first = None, None, cache.first_position
        if self._rotary is not None:
            length = self._seen_length(cache, kind, cache.frequency_length(indices_BT.shape[1]))
            own = self._rotary.at(indices_BT + first, dtype, length)
            if plan.sink_queries_BT is not None:
                sinks = self._rotary.at(plan.sink_queries_BT + first, dtype, length)
        end = self._end(cache, kind)
        seen_BT = indices_BT if end is None else indices_BT.clamp(max=end - 1)
        return Turn(own, sinks, self._query_scale(seen_BT + first, dtype))

    def takes_long(self, cache: KVCache, kind: int, length: int) -> bool:
        """Whether longrope takes its long list for a text of that length."""
        if self._rope is None or self._rope.kind != "longrope":
            return False
        return self._seen_length(cache, kind, length) > (self._rope.original_context_tokens or 0)

    def drifts(self, cache: KVCache, kind: int) -> bool:
        """Whether frequencies may change with every token."""
        if self._rope is None or self._rope.kind != "dynamic":
            return False
        end = self._end(cache, kind)
        return end is None or end > (self._rope.original_context_tokens or 0)

    def _end(self, cache: KVCache, kind: int) -> int | None:
        """Length at which a text ends for a bounded full layer, whose keys stand at in-cache positions."""
        return cache.kinds[kind].slots if self._is_full else None

    def _seen_length(self, cache: KVCache, kind: int, length: int) -> int:
        end = self._end(cache, kind)
        return length if end is None else min(length, end)

    def _query_scale(self, positions_BT: Tensor, dtype: torch.dtype) -> Tensor | None:
        if self._scale_beta == 0.0:
            return None
        scale_BT = 1.0 + self._scale_beta * torch.log1p((positions_BT // self._scale_tokens).double())
        return scale_BT.to(dtype)[:, None, :, None]
