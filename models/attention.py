"""Grouped-query attention of one layer over its cache.

Queries that share a key head are packed into one matrix [B, H, M, D] with M = group * T, so keys and values are read
once and never repeated, on every device. Where softmax is plain, PyTorch's fused attention runs; soft caps, learned
sinks and in-cache sinks go through three explicit steps that compute the same thing.

Shape letters: B rows, T tokens of the call, E hidden size, H key/value heads, G group (queries a key head),
Q query heads = H * G, M packed queries = G * T, K keys attended to, S sinks, D head_dim.
"""

# ruff: noqa: N815 (fields carry shape letters too)
from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from models.cache_plan import ChunkPlan, DecodePlan, Plan
from models.config import ModelConfig
from models.layer_cache import LayerStorage
from models.linear_factory import LinearFactory
from models.norms import Norm
from models.rope import Rotation


@dataclass(frozen=True)
class Turn:
    """How the tokens of one call are turned in one layer.

    Attributes:
        own: by their own position; None in a layer without rotary embedding.
        sinks: the queries once more, by the in-cache position at which they meet the sinks; None where that is their
            own, or where nothing turns.
        query_scale_B1T1: grows slowly with the position (see `ModelConfig.query_scale_beta`); None is 1.
    """

    own: Rotation | None = None
    sinks: Rotation | None = None
    query_scale_B1T1: Tensor | None = None


class Scores:
    """Scores to weights to output: what happens between turned queries and the output projection.

    Args:
        scale: multiplies every score.
        softcap: cap * tanh(score / cap), before the mask; None is off.
    """

    def __init__(self, scale: float, softcap: float | None) -> None:
        self.scale = scale
        self.softcap = softcap

    def attend(
        self, queries_BHMD: Tensor, keys_BHKD: Tensor, values_BHKD: Tensor, mask: Tensor | None, sinks_Q: Tensor | None
    ) -> Tensor:
        """Weighted sums of the values [B, H, M, D].

        Args:
            queries_BHMD: packed, query heads of a group outermost.
            keys_BHKD, values_BHKD: of the key heads.
            mask: bool, broadcastable to [B, 1, M, K]; None if all is visible.
            sinks_Q: learned logit of each query head, which takes weight and gives nothing; None without.
        """
        if self.softcap is None and sinks_Q is None:
            return F.scaled_dot_product_attention(
                queries_BHMD, keys_BHKD, values_BHKD, attn_mask=mask, scale=self.scale
            )
        return self.weigh(queries_BHMD @ keys_BHKD.transpose(-1, -2), values_BHKD, mask, sinks_Q)

    def weigh(self, scores_BHMK: Tensor, values_BHKD: Tensor, mask: Tensor | None, sinks_Q: Tensor | None) -> Tensor:
        """The explicit way, from raw products on; softmax in float32 or better."""
        scores_BHMK = scores_BHMK.to(torch.promote_types(scores_BHMK.dtype, torch.float32)) * self.scale
        if self.softcap is not None:
            scores_BHMK = self.softcap * torch.tanh(scores_BHMK / self.softcap)
        if mask is not None:
            scores_BHMK = scores_BHMK.masked_fill(~mask, -torch.inf)
        if sinks_Q is None:
            weights_BHMK = scores_BHMK.softmax(dim=-1)
        else:
            num_rows, num_heads, num_queries, _ = scores_BHMK.shape
            sinks_HM = (
                sinks_Q.to(scores_BHMK.dtype)
                .view(num_heads, -1, 1)
                .expand(-1, -1, num_queries * num_heads // len(sinks_Q))
            )
            sinks_BHM1 = sinks_HM.reshape(1, num_heads, num_queries, 1).expand(num_rows, -1, -1, -1)
            weights_BHMK = torch.cat((scores_BHMK, sinks_BHM1), dim=-1).softmax(dim=-1)[..., :-1]
        return weights_BHMK.to(values_BHKD.dtype) @ values_BHKD


class Attention(nn.Module):
    """Projections, norms and rotation of queries and keys, the cache, and the way back to the hidden size.

    Args:
        config: of the model.
        linear: makes the projections.
    """

    def __init__(self, config: ModelConfig, linear: LinearFactory) -> None:
        super().__init__()
        self._num_heads, self._num_kv_heads, self._head_dim = config.num_heads, config.num_kv_heads, config.head_dim
        query_size, key_size = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        self.q = linear(config.hidden_size, query_size, bias=config.qkv_bias)
        self.k = linear(config.hidden_size, key_size, bias=config.qkv_bias)
        self.v = linear(config.hidden_size, key_size, bias=config.qkv_bias)
        self.o = linear(query_size, config.hidden_size, bias=config.output_bias)
        self._qk_norm = config.qk_norm
        if config.qk_norm != "none":
            sizes = (config.head_dim, config.head_dim) if config.qk_norm == "head" else (query_size, key_size)
            self.q_norm, self.k_norm = (Norm(size, config.qk_norm_kind, config.norm_eps) for size in sizes)
        self.sinks = nn.Parameter(torch.empty(config.num_heads)) if config.learned_sinks else None
        self._scores = Scores(config.attention_scale, config.attention_softcap)

    def forward(self, hidden_BTE: Tensor, cache: LayerStorage, plan: Plan, turn: Turn) -> Tensor:
        """Attend and store, in the order that `plan` asks for."""
        queries_BQTD, keys_BHTD, values_BHTD = self._project(hidden_BTE)
        if turn.query_scale_B1T1 is not None:
            queries_BQTD = queries_BQTD * turn.query_scale_B1T1
        sink_queries_BHMD = None if turn.sinks is None else self._pack(turn.sinks(queries_BQTD)).to(cache.dtype)
        if turn.own is not None:
            queries_BQTD, keys_BHTD = turn.own(queries_BQTD), turn.own(keys_BHTD)
        keys_BHTD, values_BHTD = keys_BHTD.to(cache.dtype), values_BHTD.to(cache.dtype)
        queries_BHMD = self._pack(queries_BQTD).to(cache.dtype)
        if isinstance(plan, DecodePlan):
            cache.write_token(plan, keys_BHTD, values_BHTD)
            attended_BHMD = self._decode(queries_BHMD, sink_queries_BHMD, cache, plan)
        else:
            attended_BHMD = self._prefill(queries_BHMD, sink_queries_BHMD, keys_BHTD, values_BHTD, cache, plan)
            cache.write_chunk(plan, keys_BHTD, values_BHTD)
        output: Tensor = self.o(self._unpack(attended_BHMD.to(hidden_BTE.dtype), hidden_BTE.shape[1]))
        return output

    def _project(self, hidden_BTE: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values by head, normalised where the model does, not yet turned."""
        queries, keys, values = self.q(hidden_BTE), self.k(hidden_BTE), self.v(hidden_BTE)
        if self._qk_norm == "projection":
            queries, keys = self.q_norm(queries), self.k_norm(keys)
        queries, keys, values = (flat.unflatten(-1, (-1, self._head_dim)) for flat in (queries, keys, values))
        if self._qk_norm == "head":
            queries, keys = self.q_norm(queries), self.k_norm(keys)
        return queries.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2)

    def _decode(
        self, queries_BHMD: Tensor, sink_queries_BHMD: Tensor | None, cache: LayerStorage, plan: DecodePlan
    ) -> Tensor:
        """Attend over the slots in slot order."""
        keys_BHKD, values_BHKD = cache.read(plan.columns)
        if sink_queries_BHMD is None:
            return self._scores.attend(queries_BHMD, keys_BHKD, values_BHKD, plan.mask_B11K, self.sinks)
        keys_BHDK = keys_BHKD.transpose(-1, -2)
        sink_scores_BHMS = sink_queries_BHMD @ keys_BHDK[..., : plan.num_sinks]
        scores_BHMK = torch.cat((sink_scores_BHMS, queries_BHMD @ keys_BHDK[..., plan.num_sinks :]), dim=-1)
        return self._scores.weigh(scores_BHMK, values_BHKD, plan.mask_B11K, self.sinks)

    def _prefill(
        self,
        queries_BHMD: Tensor,
        sink_queries_BHMD: Tensor | None,
        keys_BHTD: Tensor,
        values_BHTD: Tensor,
        cache: LayerStorage,
        plan: ChunkPlan,
    ) -> Tensor:
        """Attend over what is stored and the chunk, which is not stored yet."""
        keys_BHKD, values_BHKD = cache.read_with(plan, keys_BHTD, values_BHTD)
        if sink_queries_BHMD is not None and plan.is_sink_B1K1 is not None:
            # Twice as wide, with zeros: one product then meets sinks by one turn of the query, the rest by the other.
            queries_BHMD = torch.cat((queries_BHMD, sink_queries_BHMD), dim=-1)
            away, sinks = keys_BHKD.masked_fill(plan.is_sink_B1K1, 0.0), keys_BHKD.masked_fill(~plan.is_sink_B1K1, 0.0)
            keys_BHKD = torch.cat((away, sinks), dim=-1)
        return self._scores.attend(queries_BHMD, keys_BHKD, values_BHKD, plan.mask_B1MK, self.sinks)

    def _pack(self, queries_BQTD: Tensor) -> Tensor:
        """[B, H * G, T, D] to [B, H, G * T, D]."""
        batch_size = len(queries_BQTD)
        return queries_BQTD.reshape(batch_size, self._num_kv_heads, -1, self._head_dim)

    def _unpack(self, attended_BHMD: Tensor, num_tokens: int) -> Tensor:
        """[B, H, G * T, D] to [B, T, H * G * D]."""
        by_head_BQTD = attended_BHMD.reshape(len(attended_BHMD), self._num_heads, num_tokens, self._head_dim)
        return by_head_BQTD.transpose(1, 2).flatten(2)
