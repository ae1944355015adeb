"""Rotary settings of a GGUF file: keys, and the tables that converters store as tensors.

Meanings follow llama.cpp's converters and `llama_context` (what it makes of yarn's factors). q and k are taken to be in
the order `models.weight_names` brings them to, which is why most layouts are "half".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from backends.errors import UnsupportedModelError
from models.config import RopeConfig, RotaryLayout
from models.config_keys import ConfigKeys
from models.gguf_reader import GgufFile


@dataclass(frozen=True)
class GgufRopeStyle:
    """What an architecture does with rotary settings.

    Attributes:
        layout: which dimensions form a pair.
        sliding_theta: base of sliding layers where the file gives none; None is the full layers' base.
        scales_full_only: scaling leaves sliding layers alone.
        yarn_truncate: see `RopeConfig`.
    """

    layout: RotaryLayout = "half"
    sliding_theta: float | None = None
    scales_full_only: bool = False
    yarn_truncate: bool = True


PLAIN_ROPE = GgufRopeStyle()


def parse_ropes(gguf: GgufFile, keys: ConfigKeys, style: GgufRopeStyle, head_dim: int) -> tuple[RopeConfig, RopeConfig]:
    """Return the rotary settings of full and of sliding layers.

    Raises:
        UnsupportedModelError: a kind of scaling, or a table of it, that the decoder cannot read.
        ModelFileError: a key is missing or wrong.
    """
    theta = keys.positive_or_none("rope.freq_base") or 10_000.0
    sliding_theta = keys.positive_or_none("rope.freq_base_swa") or style.sliding_theta or theta
    dims = keys.integer_or_none("rope.dimension_count") or head_dim
    # A multimodal GLM is stored for halves; equal positions on all its axes are plain rotary embedding.
    layout: RotaryLayout = "half" if "rope.dimension_sections" in keys else style.layout
    scaling = _scaling(gguf, keys, style, dims)
    sliding_scaling = {} if style.scales_full_only else scaling
    return (
        RopeConfig(theta=theta, dims=dims, layout=layout, **scaling),
        RopeConfig(theta=sliding_theta, dims=dims, layout=layout, **sliding_scaling),
    )


def _scaling(gguf: GgufFile, keys: ConfigKeys, style: GgufRopeStyle, dims: int) -> dict[str, Any]:
    if "rope_factors_long.weight" in gguf.tensors:
        return _longrope(gguf, keys, dims)
    fields: dict[str, Any] = {}
    if "rope_freqs.weight" in gguf.tensors:
        fields["frequency_divisors"] = _floats(gguf, "rope_freqs.weight", dims // 2)
    factor = _factor(keys)
    kind = keys.get("rope.scaling.type") or "linear"  # as llama.cpp takes a file that says nothing
    if kind == "yarn":
        return {**fields, **_yarn(keys, style, factor)}
    if kind not in ("none", "linear"):
        raise UnsupportedModelError(f"{keys.source}: rope scaling of type {kind!r} is not supported.")
    if kind == "linear" and factor != 1.0:
        fields |= {"kind": "linear", "factor": factor}
    if (given := keys.positive_or_none("rope.scaling.attn_factor")) is not None:
        fields["attention_factor"] = given
    return fields


def _factor(keys: ConfigKeys) -> float:
    """Return how far positions are stretched; 0 stands for 1, as in llama.cpp."""
    for key in ("rope.scaling.factor", "rope.scale_linear"):  # the second is its name before 2023-10
        if keys.get(key):
            return keys.positive(key)
    return 1.0


def _yarn(keys: ConfigKeys, style: GgufRopeStyle, factor: float) -> dict[str, Any]:
    """Return the fields of YaRN.

    `yarn_attn_factor` is what the model was trained with in place of the derived factor; `attn_factor` multiplies
    whatever holds, as in llama.cpp.
    """
    log_multiplier = keys.positive_or_none("rope.scaling.yarn_log_multiplier")
    fields: dict[str, Any] = {
        "kind": "yarn",
        "factor": factor,
        "original_context_tokens": keys.integer_or_none("rope.scaling.original_context_length")
        or keys.integer("context_length"),
        "beta_fast": keys.positive_or_none("rope.scaling.yarn_beta_fast") or 32.0,
        "beta_slow": keys.positive_or_none("rope.scaling.yarn_beta_slow") or 1.0,
        "attention_factor": keys.positive_or_none("rope.scaling.yarn_attn_factor"),
        "truncate": style.yarn_truncate,
        "mscale": None if log_multiplier is None else 1.0,
        "mscale_all_dim": log_multiplier,
    }
    if (multiplier := keys.positive_or_none("rope.scaling.attn_factor")) is not None:
        trained = fields["attention_factor"] or RopeConfig(theta=1.0, **fields).derived_attention_factor
        fields["attention_factor"] = trained * multiplier
    return fields


def _longrope(gguf: GgufFile, keys: ConfigKeys, dims: int) -> dict[str, Any]:
    context = keys.integer("context_length")
    original = keys.integer_or_none("rope.scaling.original_context_length") or context
    return {
        "kind": "longrope",
        "factor": context / original,
        "original_context_tokens": original,
        "attention_factor": keys.positive_or_none("rope.scaling.attn_factor"),
        "short_factors": _floats(gguf, "rope_factors_short.weight", dims // 2),
        "long_factors": _floats(gguf, "rope_factors_long.weight", dims // 2),
    }


def _floats(gguf: GgufFile, name: str, count: int) -> tuple[float, ...]:
    """Return the values of a small F32 table.

    Raises:
        UnsupportedModelError: it is missing, of another type, or of another length.
    """
    tensor = gguf.tensors.get(name)
    if tensor is None or tensor.ggml_type != "F32" or tensor.shape != (count,):
        found = "missing" if tensor is None else f"{tensor.ggml_type} of shape {tensor.shape}"
        raise UnsupportedModelError(f"{gguf.path.name}: {name} is {found}; expected F32 of shape ({count},).")
    return tuple(gguf.data(tensor).view(np.float32).tolist())
