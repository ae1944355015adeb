"""What transformers' code does for each family and `config.json` does not say: a row of `FAMILIES` a family.

How layers slide, which of them rotate, and the features a modeling file builds in code. Meanings follow transformers
5.24, which the tests use as the oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from backends.errors import ModelFileError, UnsupportedModelError
from models.config import Activation, MoeConfig
from models.config_keys import ConfigKeys
from models.hf_rope import FULL, PLAIN_ROPE, SLIDING, RopeStyle

Features = Mapping[str, Any]
Windows = tuple[int | None, ...]

_ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
}


@dataclass(frozen=True)
class Family:
    """What transformers' code for one family does.

    Attributes:
        windows: window of each layer.
        rope: see `RopeStyle`.
        rotates: whether each layer has a rotary embedding, given the windows.
        moe: experts of a layer by index; None is a dense block.
        features: fields of `ModelConfig` that differ from its defaults.
    """

    windows: Callable[[ConfigKeys], Windows]
    rope: RopeStyle = PLAIN_ROPE
    rotates: Callable[[ConfigKeys, Windows], tuple[bool, ...]] = lambda keys, windows: (True,) * len(windows)
    moe: Callable[[ConfigKeys, int], MoeConfig | None] = lambda keys, index: None
    features: Callable[[ConfigKeys], Features] = lambda keys: {}


# How layers slide.


def _num_layers(keys: ConfigKeys) -> int:
    return keys.integer("num_hidden_layers")


def _all_full(keys: ConfigKeys) -> Windows:
    return (None,) * _num_layers(keys)


def _all_slide(keys: ConfigKeys) -> Windows:
    """Every layer slides if there is a window at all; `layer_types` is not read (Mistral, Phi-3 ...)."""
    return (keys.integer_or_none("sliding_window"),) * _num_layers(keys)


def _all_slide_if_used(keys: ConfigKeys) -> Windows:
    return _all_slide(keys) if keys.flag("use_sliding_window") else _all_full(keys)


def _by_type(keys: ConfigKeys) -> Windows:
    """`layer_types`, or else `sliding_window_pattern`: every n-th layer full, or a string such as "LLLG" (EXAONE)."""
    pattern = keys.get("sliding_window_pattern")
    if isinstance(pattern, str) and pattern:
        return _typed(keys, lambda index: pattern[index % len(pattern)] == "L")
    return _typed(keys, lambda index: (index + 1) % (keys.integer_or_none("sliding_window_pattern") or 1) != 0)


def _by_type_ministral(keys: ConfigKeys) -> Windows:
    slides = keys.get("sliding_window") is not None
    return _typed(keys, lambda index: slides)


def _by_type_qwen(keys: ConfigKeys) -> Windows:
    """Layers from `max_window_layers` on slide, and only with `use_sliding_window`."""
    if not keys.flag("use_sliding_window"):
        return _all_full(keys)
    first = keys.integer("max_window_layers", 0)
    slides = keys.get("sliding_window") is not None
    return _typed(keys, lambda index: slides and index >= first)


def _by_type_exaone4(keys: ConfigKeys) -> Windows:
    return _by_type(keys) if keys.get("sliding_window") is not None else _all_full(keys)


def _by_type_smollm3(keys: ConfigKeys) -> Windows:
    """Layers without rotary embedding are the ones that slide, where any do."""
    if not keys.flag("use_sliding_window"):
        return _all_full(keys)
    rotates = _rotates_smollm3(keys, ())
    slides = keys.get("sliding_window") is not None
    return _typed(keys, lambda index: slides and not rotates[index])


def _typed(keys: ConfigKeys, default: Callable[[int], bool]) -> Windows:
    num_layers = _num_layers(keys)
    types = keys.items("layer_types")
    if types is None:
        slides = [default(index) for index in range(num_layers)]
    else:
        if unknown := sorted({str(name) for name in types} - {FULL, SLIDING}):
            raise UnsupportedModelError(f"{keys.source}: layers of type {unknown[0]!r} are not supported.")
        if len(types) != num_layers:
            raise ModelFileError(
                f"{keys.source}: layer_types names {len(types)} layers, but num_hidden_layers is {num_layers}."
            )
        slides = [name == SLIDING for name in types]
    window = keys.integer("sliding_window") if any(slides) else None
    return tuple(window if slide else None for slide in slides)


# Which layers rotate.


def _rotates_where_sliding(keys: ConfigKeys, windows: Windows) -> tuple[bool, ...]:
    return tuple(window is not None for window in windows)


def _rotates_exaone4(keys: ConfigKeys, windows: Windows) -> tuple[bool, ...]:
    return tuple(keys.get("sliding_window") is None or window is not None for window in windows)


def _rotates_smollm3(keys: ConfigKeys, windows: Windows) -> tuple[bool, ...]:
    """`no_rope_layers` says 1 for a layer that does rotate."""
    num_layers = _num_layers(keys)
    given = keys.items("no_rope_layers")
    if given is None:
        interval = keys.integer("no_rope_layer_interval")
        return tuple((index + 1) % interval != 0 for index in range(num_layers))
    if len(given) != num_layers:
        raise keys.wrong("no_rope_layers", f"a list of {num_layers} values")
    return tuple(bool(value) for value in given)


# Experts.


def _moe_mixtral(keys: ConfigKeys, index: int) -> MoeConfig:
    return MoeConfig(
        keys.integer("num_local_experts"), keys.integer("num_experts_per_tok"), keys.integer("intermediate_size")
    )


def _moe_qwen3(keys: ConfigKeys, index: int) -> MoeConfig | None:
    dense = keys.items("mlp_only_layers") or ()
    if index in dense or (index + 1) % keys.integer("decoder_sparse_step"):
        return None
    num_experts = keys.integer("num_local_experts" if "num_local_experts" in keys else "num_experts")
    return MoeConfig(
        num_experts,
        keys.integer("num_experts_per_tok"),
        keys.integer("moe_intermediate_size"),
        norm_topk=keys.flag("norm_topk_prob"),
    )


def _moe_gpt_oss(keys: ConfigKeys, index: int) -> MoeConfig:
    return MoeConfig(
        keys.integer("num_local_experts"),
        keys.integer("num_experts_per_tok"),
        keys.integer("intermediate_size"),
        kind="topk_softmax",
        bias=True,
        gate_limit=keys.positive_or_none("swiglu_limit"),
        gate_alpha=keys.positive("swiglu_alpha"),
    )


# Features that modeling files build in code.


def _activation(keys: ConfigKeys, key: str = "hidden_act") -> Activation:
    name = keys.text(key)
    if name not in _ACTIVATIONS:
        raise UnsupportedModelError(f"{keys.source}: the activation {name!r} is not supported.")
    return _ACTIVATIONS[name]


def _rms(keys: ConfigKeys) -> dict[str, Any]:
    return {"norm_eps": keys.positive("rms_norm_eps"), "activation": _activation(keys)}


def _llama(keys: ConfigKeys) -> Features:
    bias = keys.flag("attention_bias")
    return {**_rms(keys), "qkv_bias": bias, "output_bias": bias, "mlp_bias": keys.flag("mlp_bias")}


def _ministral3(keys: ConfigKeys) -> Features:
    rope = ConfigKeys(keys.section("rope_scaling") or keys.section("rope_parameters") or {}, keys.source)
    if not rope.get("llama_4_scaling_beta"):
        return _rms(keys)
    tokens = rope.integer("original_max_position_embeddings")
    return {**_rms(keys), "query_scale_beta": rope.number("llama_4_scaling_beta"), "query_scale_tokens": tokens}


def _qwen2(keys: ConfigKeys) -> Features:
    return {**_rms(keys), "qkv_bias": True}


def _qwen3(keys: ConfigKeys) -> Features:
    bias = keys.flag("attention_bias")
    return {**_rms(keys), "qkv_bias": bias, "output_bias": bias, "qk_norm": "head"}


def _gemma(keys: ConfigKeys) -> dict[str, Any]:
    bias = keys.flag("attention_bias")
    return {
        "norm": "rms_plus_one",
        "norm_eps": keys.positive("rms_norm_eps"),
        "norms_after": True,
        "activation": _activation(keys, "hidden_activation"),
        "embedding_scale": keys.integer("hidden_size") ** 0.5,
        "attention_scale": keys.positive("query_pre_attn_scalar") ** -0.5,
        "attention_softcap": keys.positive_or_none("attn_logit_softcapping"),
        "logit_softcap": keys.positive_or_none("final_logit_softcapping"),
        "qkv_bias": bias,
        "output_bias": bias,
    }


def _gemma3(keys: ConfigKeys) -> Features:
    return {**_gemma(keys), "qk_norm": "head", "qk_norm_kind": "rms_plus_one"}


def _starcoder2(keys: ConfigKeys) -> Features:
    bias = keys.flag("use_bias")
    return {
        "norm": "layer",
        "norm_bias": True,
        "norm_eps": keys.positive("norm_epsilon"),
        "activation": _activation(keys),
        "gated_mlp": False,
        "qkv_bias": bias,
        "output_bias": bias,
        "mlp_bias": bias,
    }


def _olmo(keys: ConfigKeys) -> Features:
    bias = keys.flag("attention_bias")
    norms = {"norms_before": False, "norms_after": True, "qk_norm": "projection"}
    return {**_rms(keys), **norms, "qkv_bias": bias, "output_bias": bias}


def _cohere2(keys: ConfigKeys) -> Features:
    bias = keys.flag("attention_bias")
    return {
        "norm": "layer",
        "norm_eps": keys.positive("layer_norm_eps"),
        "activation": _activation(keys),
        "parallel_block": True,
        "logit_scale": keys.number("logit_scale"),
        "qkv_bias": bias,
        "output_bias": bias,
    }


def _exaone4(keys: ConfigKeys) -> Features:
    return {**_rms(keys), "norms_before": False, "norms_after": True, "qk_norm": "head"}


def _granite(keys: ConfigKeys) -> Features:
    return {
        **_llama(keys),
        "attention_scale": keys.number("attention_multiplier"),
        "embedding_scale": keys.number("embedding_multiplier"),
        "residual_scale": keys.number("residual_multiplier"),
        "logit_scale": 1.0 / keys.positive("logits_scaling"),
    }


def _glm(keys: ConfigKeys) -> Features:
    return {**_rms(keys), "qkv_bias": keys.flag("attention_bias")}


def _glm4(keys: ConfigKeys) -> Features:
    return {**_glm(keys), "norms_after": True}


def _gpt_oss(keys: ConfigKeys) -> Features:
    bias = keys.flag("attention_bias")
    return {**_rms(keys), "learned_sinks": True, "qkv_bias": bias, "output_bias": bias}


_INTERLEAVED_PARTIAL = RopeStyle(layout="interleaved", allows_partial=True)

FAMILIES: dict[str, Family] = {
    "llama": Family(_all_full, features=_llama),
    "mistral": Family(_all_slide, features=_rms),
    "ministral": Family(_by_type_ministral, features=_rms),
    "ministral3": Family(_all_slide, features=_ministral3),
    "mixtral": Family(_all_slide, moe=_moe_mixtral, features=_rms),
    "qwen2": Family(_by_type_qwen, features=_qwen2),
    "qwen3": Family(_by_type_qwen, features=_qwen3),
    "qwen3_moe": Family(_all_slide_if_used, moe=_moe_qwen3, features=_qwen3),
    "gemma2": Family(_by_type, features=_gemma),
    "gemma3_text": Family(_by_type, rope=RopeStyle(scales_full_only=True), features=_gemma3),
    "phi3": Family(_all_slide, rope=RopeStyle(allows_partial=True, yarn_is_longrope=True), features=_rms),
    "starcoder2": Family(_all_slide, features=_starcoder2),
    "olmo2": Family(_all_full, features=_olmo),
    "olmo3": Family(_by_type, rope=RopeStyle(scales_full_only=True), features=_olmo),
    "cohere2": Family(
        _by_type, rope=RopeStyle(layout="interleaved"), rotates=_rotates_where_sliding, features=_cohere2
    ),
    "smollm3": Family(_by_type_smollm3, rotates=_rotates_smollm3, features=_llama),
    "exaone4": Family(_by_type_exaone4, rotates=_rotates_exaone4, features=_exaone4),
    "granite": Family(_all_full, features=_granite),
    "glm": Family(_all_full, rope=_INTERLEAVED_PARTIAL, features=_glm),
    "glm4": Family(_all_full, rope=_INTERLEAVED_PARTIAL, features=_glm4),
    "gpt_oss": Family(_by_type, moe=_moe_gpt_oss, features=_gpt_oss),
}
