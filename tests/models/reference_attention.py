"""The rule of bounded attention in its most literal form, in float64, one query at a time, without a cache.

A query sees the sinks and the last W tokens, itself included; these keys stand at positions 0, 1, 2 ... in that order
and the query at the last of them. Nothing here knows about slots, chunks or packed heads.
"""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn

from models.attention import Attention
from models.cache_plan import LayerLimits
from models.config import LayerConfig, ModelConfig, RopeConfig
from models.decoder import Decoder
from models.ring_cache import KVCache
from models.rope import attention_factor, frequencies


def visible(query: int, limits: LayerLimits) -> list[int]:
    """Tokens a query sees, oldest first."""
    first = 0 if limits.window is None else max(0, query - limits.window + 1)
    return [key for key in range(query + 1) if key >= first or key < limits.sinks]


def turned(head_D: Tensor, position: int, rope: RopeConfig | None) -> Tensor:
    """One head's query or key at one position, pair by pair as complex numbers."""
    if rope is None:
        return head_D
    half, turned_D = rope.dims // 2, head_D.clone()
    for pair, frequency in enumerate(frequencies(rope).tolist()):
        first, second = (pair, pair + half) if rope.layout == "half" else (2 * pair, 2 * pair + 1)
        number = complex(head_D[first], head_D[second]) * attention_factor(rope)
        number *= complex(math.cos(position * frequency), math.sin(position * frequency))
        turned_D[first], turned_D[second] = number.real, number.imag
    return turned_D


class ReferenceAttention(nn.Module):
    """Stands in for `Attention`, with the same weights; cache, plan and turn are ignored."""

    def __init__(self, attention: Attention, config: ModelConfig, layer: LayerConfig, limits: LayerLimits) -> None:
        super().__init__()
        self.attention, self.config, self.layer, self.limits = attention, config, layer, limits

    def forward(self, hidden_BTE: Tensor, *ignored: object) -> Tensor:
        queries, keys, values = (heads[0].double() for heads in self.attention._project(hidden_BTE))
        rows = [self.attend(queries[:, index], keys, values, index) for index in range(hidden_BTE.shape[1])]
        output: Tensor = self.attention.o(torch.stack(rows).flatten(1).unsqueeze(0).to(hidden_BTE.dtype))
        return output

    def attend(self, query_QD: Tensor, keys_HTD: Tensor, values_HTD: Tensor, index: int) -> Tensor:
        seen = visible(index, self.limits)
        group = self.config.num_heads // self.config.num_kv_heads
        return torch.stack(
            [
                self.weigh(query_QD[head], keys_HTD[head // group, seen], values_HTD[head // group, seen], index, head)
                for head in range(self.config.num_heads)
            ]
        )

    def weigh(self, query_D: Tensor, keys_KD: Tensor, values_KD: Tensor, index: int, head: int) -> Tensor:
        rope, in_cache = self.layer.rope, len(keys_KD) - 1
        query_D = turned(query_D, in_cache, rope) * self.scale(index if self.layer.trained_window else in_cache)
        scores_K = torch.stack([query_D @ turned(key_D, place, rope) for place, key_D in enumerate(keys_KD)])
        scores_K = scores_K * self.config.attention_scale
        if self.config.attention_softcap is not None:
            scores_K = self.config.attention_softcap * (scores_K / self.config.attention_softcap).tanh()
        if self.attention.sinks is not None:
            scores_K = torch.cat((scores_K, self.attention.sinks[head : head + 1].double()))
        return scores_K.softmax(0)[: len(keys_KD)] @ values_KD

    def scale(self, position: int) -> float:
        return 1.0 + self.config.query_scale_beta * math.log(1 + position // self.config.query_scale_tokens)


@torch.inference_mode()
def reference_logits(decoder: Decoder, ids_BT: Tensor, cache: KVCache) -> Tensor:
    """Logits [1, T, V] under the limits of `cache`, which is left alone."""
    reference, untouched = copy.deepcopy(decoder), copy.deepcopy(cache)
    for layer, layer_config, layer_cache in zip(reference.layers, decoder.config.layers, cache.layers, strict=True):
        layer.attn = ReferenceAttention(layer.attn, decoder.config, layer_config, layer_cache.limits)  # type: ignore[arg-type]
    logits: Tensor = reference(ids_BT, untouched, logits="all")
    return logits
