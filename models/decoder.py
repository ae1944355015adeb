"""A decoder-only transformer, built from `models.config.ModelConfig` features and run against a `KVCache`.

Parameters carry canonical names whatever the file they come from (`models.weight_names` translates):
`embed.weight`, `layers.{i}.attn.{q,k,v,o}.{weight,bias}`, `layers.{i}.attn.{q_norm,k_norm}.{weight,bias}`,
`layers.{i}.attn.sinks`, `layers.{i}.{attn_norm,attn_post_norm,mlp_norm,mlp_post_norm}.{weight,bias}`,
`layers.{i}.mlp.{gate,up,down}.{weight,bias}`, `layers.{i}.moe...`, `norm.weight`, `head.weight` (absent when tied).

Shape letters: B rows, T tokens, V vocabulary.
"""

from __future__ import annotations

from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from models.config import ModelConfig
from models.ring_cache import KVCache

Logits = Literal["all", "last", "none"]


class LinearFactory(Protocol):
    """Makes the linear layers of a decoder: `torch.nn.Linear`, or a quantised stand-in with the same call."""

    def __call__(self, in_features: int, out_features: int, bias: bool) -> nn.Module: ...


class Decoder(nn.Module):
    """The whole model. Build it on the meta device and assign weights, or fill its parameters.

    Args:
        config: features of the model.
        linear: makes every projection, the head included; the embedding stays a plain table.
    """

    def __init__(self, config: ModelConfig, linear: LinearFactory = nn.Linear) -> None:
        super().__init__()
        self.config = config

    def forward(self, tokens_BT: Tensor, cache: KVCache, logits: Logits = "last") -> Tensor:
        """Feed T tokens a row, at the cache's positions, and store their keys and values.

        Any way of cutting a text into calls gives the same logits. T = 1 takes the decode path.

        Args:
            tokens_BT: int64, on the cache's device.
            cache: of this model; its positions advance by T.
            logits: for which tokens to run the head: all, the last (prefill's last chunk), or none (the others).

        Returns:
            Logits [B, T, V], [B, 1, V] or [B, 0, V], in the dtype of the weights.
        """
        raise NotImplementedError

    def decode_step(self, tokens_B: Tensor, cache: KVCache, static: bool = False) -> Tensor:
        """Feed one token a row.

        Args:
            tokens_B: int64; for a captured graph, a tensor whose address stays.
            cache: its positions advance by one.
            static: run the fixed sequence of operations that a CUDA graph can capture: positions are read from (and
                advanced in) device memory, nothing waits for the device. Its caller counts with `cache.advance(1)`
                after each replay, captures once while the rings fill and once when `cache.is_saturated`, and again
                when `cache.generation` changes.

        Returns:
            Logits [B, V].
        """
        raise NotImplementedError
