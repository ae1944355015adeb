"""A decoder-only transformer, built from the features in `models.config` and run against a `KVCache`.

Parameters carry canonical names whatever file they come from (`models.weight_names` translates):
`embed.weight`, `layers.{i}.attn.{q,k,v,o}.{weight,bias}`, `layers.{i}.attn.{q_norm,k_norm}.weight`,
`layers.{i}.attn.sinks`, `layers.{i}.{attn_norm,attn_post_norm,mlp_norm,mlp_post_norm}.{weight,bias}`,
`layers.{i}.mlp.{gate,up,down}.{weight,bias}` or `layers.{i}.moe.{router,gate,up,down}.{weight,bias}` (experts stacked),
`norm.{weight,bias}`, `head.weight` (absent where the embedding serves).

Shape letters: B rows, T tokens, E hidden size, V vocabulary.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from models.attention import Attention, Turn
from models.cache_plan import Plan
from models.config import LayerConfig, ModelConfig
from models.feed_forward import FeedForward
from models.layer_cache import LayerStorage
from models.linear_factory import LinearFactory
from models.moe import MixtureOfExperts
from models.norms import Norm
from models.ring_cache import KVCache
from models.text_model import Logits
from models.turner import Turner

_ATTENTION_CELLS = 2**27  # query-key pairs over all heads in one call; longer calls are cut, which changes no result


class Decoder(nn.Module):
    """The whole model. Build it on the meta device and assign weights, or fill its parameters.

    Args:
        config: features of the model.
        linear: makes every projection and the head; the embedding stays a plain table.
        own_head: whether there is a head apart from the embedding; None as the config says.
    """

    def __init__(self, config: ModelConfig, linear: LinearFactory = nn.Linear, own_head: bool | None = None) -> None:
        super().__init__()
        self.config = config
        # From an empty table: drawing values that are overwritten anyway makes torch import its compiler (1 s, 70 MB).
        table_VE = torch.empty(config.vocab_size, config.hidden_size)
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size, _weight=table_VE)
        self.layers = nn.ModuleList(DecoderLayer(config, layer, linear) for layer in config.layers)
        self.norm = Norm(config.hidden_size, config.norm, config.norm_eps, config.norm_bias)
        has_head = not config.tied_embeddings if own_head is None else own_head
        self.head = linear(config.hidden_size, config.vocab_size, bias=False) if has_head else None
        distinct = tuple(dict.fromkeys(config.layers))
        self._turners = tuple(Turner(config, layer) for layer in distinct)
        self._turner_of_layer = tuple(distinct.index(layer) for layer in config.layers)
        self._has_longrope = any(layer.rope is not None and layer.rope.kind == "longrope" for layer in distinct)

    @property
    def vocab_size(self) -> int:
        return self.config.vocab_size

    @torch.inference_mode()
    def forward(self, tokens_BT: Tensor, cache: KVCache, logits: Logits = "last") -> Tensor:
        """Feed T tokens a row, from the cache's positions on, and store their keys and values.

        Any way of cutting a text into calls gives the same logits. T = 1 takes the decode path.

        Args:
            tokens_BT: int64, on the cache's device; at least one token.
            cache: of this model; it advances by T tokens a row.
            logits: for which tokens to run the head: all, the last one, or none.

        Returns:
            Logits [B, T, V], [B, 1, V] or [B, 0, V], in the dtype of the activations.
        """
        pieces = torch.split(tokens_BT, self._longest_call(cache, tokens_BT.shape[1]), dim=1)
        if logits == "all":
            return torch.cat([self._logits(self._call(piece, cache)) for piece in pieces], dim=1)
        for piece in pieces:
            hidden_BTE = self._call(piece, cache)
        return self._logits(hidden_BTE[:, -1:] if logits == "last" else hidden_BTE[:, :0])

    @torch.inference_mode()
    def decode_step(self, tokens_B: Tensor, cache: KVCache, static: bool = False) -> Tensor:
        """Feed one token a row.

        Args:
            tokens_B: int64; for a captured graph, a tensor whose address stays.
            cache: it advances by one token a row.
            static: run the fixed sequence of operations that a CUDA graph can capture: lengths are read from, and
                advanced in, device memory, and nothing waits for the device. The caller captures once while the rings
                fill, again when `cache.full_kinds` changes or when `cache.generation` changes, calls `cache.reserve`
                before each replay and `cache.count_replayed` after it.

        Returns:
            Logits [B, V].
        """
        return self._logits(self._call(tokens_B.unsqueeze(1), cache, static)).squeeze(1)

    def must_start_over(self, cache: KVCache, num_tokens: int) -> bool:
        """Whether `num_tokens` more tokens take the text past the length at which longrope changes its frequencies.

        What the cache holds is then of no use: reset it with the `planned_length` and feed the whole text again.
        """
        return max(cache.lengths) > 0 and self._frequencies(cache, num_tokens) != cache.frequencies

    def _frequencies(self, cache: KVCache, num_tokens: int) -> tuple[bool, ...]:
        """Which list of frequencies each longrope layer takes in a call of that many tokens."""
        if not self._has_longrope:
            return ()
        length = cache.frequency_length(num_tokens)
        pairs = zip(self._turner_of_layer, cache.layers, strict=True)
        return tuple(self._turners[turner].takes_long(cache, layer.kind, length) for turner, layer in pairs)

    def _check_frequencies(self, cache: KVCache, num_tokens: int) -> None:
        if self.must_start_over(cache, num_tokens):
            raise ValueError("longrope changes its frequencies at this length; reset the cache and feed the text again")
        cache.use_frequencies(self._frequencies(cache, num_tokens))

    def can_be_captured(self, cache: KVCache) -> bool:
        """Whether a decode step is the same at every position; false where frequencies follow the length (dynamic)."""
        pairs = zip(self._turner_of_layer, cache.layers, strict=True)
        return not any(self._turners[turner].drifts(cache, layer.kind) for turner, layer in pairs)

    def _call(self, tokens_BT: Tensor, cache: KVCache, static: bool = False) -> Tensor:
        """Run every layer; hidden states [B, T, E] before the last norm."""
        num_tokens = tokens_BT.shape[1]
        self._check_frequencies(cache, num_tokens)
        hidden_BTE: Tensor = self.embed(tokens_BT)
        if self.config.embedding_scale != 1.0:  # rounded to the dtype first, as the models were trained
            hidden_BTE = hidden_BTE * torch.tensor(self.config.embedding_scale, dtype=hidden_BTE.dtype).item()
        plans = cache.plans(num_tokens, static)
        indices_BT = cache.lengths_B.unsqueeze(1)
        if num_tokens > 1:
            indices_BT = indices_BT + torch.arange(num_tokens, device=indices_BT.device)
        turns: dict[tuple[int, int], Turn] = {}
        for layer, turner, layer_cache in zip(self.layers, self._turner_of_layer, cache.layers, strict=True):
            kind = layer_cache.kind
            if (turner, kind) not in turns:
                turns[turner, kind] = self._turners[turner].turn(cache, plans[kind], kind, indices_BT, hidden_BTE.dtype)
            hidden_BTE = layer(hidden_BTE, layer_cache, plans[kind], turns[turner, kind])
        cache.advance(num_tokens, static)
        return hidden_BTE

    def _logits(self, hidden_BTE: Tensor) -> Tensor:
        config, normed_BTE = self.config, self.norm(hidden_BTE)
        logits_BTV: Tensor = F.linear(normed_BTE, self.embed.weight) if self.head is None else self.head(normed_BTE)
        if config.logit_scale != 1.0:
            logits_BTV = logits_BTV * config.logit_scale
        if config.logit_softcap is not None:
            logits_BTV = config.logit_softcap * torch.tanh(logits_BTV / config.logit_softcap)
        return logits_BTV

    def _longest_call(self, cache: KVCache, num_tokens: int) -> int:
        """Tokens that one call may take before its attention scores outgrow a fixed amount of memory."""
        longest = max(cache.lengths)
        num_stored = max(longest if kind.slots is None else min(longest, kind.slots) for kind in cache.kinds)
        num_cells_per_token = len(cache.lengths) * self.config.num_heads * (num_stored + num_tokens)
        return max(1, _ATTENTION_CELLS // num_cells_per_token)


class DecoderLayer(nn.Module):
    """Attention, then a feed-forward block, each added to the residual stream."""

    def __init__(self, config: ModelConfig, layer: LayerConfig, linear: LinearFactory) -> None:
        super().__init__()

        def norm(exists: bool) -> Norm | None:
            return Norm(config.hidden_size, config.norm, config.norm_eps, config.norm_bias) if exists else None

        self.attn_norm = norm(config.norms_before)
        self.attn = Attention(config, linear)
        self.attn_post_norm = norm(config.norms_after)
        self.mlp_norm = norm(config.norms_before and not config.parallel_block)
        if layer.moe is None:
            self.mlp = FeedForward(config, linear)
        else:
            self.moe = MixtureOfExperts(config, layer.moe, linear)
        self._has_experts = layer.moe is not None
        self.mlp_post_norm = norm(config.norms_after)
        self._parallel = config.parallel_block
        self._scale = config.residual_scale

    def forward(self, hidden_BTE: Tensor, cache: LayerStorage, plan: Plan, turn: Turn) -> Tensor:
        inputs_BTE = _normed(hidden_BTE, self.attn_norm)
        attended_BTE = self._scaled(_normed(self.attn(inputs_BTE, cache, plan, turn), self.attn_post_norm))
        if self._parallel:
            return hidden_BTE + attended_BTE + self._scaled(_normed(self._feed(inputs_BTE), self.mlp_post_norm))
        hidden_BTE = hidden_BTE + attended_BTE
        fed_BTE = self._feed(_normed(hidden_BTE, self.mlp_norm))
        return hidden_BTE + self._scaled(_normed(fed_BTE, self.mlp_post_norm))

    def _feed(self, inputs_BTE: Tensor) -> Tensor:
        fed_BTE: Tensor = self.moe(inputs_BTE) if self._has_experts else self.mlp(inputs_BTE)
        return fed_BTE

    def _scaled(self, values: Tensor) -> Tensor:
        return values if self._scale == 1.0 else values * self._scale


def _normed(values: Tensor, norm: Norm | None) -> Tensor:
    if norm is None:
        return values
    normed: Tensor = norm(values)
    return normed
