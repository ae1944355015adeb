"""What a decoder is, as features rather than family names: the one description that sizing and the decoder both read.

Never imports torch. Parsers in `models.hf_config` and `models.gguf_config` fill it from a Hugging Face `config.json`
or from GGUF metadata, and refuse by name what no feature here expresses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

RopeKind = Literal["default", "linear", "dynamic", "llama3", "yarn", "longrope"]
NormKind = Literal["rms", "rms_plus_one", "layer"]
QKNorm = Literal["none", "head", "projection"]
Activation = Literal["silu", "gelu", "gelu_tanh"]
RotaryLayout = Literal["half", "interleaved"]


@dataclass(frozen=True)
class RopeConfig:
    """Rotary embedding of one layer kind.

    Attributes:
        theta: base of the frequencies.
        kind: how they are scaled; the other fields are read only by the kinds that name them.
        dims: leading dimensions of a head that rotate; the rest pass through.
        layout: pairs (i, i + dims/2) for "half", (2i, 2i + 1) for "interleaved".
        factor: linear, dynamic, llama3, yarn.
        original_context_tokens: dynamic, llama3, yarn, longrope: length trained for before scaling.
        low_freq_factor, high_freq_factor: llama3.
        beta_fast, beta_slow, truncate: yarn.
        mscale, mscale_all_dim: yarn: derive the attention factor where both are given and non-zero.
        attention_factor: multiplies cos and sin; None is `derived_attention_factor`.
        short_factors, long_factors: longrope, one a frequency.
        frequency_divisors: one a frequency, given by a GGUF's `rope_freqs.weight`; divides whatever `kind` gives.
    """

    theta: float
    kind: RopeKind = "default"
    dims: int = 0
    layout: RotaryLayout = "half"
    factor: float = 1.0
    original_context_tokens: int | None = None
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    mscale: float | None = None
    mscale_all_dim: float | None = None
    attention_factor: float | None = None
    short_factors: tuple[float, ...] | None = None
    long_factors: tuple[float, ...] | None = None
    frequency_divisors: tuple[float, ...] | None = None

    @property
    def derived_attention_factor(self) -> float:
        """The factor of cos and sin that follows from the other fields, as transformers derives it."""
        if self.kind == "yarn":
            if self.mscale and self.mscale_all_dim:
                return yarn_mscale(self.factor, self.mscale) / yarn_mscale(self.factor, self.mscale_all_dim)
            return yarn_mscale(self.factor)
        if self.kind == "longrope" and self.factor > 1.0 and self.original_context_tokens:
            return math.sqrt(1.0 + math.log(self.factor) / math.log(self.original_context_tokens))
        return 1.0


def yarn_mscale(factor: float, mscale: float = 1.0) -> float:
    """Return the factor of cos and sin under YaRN (arXiv 2309.00071, section 3.4)."""
    return 1.0 if factor <= 1.0 else 0.1 * mscale * math.log(factor) + 1.0


@dataclass(frozen=True)
class MoeConfig:
    """Mixture of experts in place of the feed-forward block.

    Attributes:
        num_experts: experts in a layer.
        num_active: experts a token goes through.
        expert_size: width of one expert.
        norm_topk: whether the chosen experts' weights are scaled to sum to 1.
        kind: "softmax_topk" scores all experts, then keeps the best; "topk_softmax" keeps the best, then scores them
            (gpt-oss, with its clamped, biased gate).
        bias: whether the router and the experts have biases.
        gate_limit: "topk_softmax": gate is clamped above at it, up to both sides; None is off.
        gate_alpha: "topk_softmax": (up + 1) * gate * sigmoid(gate_alpha * gate).
    """

    num_experts: int
    num_active: int
    expert_size: int
    norm_topk: bool = True
    kind: Literal["softmax_topk", "topk_softmax"] = "softmax_topk"
    bias: bool = False
    gate_limit: float | None = None
    gate_alpha: float = 1.0


@dataclass(frozen=True)
class LayerConfig:
    """One decoder layer.

    Attributes:
        trained_window: W the layer was trained with, the current token included; None for full attention.
        rope: None where the layer has no rotary embedding (NoPE).
        moe: None for a dense feed-forward block.
    """

    trained_window: int | None
    rope: RopeConfig | None
    moe: MoeConfig | None = None


@dataclass(frozen=True)
class ModelConfig:
    """A decoder-only transformer.

    Attributes:
        architecture: as the file names it ("gemma3", "Gemma3ForCausalLM").
        layers: in order; the only place windows and rotary settings live.
        norm: of every layer norm; `norm_eps` its epsilon; "rms_plus_one" multiplies by 1 + weight.
        norm_bias: of LayerNorm only.
        norms_before, norms_after: whether a block's input, its output before the residual sum, or both are normalised.
        parallel_block: attention and feed-forward read the same normalised input and are summed (Cohere).
        qk_norm: queries and keys normalised per head, over the whole projection, or not; `qk_norm_kind` how.
        qkv_bias, output_bias, mlp_bias: biases of the projections.
        gated_mlp: activation(gate) * up, or activation(up) alone.
        attention_scale: multiplies q.k; usually head_dim ** -0.5.
        attention_softcap, logit_softcap: cap * tanh(x / cap); None is off.
        learned_sinks: one extra logit a head in every softmax (gpt-oss).
        embedding_scale, residual_scale, logit_scale: plain multipliers.
        query_scale_beta, query_scale_tokens: q times 1 + beta * log(1 + floor(position / tokens)); beta 0 is off.
        tied_embeddings: whether the head is the embedding where the file holds no head of its own.
        context_tokens: length trained for; None if unsaid.
        bos_token_id, eos_token_ids: as the config names them; the tokenizer's files may add more.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    mlp_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    layers: tuple[LayerConfig, ...]
    norm: NormKind = "rms"
    norm_eps: float = 1e-6
    norm_bias: bool = False
    norms_before: bool = True
    norms_after: bool = False
    parallel_block: bool = False
    qk_norm: QKNorm = "none"
    qk_norm_kind: NormKind = "rms"
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    gated_mlp: bool = True
    activation: Activation = "silu"
    attention_scale: float = 1.0
    attention_softcap: float | None = None
    logit_softcap: float | None = None
    learned_sinks: bool = False
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0
    query_scale_beta: float = 0.0
    query_scale_tokens: int = 1
    tied_embeddings: bool = False
    context_tokens: int | None = None
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()

    @property
    def trained_window(self) -> int | None:
        """Largest window among the sliding layers; None if no layer slides."""
        return max((layer.trained_window for layer in self.layers if layer.trained_window is not None), default=None)

    @property
    def num_sliding_layers(self) -> int:
        return sum(layer.trained_window is not None for layer in self.layers)

    @property
    def num_full_layers(self) -> int:
        return len(self.layers) - self.num_sliding_layers
