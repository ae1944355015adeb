"""Settings of a GGUF file that llama.cpp would read otherwise than the model was trained, or would refuse though clear.

llama.cpp 0.3.36 takes a count in u32 only and a fraction in f32 only, reads YaRN's betas for two architectures, and its
`yarn_attn_factor` for one (`llama_model_base::load_hparams` and `llama_context` in its source). What it is told instead
here makes it compute what the ring engine computes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from llama_cpp import llama_cpp as lib

from models.config import ModelConfig, RopeConfig, yarn_mscale
from models.gguf_reader import GgufFile

_LOOSE_COUNTS = ("u8", "i8", "u16", "i16", "i32", "u64", "i64")
_MOST_KEY_BYTES = 127


@dataclass(frozen=True)
class Overrides:
    """What llama.cpp is told in place of what it would read.

    Attributes:
        metadata: key -> number.
        yarn_beta_fast, yarn_beta_slow: of every context; None leaves them to llama.cpp.
    """

    metadata: Mapping[str, int | float] = field(default_factory=dict)
    yarn_beta_fast: float | None = None
    yarn_beta_slow: float | None = None

    def as_array(self) -> Any:
        """Return the metadata as the library's array, which ends with an empty key; None where there is none."""
        if not self.metadata:
            return None
        array = (lib.llama_model_kv_override * (len(self.metadata) + 1))()
        for entry, (key, value) in zip(array, self.metadata.items(), strict=False):
            entry.key = key.encode()
            if isinstance(value, int):
                entry.tag, entry.value.val_i64 = lib.LLAMA_KV_OVERRIDE_TYPE_INT, value
            else:
                entry.tag, entry.value.val_f64 = lib.LLAMA_KV_OVERRIDE_TYPE_FLOAT, value
        return array


def find_overrides(gguf: GgufFile, config: ModelConfig | None) -> Overrides:
    """Return what llama.cpp has to be told about a file.

    Args:
        config: as the ring engine reads the file; None where it does not know the architecture.
    """
    metadata = _loose_numbers(gguf)
    rope = _scaled_rope(config) if config else None
    if rope is None:
        return Overrides(metadata)
    key = f"{gguf.architecture}.rope.scaling.attn_factor"
    factor = _attention_multiplier(rope, gguf.architecture)
    if not math.isclose(factor, gguf.metadata.get(key, 1.0), rel_tol=1e-5):
        metadata[key] = factor
    if rope.kind != "yarn":
        return Overrides(metadata)
    return Overrides(metadata, rope.beta_fast, rope.beta_slow)


def _scaled_rope(config: ModelConfig) -> RopeConfig | None:
    """Return the rotary settings of a full layer, which scaling is for, else of any that rotates."""
    by_kind = sorted(config.layers, key=lambda layer: layer.trained_window is not None)
    return next((layer.rope for layer in by_kind if layer.rope is not None), None)


def _loose_numbers(gguf: GgufFile) -> dict[str, int | float]:
    """Return the model's numbers that are written in another type than llama.cpp asks for."""
    found: dict[str, int | float] = {}
    for key in gguf.metadata:
        if not key.startswith((f"{gguf.architecture}.", "tokenizer.ggml.")) or len(key.encode()) > _MOST_KEY_BYTES:
            continue
        kind = gguf.metadata.scalar_name(key)
        if kind == "f64":
            found[key] = float(gguf.metadata[key])
        elif kind in _LOOSE_COUNTS and 0 <= gguf.metadata[key] < 2**32:
            found[key] = int(gguf.metadata[key])
    return found


def _attention_multiplier(rope: RopeConfig, architecture: str) -> float:
    """Return what llama.cpp has to multiply its own factor of cos and sin with to get the model's."""
    wanted = rope.derived_attention_factor if rope.attention_factor is None else rope.attention_factor
    if rope.kind != "yarn":
        return wanted
    own = yarn_mscale(rope.factor)
    if architecture == "mistral3" and rope.mscale_all_dim:  # the only one of ours where it reads the log multiplier
        own /= yarn_mscale(rope.factor, rope.mscale_all_dim)
    return wanted / own
