"""Reads the attention weights of a decoder from outside, through its whole path of projections, cache and mask.

Queries and keys are overridden with one constant vector, values with unit vectors that number the tokens. What reaches
the output projection is then the weight of every token: zero exactly where the newest token cannot see it, and where it
can, a function of the distance that the rotary embedding gives to the pair.

Shape letters: N tokens fed, D head_dim, F frequencies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from models.attention import Attention
from models.config import ModelConfig
from models.decoder import Decoder
from models.ring_cache import KVCache
from models.rope import attention_factor, frequencies
from models.skeleton import random_ids

_PEAK_SCORE = 4.0  # scores lie within +-4: far tokens keep weights that can be told from zero


class WeightProbe:
    """Takes the place of queries, keys and values in one attention block.

    Args:
        attention: the block.
        config: of the model.
    """

    def __init__(self, attention: Attention, config: ModelConfig) -> None:
        self._attention = attention
        self._config = config
        self._height = height(config)
        self._fed = 0
        self._first = 0
        self._seen_ND = torch.empty(0)

    def weights(self, decoder: Decoder, caches: Sequence[KVCache], chunks: Sequence[int]) -> Tensor:
        """Feed tokens in chunks; return the weights [N] that the last one gives to each.

        Args:
            caches: empty ones, at least `num_passes(sum(chunks))` of them: each pass reads head_dim tokens.
        """
        num_tokens = sum(chunks)
        ids_1N = random_ids(num_tokens)
        found = []
        for pass_index, cache in zip(range(self.num_passes(num_tokens)), caches, strict=False):
            self._fed, self._first = 0, pass_index * self._config.head_dim
            with ExitStack() as hooks:
                self._install(hooks)
                for piece in torch.split(ids_1N, list(chunks), dim=1):
                    decoder(piece, cache, logits="none")
                    self._fed += piece.shape[1]
            found.append(self._seen_ND)
        return torch.cat(found)[:num_tokens]

    def num_passes(self, num_tokens: int) -> int:
        """Passes needed to read the weights of so many tokens."""
        return -(-num_tokens // self._config.head_dim)

    def _install(self, hooks: ExitStack) -> None:
        attention = self._attention
        has_norm = self._config.qk_norm != "none"
        queries: nn.Module = attention.q_norm if has_norm else attention.q
        keys: nn.Module = attention.k_norm if has_norm else attention.k
        for module, hook in ((queries, self._flatten), (keys, self._flatten), (attention.v, self._number)):
            handle = module.register_forward_hook(hook)
            hooks.callback(handle.remove)
        hooks.callback(attention.o.register_forward_pre_hook(self._look).remove)

    def _flatten(self, module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        return torch.full_like(output, self._height)

    def _number(self, module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        """Give token `first + d` the unit vector of dimension d in every head; all others nothing."""
        batch_size, num_tokens, _ = output.shape
        dimensions_T = torch.arange(self._fed, self._fed + num_tokens) - self._first
        values_TD = (dimensions_T[:, None] == torch.arange(self._config.head_dim)).to(output.dtype)
        return values_TD.repeat(1, self._config.num_kv_heads).expand(batch_size, -1, -1)

    def _look(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._seen_ND = inputs[0][0, -1, : self._config.head_dim].float().clone()


def expected_weights(config: ModelConfig, distances_N: Tensor, length: int, sink_logit: float | None) -> Tensor:
    """Return the weights [N] of visible tokens at these distances in the first layer, computed from scratch.

    With all queries and keys the same constant, the score of a pair is a sum of cosines of the angle between them.
    `length` is that of the whole text, for rotary kinds that ask; `sink_logit` a learned sink's.
    """
    rope = config.layers[0].rope
    per_dimension = height(config) ** 2
    scores_N = torch.full(distances_N.shape, config.head_dim * per_dimension, dtype=torch.float64)
    if rope is not None:
        angles_NF = distances_N.double()[:, None] * frequencies(rope, length)
        turned_N = 2 * per_dimension * attention_factor(rope) ** 2 * angles_NF.cos().sum(dim=1)
        scores_N = turned_N + (config.head_dim - rope.dims) * per_dimension
    scores_N = scores_N * config.attention_scale
    if config.attention_softcap is not None:
        scores_N = config.attention_softcap * torch.tanh(scores_N / config.attention_softcap)
    if sink_logit is None:
        return scores_N.softmax(dim=0)
    return torch.cat((scores_N, torch.tensor([sink_logit], dtype=torch.float64))).softmax(dim=0)[:-1]


def height(config: ModelConfig) -> float:
    """Return the constant that makes the score of two equal unrotated vectors `_PEAK_SCORE`."""
    return math.sqrt(_PEAK_SCORE / (config.attention_scale * config.head_dim))
