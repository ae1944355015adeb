"""What the doctor looks at: a skeleton of a model under a policy, caches for it, and where their bytes lie."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from backends.requests import CachePolicy
from models.cache_plan import LayerLimits
from models.config import ModelConfig
from models.decoder import Decoder
from models.ring_cache import GROWTH_BLOCK_SLOTS, KVCache
from models.sizing import kv_bytes
from models.skeleton import Skeleton, random_ids

MakeCache = Callable[..., KVCache]


class Subject:
    """A skeleton under a policy, and caches for it."""

    def __init__(self, skeleton: Skeleton, policy: CachePolicy, make_cache: MakeCache) -> None:
        self.skeleton = skeleton
        self.policy = policy
        self.decoder: Decoder = skeleton.decoder()
        self._make_cache = make_cache

    @property
    def config(self) -> ModelConfig:
        return self.skeleton.config

    @property
    def limits(self) -> list[LayerLimits]:
        """How far each layer should look and what it should keep: stated here anew, not asked of the cache."""
        found, window, sinks = [], self.skeleton.window, self.skeleton.sinks
        for layer in self.config.layers:
            trained = layer.trained_window
            grows = self.policy is CachePolicy.FULL or (self.policy is CachePolicy.AS_TRAINED and trained is None)
            if grows or (trained is not None and trained <= window + sinks):
                found.append(LayerLimits(trained, grows=grows))
            else:
                found.append(LayerLimits(window, sinks))
        return found

    @property
    def longest_window(self) -> int:
        """Slots of the largest bounded layer; the window where none is bounded."""
        return max((limits.slots for limits in self.limits if limits.slots is not None), default=self.skeleton.window)

    def cache(self, num_rows: int = 1, planned_length: int = 0) -> KVCache:
        skeleton = self.skeleton
        return self._make_cache(
            skeleton.config,
            self.policy,
            skeleton.window,
            skeleton.sinks,
            batch_size=num_rows,
            planned_length=planned_length,
        )

    def formula_bytes(self, num_tokens: int) -> int:
        """Bytes of `models.sizing`; growing layers take whole blocks."""
        blocks = -(-num_tokens // GROWTH_BLOCK_SLOTS) * GROWTH_BLOCK_SLOTS
        return kv_bytes(self.config, self.policy, self.skeleton.window, self.skeleton.sinks, blocks, 4)

    def feed(self, cache: KVCache, num_tokens: int, chunk: int) -> None:
        """Feed random tokens in chunks, without running the head."""
        for piece in torch.split(random_ids(num_tokens), chunk, dim=1):
            self.decoder(piece, cache, logits="none")


def storage_bytes(cache: KVCache) -> int:
    """Return the bytes of every storage that the layers reach, however small the views on it."""
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in _tensors(cache)}
    return sum(storages.values())


def addresses_of(cache: KVCache) -> set[int]:
    """Return where the layers' storage lies."""
    return {tensor.data_ptr() for tensor in _tensors(cache)}


def _tensors(cache: KVCache) -> list[Tensor]:
    return [value for layer in cache.layers for value in vars(layer).values() if isinstance(value, Tensor)]
