"""GGUF metadata as a `ModelConfig`.

Keys and their meaning follow llama.cpp's converters and model loaders; where llama.cpp ignores what a model was trained
with (Phi-3's window, for one), the model's own config decides. Biases, tied heads and frequency tables are read off the
tensors that are there. Architectures not listed are refused by name before any weight is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from backends.errors import UnsupportedModelError
from models.config import LayerConfig, ModelConfig, MoeConfig
from models.config_keys import ConfigKeys
from models.gguf_reader import GgufFile
from models.gguf_rope import PLAIN_ROPE, GgufRopeStyle, parse_ropes


@dataclass(frozen=True)
class _Architecture:
    """What llama.cpp's code for one architecture does and its metadata does not say.

    Attributes:
        pattern: every n-th layer is full where a window is given without a pattern; None means all layers slide.
        default_window: where the file gives none.
        rope: see `GgufRopeStyle`.
        no_rope_interval: every n-th layer does not rotate; 0 is off.
        rotates_sliding_only: full layers do not rotate, where any layer slides.
        features: fields of `ModelConfig` that differ from its defaults.
    """

    pattern: int | None = None
    default_window: int | None = None
    rope: GgufRopeStyle = PLAIN_ROPE
    no_rope_interval: int = 0
    rotates_sliding_only: bool = False
    features: Mapping[str, Any] = field(default_factory=dict)


_PLAIN = _Architecture()
_HEAD_NORM = {"qk_norm": "head"}
_AFTER_ONLY = {"norms_before": False, "norms_after": True}
_GEMMA = {"norm": "rms_plus_one", "norms_after": True, "activation": "gelu_tanh"}

_ARCHITECTURES: dict[str, _Architecture] = {
    "llama": _PLAIN,
    "mistral3": _PLAIN,
    "qwen2": _PLAIN,
    "qwen3": _Architecture(features=_HEAD_NORM),
    "qwen3moe": _Architecture(features=_HEAD_NORM),
    "gemma2": _Architecture(pattern=2, default_window=4096, features=_GEMMA),
    "gemma3": _Architecture(
        pattern=6,
        rope=GgufRopeStyle(sliding_theta=10_000.0, scales_full_only=True),
        features={**_GEMMA, "qk_norm": "head", "qk_norm_kind": "rms_plus_one"},
    ),
    "phi3": _PLAIN,
    "starcoder2": _Architecture(
        features={"norm": "layer", "norm_bias": True, "activation": "gelu_tanh", "gated_mlp": False}
    ),
    "olmo2": _Architecture(
        pattern=4, rope=GgufRopeStyle(scales_full_only=True), features={**_AFTER_ONLY, "qk_norm": "projection"}
    ),
    "cohere2": _Architecture(
        pattern=4,
        default_window=4096,
        rope=GgufRopeStyle(layout="interleaved"),
        rotates_sliding_only=True,
        features={"norm": "layer", "parallel_block": True},
    ),
    "smollm3": _Architecture(no_rope_interval=4),
    "exaone4": _Architecture(pattern=4, rotates_sliding_only=True, features={**_AFTER_ONLY, **_HEAD_NORM}),
    "granite": _PLAIN,
    "glm4": _Architecture(rope=GgufRopeStyle(layout="interleaved"), features={"norms_after": True}),
    "gpt-oss": _Architecture(pattern=2, rope=GgufRopeStyle(yarn_truncate=False), features={"learned_sinks": True}),
}
_NOT_A_MODEL = {"adapter": "a LoRA adapter", "mmproj": "the image part of a multimodal model", "imatrix": "statistics"}


def parse_gguf_config(gguf: GgufFile) -> ModelConfig:
    """Return the features of the decoder in a GGUF file.

    Raises:
        UnsupportedModelError: the file holds no decoder, or an architecture or setting that cannot be run.
        ModelFileError: a key is missing or wrong.
    """
    name = gguf.architecture
    _refuse_unsupported(gguf, name)
    keys = _arch_keys(gguf, name)
    return _build(gguf, keys, _ARCHITECTURES[name], name)


def _refuse_unsupported(gguf: GgufFile, name: str) -> None:
    where = gguf.path.name
    kind = str(gguf.metadata.get("general.type", "model"))
    if kind in _NOT_A_MODEL or name == "clip":
        what = _NOT_A_MODEL.get(kind, "the image part of a multimodal model")
        raise UnsupportedModelError(f"{where} holds {what}, not a language model.", "Choose the model's own file.")
    if name not in _ARCHITECTURES:
        raise UnsupportedModelError(f"{where}: the ring backend does not know the architecture {name!r}.")
    values = gguf.metadata
    if values.get(f"{name}.attention.causal") is False:
        raise UnsupportedModelError(f"{where} attends in both directions, so it does not write text.")
    for key, meaning in (
        ("attention.shared_kv_layers", "layers that share keys and values"),
        ("expert_shared_count", "shared experts"),
    ):
        if values.get(f"{name}.{key}"):
            raise UnsupportedModelError(f"{where}: {meaning} are not supported.")


def _arch_keys(gguf: GgufFile, name: str) -> ConfigKeys:
    """Return the architecture's own keys without their prefix; arrays that say one value a layer become that value."""
    prefix = f"{name}."
    values = {key[len(prefix) :]: _plain(gguf.metadata[key]) for key in gguf.metadata if key.startswith(prefix)}
    for key in ("attention.head_count", "attention.head_count_kv", "feed_forward_length"):
        per_layer = values.get(key)
        if isinstance(per_layer, list):
            if len(set(per_layer)) != 1:
                raise UnsupportedModelError(f"{gguf.path.name}: layers that differ in {key} are not supported.")
            values[key] = per_layer[0]
    return ConfigKeys(values, f"{gguf.path.name}, {name}")


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _build(gguf: GgufFile, keys: ConfigKeys, arch: _Architecture, name: str) -> ModelConfig:
    num_heads = keys.integer("attention.head_count")
    num_kv_heads = keys.integer_or_none("attention.head_count_kv") or num_heads
    if num_heads % num_kv_heads:
        raise keys.wrong("attention.head_count_kv", f"a divisor of the {num_heads} attention heads")
    hidden_size = keys.integer("embedding_length")
    head_dim = keys.integer_or_none("attention.key_length") or hidden_size // num_heads
    if keys.integer_or_none("attention.value_length") not in (None, head_dim):
        raise UnsupportedModelError(f"{keys.source}: keys and values of different sizes are not supported.")
    num_layers = keys.integer("block_count") - (keys.integer_or_none("nextn_predict_layers", 0) or 0)
    fields = {
        "architecture": name,
        "vocab_size": _vocab_size(gguf, keys),
        "hidden_size": hidden_size,
        "mlp_size": keys.integer_or_none("feed_forward_length") or keys.integer("expert_feed_forward_length"),
        "num_heads": num_heads,
        "num_kv_heads": num_kv_heads,
        "head_dim": head_dim,
        "layers": _layers(gguf, keys, arch, num_layers, head_dim),
        "norm_eps": _norm_eps(keys),
        "tied_embeddings": "output.weight" not in gguf.tensors,
        "context_tokens": keys.integer_or_none("context_length"),
        **_biases(gguf),
        **_special_ids(gguf),
        **_scales(keys, name, num_layers, hidden_size, num_heads, head_dim),
    }
    return ModelConfig(**{**fields, **arch.features})


def _vocab_size(gguf: GgufFile, keys: ConfigKeys) -> int:
    """The embedding decides: converters cut or pad it, whatever the key says."""
    embedding = gguf.tensors.get("token_embd.weight")
    return embedding.shape[0] if embedding is not None else keys.integer("vocab_size")


def _norm_eps(keys: ConfigKeys) -> float:
    rms, layer = "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"
    return keys.positive(layer if rms not in keys and layer in keys else rms)


def _biases(gguf: GgufFile) -> dict[str, bool]:
    def has(*names: str) -> bool:
        return any(f"blk.0.{name}.bias" in gguf.tensors for name in names)

    return {
        "qkv_bias": has("attn_q", "attn_qkv"),
        "output_bias": has("attn_output"),
        "mlp_bias": has("ffn_up", "ffn_down"),
    }


def _special_ids(gguf: GgufFile) -> dict[str, Any]:
    ends = (gguf.metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom"))
    return {
        "bos_token_id": gguf.metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_ids": tuple(dict.fromkeys(int(token_id) for token_id in ends if token_id is not None)),
    }


def _scales(
    keys: ConfigKeys, name: str, num_layers: int, hidden_size: int, num_heads: int, head_dim: int
) -> dict[str, Any]:
    """Return the multipliers and soft caps. The largest Gemmas scale by hidden / heads, which no key says."""
    largest_gemma = (name, num_layers) in (("gemma2", 46), ("gemma3", 62))
    scaled_dim = hidden_size // num_heads if largest_gemma else head_dim
    scales: dict[str, Any] = {
        "attention_scale": keys.positive_or_none("attention.scale") or scaled_dim**-0.5,
        "logit_softcap": keys.positive_or_none("final_logit_softcapping"),
        "attention_softcap": keys.positive_or_none("attn_logit_softcapping"),
        "embedding_scale": keys.positive_or_none("embedding_scale") or 1.0,
        "residual_scale": keys.positive_or_none("residual_scale") or 1.0,
    }
    if name in ("gemma2", "gemma3"):
        scales["embedding_scale"] = hidden_size**0.5
    if (logit_scale := keys.positive_or_none("logit_scale")) is not None:
        scales["logit_scale"] = 1.0 / logit_scale if name == "granite" else logit_scale
    if beta := keys.positive_or_none("attention.temperature_scale"):
        scales["query_scale_beta"] = beta
        scales["query_scale_tokens"] = keys.integer("rope.scaling.original_context_length")
    return scales


def _layers(
    gguf: GgufFile, keys: ConfigKeys, arch: _Architecture, num_layers: int, head_dim: int
) -> tuple[LayerConfig, ...]:
    windows = _windows(keys, arch, num_layers)
    full, sliding = parse_ropes(gguf, keys, arch.rope, head_dim)
    any_slides = any(window is not None for window in windows)
    layers = []
    for index, window in enumerate(windows):
        skipped = arch.no_rope_interval > 0 and (index + 1) % arch.no_rope_interval == 0
        skipped = skipped or (arch.rotates_sliding_only and any_slides and window is None)
        rope = None if skipped else full if window is None else sliding
        layers.append(LayerConfig(window, rope, _moe(gguf, keys, index)))
    return tuple(layers)


def _windows(keys: ConfigKeys, arch: _Architecture, num_layers: int) -> tuple[int | None, ...]:
    window = keys.integer_or_none("attention.sliding_window", 0)
    window = arch.default_window if window is None else window
    if not window:
        return (None,) * num_layers
    pattern = keys.get("attention.sliding_window_pattern")
    if isinstance(pattern, list):
        if len(pattern) < num_layers:
            raise keys.wrong("attention.sliding_window_pattern", f"a list of {num_layers} values")
        return tuple(window if slides else None for slides in pattern[:num_layers])
    every = arch.pattern if pattern is None else keys.integer("attention.sliding_window_pattern", 0)
    return tuple(window if not every or (index + 1) % every else None for index in range(num_layers))


def _moe(gguf: GgufFile, keys: ConfigKeys, index: int) -> MoeConfig | None:
    num_experts = keys.integer_or_none("expert_count", 0)
    if not num_experts or f"blk.{index}.ffn_gate_inp.weight" not in gguf.tensors:
        return None
    size = keys.integer_or_none("expert_feed_forward_length") or keys.integer("feed_forward_length")
    num_active = keys.integer("expert_used_count")
    if gguf.architecture == "gpt-oss":
        return MoeConfig(
            num_experts, num_active, size, kind="topk_softmax", bias=True, gate_limit=7.0, gate_alpha=1.702
        )
    return MoeConfig(num_experts, num_active, size)
