"""Caches broken on purpose, each in one way that was really met in the wild. The doctor must name every one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from models.cache_plan import ChunkPlan, DecodePlan, Plan
from models.layer_cache import LayerCache
from models.ring_cache import KVCache


def with_layers(layer_class: type[LayerCache]) -> type[KVCache]:
    """A cache whose layers are of another class."""

    class Faulty(KVCache):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            for layer in self.layers:
                layer.__class__ = layer_class

    return Faulty


class _AppendingLayer(LayerCache):
    """Keeps a copy of every token it was ever given, as a list that is never cut (mlx-lm#1914, VeloxQuant-MLX#274)."""

    def write_token(self, plan: DecodePlan, keys_BH1D: Tensor, values_BH1D: Tensor) -> None:
        super().write_token(plan, keys_BH1D, values_BH1D)
        self._append(keys_BH1D)

    def write_chunk(self, plan: ChunkPlan, keys_BHTD: Tensor, values_BHTD: Tensor) -> None:
        super().write_chunk(plan, keys_BHTD, values_BHTD)
        self._append(keys_BHTD)

    def _append(self, keys_BHTD: Tensor) -> None:
        known_BHND = getattr(self, "everything", keys_BHTD[:, :, :0])
        self.everything = torch.cat((known_BHND, keys_BHTD), dim=2)


class _PromptKeepingLayer(LayerCache):
    """After a chunk, looks at its own slots through a view on storage that holds the whole prompt (TabPFN#933)."""

    def write_chunk(self, plan: ChunkPlan, keys_BHTD: Tensor, values_BHTD: Tensor) -> None:
        super().write_chunk(plan, keys_BHTD, values_BHTD)
        both_BHND = torch.cat((self.keys_BHSD, keys_BHTD), dim=2)
        self.keys_BHSD = both_BHND[:, :, : self.num_slots]


class _CopyingLayer(LayerCache):
    """Makes new storage for every token (transformers' DynamicSlidingWindowLayer)."""

    def write_token(self, plan: DecodePlan, keys_BH1D: Tensor, values_BH1D: Tensor) -> None:
        self.keys_BHSD, self.values_BHSD = self.keys_BHSD.clone(), self.values_BHSD.clone()
        super().write_token(plan, keys_BH1D, values_BH1D)


class _RollingLayer(LayerCache):
    """Rolls and copies back in place: addresses stay, every step moves the window (StaticSlidingWindowLayer)."""

    def write_token(self, plan: DecodePlan, keys_BH1D: Tensor, values_BH1D: Tensor) -> None:
        self.keys_BHSD.copy_(self.keys_BHSD.roll(-1, dims=2).roll(1, dims=2))
        super().write_token(plan, keys_BH1D, values_BH1D)


class _SharedPointerLayer(LayerCache):
    """Writes every row where the first row writes (mlx-lm's batched rotating cache has one index for all)."""

    def write_token(self, plan: DecodePlan, keys_BH1D: Tensor, values_BH1D: Tensor) -> None:
        super().write_token(replace(plan, slots_B=plan.slots_B[:1].expand_as(plan.slots_B)), keys_BH1D, values_BH1D)


class MaskBySlotIndex(KVCache):
    """After the wrap still hides the slots behind the current one, as if slots were in time order."""

    def plans(self, num_tokens: int, static: bool = False) -> tuple[Plan, ...]:
        return tuple(self._broken(plan) for plan in super().plans(num_tokens, static))

    def _broken(self, plan: Plan) -> Plan:
        if isinstance(plan, ChunkPlan) or plan.mask_B11K is not None:
            return plan
        slots_K = torch.arange(plan.columns.start, plan.columns.stop)
        return replace(plan, mask_B11K=(slots_K <= plan.slots_B[:, None])[:, None, None])


class RopeRestartsAtTheWrap(KVCache):
    """Takes the ring's index for the position (transformers#38156, mlx-lm#999)."""

    def advance(self, num_tokens: int, static: bool = False) -> None:
        super().advance(num_tokens, static)
        (kind, *_) = self.kinds
        if kind.window is not None and self.lengths[0] >= kind.sinks:
            self.lengths_B.copy_(kind.sinks + (self.lengths_B - kind.sinks) % kind.window)


class WindowOfOneMore(KVCache):
    """Lets W + 1 keys through, as FlashAttention's (W, 0) would."""

    def __init__(self, config: Any, policy: Any, window: int, *arguments: Any, **options: Any) -> None:
        layers = tuple(
            layer if layer.trained_window is None else replace(layer, trained_window=layer.trained_window + 1)
            for layer in config.layers
        )
        super().__init__(replace(config, layers=layers), policy, window + 1, *arguments, **options)


AppendsForEver = with_layers(_AppendingLayer)
KeepsThePrompt = with_layers(_PromptKeepingLayer)
CopiesEachStep = with_layers(_CopyingLayer)
RollsEachStep = with_layers(_RollingLayer)
RowsShareAPointer = with_layers(_SharedPointerLayer)
