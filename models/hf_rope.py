"""Rotary settings of a Hugging Face config, in any of the spellings of transformers 4 and 5.

Version 4 wrote `rope_theta` and `rope_scaling` at the top level, version 5 writes `rope_parameters` with the base
inside, for some families once per layer type. A wrong base, or scaling applied to the wrong layers, still gives fluent
text at short lengths, so nothing here guesses: an unknown kind is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backends.errors import UnsupportedModelError
from models.config import RopeConfig, RopeKind, RotaryLayout
from models.config_keys import ConfigKeys

FULL, SLIDING = "full_attention", "sliding_attention"
_KINDS: dict[str, RopeKind] = {
    "default": "default",
    "linear": "linear",
    "dynamic": "dynamic",
    "llama3": "llama3",
    "yarn": "yarn",
    "longrope": "longrope",
    "su": "longrope",  # its first name
}


@dataclass(frozen=True)
class RopeStyle:
    """What a family's modeling code does with rotary settings.

    Attributes:
        layout: which dimensions form a pair.
        scales_full_only: settings without layer types scale full layers only, sliding ones stay plain (Gemma, OLMo 3).
        allows_partial: whether `partial_rotary_factor` is read at all.
        yarn_is_longrope: early Phi-3 files call longrope "yarn".
    """

    layout: RotaryLayout = "half"
    scales_full_only: bool = False
    allows_partial: bool = False
    yarn_is_longrope: bool = False


PLAIN_ROPE = RopeStyle()


def parse_ropes(keys: ConfigKeys, head_dim: int, style: RopeStyle) -> dict[str, RopeConfig]:
    """Return the rotary settings of full and of sliding layers.

    Raises:
        ModelFileError: a value is missing or wrong.
        UnsupportedModelError: the kind of scaling, or a partial rotation, is one the decoder cannot do.
    """
    return {kind: _parse(keys, params, head_dim, style) for kind, params in _by_layer_type(keys, style).items()}


def _by_layer_type(keys: ConfigKeys, style: RopeStyle) -> dict[str, dict[str, Any]]:
    """Return one flat set of settings per layer type, with base and original context filled in."""
    scaling = keys.section("rope_scaling") or {}
    given = keys.section("rope_parameters") or {}
    nested = {kind: given[kind] for kind in (FULL, SLIDING) if isinstance(given.get(kind), Mapping)}
    theta = keys.get("rope_theta")
    if nested or style.scales_full_only:
        plain = {} if nested else given
        local_theta = keys.get("rope_local_base_freq") or plain.get("rope_theta") or theta
        full = {"rope_theta": theta, **nested.get(FULL, plain), **scaling}
        sliding = {"rope_theta": local_theta, **nested.get(SLIDING, {})}
        return {FULL: full, SLIDING: sliding}
    flat = {"rope_theta": theta, **(scaling or given)}
    # transformers lets the top-level length win, and Phi-3 files say it only there.
    if (original := keys.get("original_max_position_embeddings")) is not None:
        flat["original_max_position_embeddings"] = original
    return {FULL: flat, SLIDING: flat}


def _parse(keys: ConfigKeys, params: Mapping[str, Any], head_dim: int, style: RopeStyle) -> RopeConfig:
    context = keys.integer("max_position_embeddings")
    defaults = {
        "original_max_position_embeddings": context,
        "partial_rotary_factor": keys.get("partial_rotary_factor") or 1.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
    }
    present = {key: value for key, value in params.items() if value is not None}
    rope = ConfigKeys(present, f"{keys.source}, rotary settings", defaults)
    kind = _kind(rope, style)
    dims = _rotary_dims(rope, head_dim, style)
    scaling = _scaling(kind, rope, dims, context)
    return RopeConfig(theta=rope.positive("rope_theta"), kind=kind, dims=dims, layout=style.layout, **scaling)


def _kind(rope: ConfigKeys, style: RopeStyle) -> RopeKind:
    name = rope.get("rope_type") or rope.get("type") or "default"
    if name not in _KINDS:
        raise UnsupportedModelError(
            f"{rope.source}: rope type {name!r} is not supported.", f"Supported are {', '.join(sorted(_KINDS))}."
        )
    kind = _KINDS[name]
    if style.yarn_is_longrope and kind == "yarn":
        return "longrope"
    return kind


def _rotary_dims(rope: ConfigKeys, head_dim: int, style: RopeStyle) -> int:
    factor = rope.positive("partial_rotary_factor")
    if factor != 1.0 and not style.allows_partial:
        raise UnsupportedModelError(
            f"{rope.source}: a partial_rotary_factor of {factor:g} means nothing in this family."
        )
    dims = int(head_dim * factor)
    if dims % 2 or not 0 < dims <= head_dim:
        raise rope.wrong("partial_rotary_factor", f"such that an even number of the {head_dim} dimensions rotates")
    return dims


def _scaling(kind: RopeKind, rope: ConfigKeys, dims: int, context: int) -> dict[str, Any]:
    """Return the fields of `RopeConfig` that this kind reads."""
    if kind == "default":
        return {}
    if kind == "linear":
        return {"factor": rope.positive("factor")}
    if kind == "dynamic":
        return {"factor": rope.positive("factor"), "original_context_tokens": context}
    original = rope.integer("original_max_position_embeddings")
    if kind == "llama3":
        bands = {name: rope.positive(name) for name in ("low_freq_factor", "high_freq_factor")}
        return {"factor": rope.positive("factor"), "original_context_tokens": original, **bands}
    factor = rope.positive_or_none("factor")
    fields = {
        "factor": context / original if factor is None else factor,
        "original_context_tokens": original,
        "attention_factor": rope.positive_or_none("attention_factor"),
    }
    if kind == "longrope":
        short, long = (rope.numbers(name, dims // 2) for name in ("short_factor", "long_factor"))
        return {**fields, "short_factors": short, "long_factors": long}
    return {
        **fields,
        "beta_fast": rope.positive("beta_fast"),
        "beta_slow": rope.positive("beta_slow"),
        "truncate": rope.get("truncate") is not False,
        "mscale": None if rope.get("mscale") is None else rope.number("mscale"),
        "mscale_all_dim": None if rope.get("mscale_all_dim") is None else rope.number("mscale_all_dim"),
    }
