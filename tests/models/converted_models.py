"""Tiny models as GGUF files, converted as llama.cpp's `convert_hf_to_gguf.py` does it.

Which tensor becomes which is gguf-py's own name map, the one the converters use; what they do to numbers and settings
on the way (reordered q and k, norms plus one, stacked experts, tables of frequencies) is written out here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import gguf
import numpy as np
import numpy.typing as npt
import torch
from gguf.constants import MODEL_ARCH_NAMES
from torch import Tensor

from tests.models.gguf_files import write_gguf
from tests.models.tiny_models import SLIDING, TinyModel, tiny_model

Numbers = npt.NDArray[np.float32]
Kind = Literal["F32", "Q8_0"]
_MODEL_ARCHS = {name: arch for arch, name in MODEL_ARCH_NAMES.items()}
_REORDERED = {"llama", "mistral3", "granite", "smollm3"}
_EXPERT = re.compile(r"(.*)\.(?:block_sparse_moe|mlp)\.experts\.\d+\.(\w+)\.weight")
_EXPERT_LEAVES = {"w1": "gate", "w2": "down", "w3": "up", "gate_proj": "gate", "down_proj": "down", "up_proj": "up"}


@dataclass(frozen=True)
class GgufForm:
    """How a family is told in GGUF.

    Attributes:
        architecture: llama.cpp's name for it.
        changes: config values of the tiny model that GGUF has no words for, made such as it has.
        settings: GGUF key -> config key, for keys beyond the usual ones.
    """

    architecture: str
    changes: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)


_SOFTCAPS = {
    ".attn_logit_softcapping": "attn_logit_softcapping",
    ".final_logit_softcapping": "final_logit_softcapping",
}
GGUF_FORMS: dict[str, GgufForm] = {
    "llama": GgufForm("llama"),
    "mistral": GgufForm("llama"),
    "ministral3": GgufForm("mistral3"),
    "qwen2": GgufForm("qwen2"),
    "qwen3": GgufForm("qwen3"),
    "gemma2": GgufForm("gemma2", {"query_pre_attn_scalar": 8}, _SOFTCAPS),
    "gemma3_text": GgufForm("gemma3"),
    "phi3": GgufForm("phi3"),
    "starcoder2": GgufForm("starcoder2"),
    "olmo2": GgufForm("olmo2"),
    "olmo3": GgufForm("olmo2"),
    "cohere2": GgufForm("cohere2", settings={".logit_scale": "logit_scale"}),
    "smollm3": GgufForm(
        "smollm3",
        {"num_hidden_layers": 4, "no_rope_layers": (1, 1, 1, 0), "layer_types": None, "use_sliding_window": False},
    ),
    "exaone4": GgufForm("exaone4"),
    "granite": GgufForm(
        "granite",
        settings={
            ".embedding_scale": "embedding_multiplier",
            ".residual_scale": "residual_multiplier",
            ".attention.scale": "attention_multiplier",
            ".logit_scale": "logits_scaling",
        },
    ),
    "mixtral": GgufForm("llama"),
    "qwen3_moe": GgufForm("qwen3moe", {"mlp_only_layers": ()}),
    "glm4": GgufForm("glm4"),
    "gpt_oss": GgufForm("gpt-oss"),
}


def tiny_model_for_gguf(family: str) -> TinyModel:
    """The family's tiny model, in a form that GGUF can tell."""
    return tiny_model(family, **GGUF_FORMS[family].changes)


def convert(family: str, tiny: TinyModel, tensors: dict[str, Tensor], path: Path, kind: Kind = "F32") -> Path:
    """Write a family's tiny model as a GGUF file.

    Args:
        family: a key of `GGUF_FORMS`.
        tiny: as `tiny_model_for_gguf` makes it.
        tensors: its weights, by their names in a safetensors file.
        path: of the file.
        kind: of the matrices whose rows are whole blocks; all else is F32.
    """
    form, config = GGUF_FORMS[family], tiny.stock.config
    converted = dict(_converted(form, config, tensors))
    metadata = {**_settings(config), **{key: getattr(config, name) for key, name in form.settings.items()}}
    if tiny.config.query_scale_beta:
        metadata[".attention.temperature_scale"] = tiny.config.query_scale_beta
    stored = {name: _stored(name, values, kind) for name, values in converted.items()}
    return write_gguf(path, form.architecture, metadata, stored)


def rounded_to_q8_0(values: Tensor) -> Tensor:
    """The numbers a Q8_0 file would give back; writing these as Q8_0 loses nothing any more."""
    blocks = gguf.quants.quantize(values.numpy(), gguf.GGMLQuantizationType.Q8_0)
    return torch.from_numpy(gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType.Q8_0))


def is_quantised(name: str, shape: tuple[int, ...]) -> bool:
    """Whether Q8_0 files hold this tensor in blocks: matrices of whole blocks a row, routers apart."""
    return len(shape) > 1 and shape[-1] % 32 == 0 and "gate_inp" not in name and not name.endswith(".bias")


def _stored(name: str, values: Numbers, kind: Kind) -> Any:
    if kind == "F32" or not is_quantised(name, values.shape):
        return values
    return gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0), gguf.GGMLQuantizationType.Q8_0


def _settings(config: Any) -> dict[str, Any]:
    """The metadata every converter writes."""
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    settings: dict[str, Any] = {
        ".context_length": config.max_position_embeddings,
        ".embedding_length": config.hidden_size,
        ".block_count": config.num_hidden_layers,
        ".feed_forward_length": config.intermediate_size,
        ".attention.head_count": config.num_attention_heads,
        ".attention.head_count_kv": config.num_key_value_heads,
        ".attention.key_length": head_dim,
        ".attention.value_length": head_dim,
        **_eps(config),
        **_rotary_settings(config, head_dim),
        **_window_settings(config),
    }
    if num_experts := getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None):
        settings[".expert_count"] = num_experts
        settings[".expert_used_count"] = config.num_experts_per_tok
        settings[".expert_feed_forward_length"] = getattr(config, "moe_intermediate_size", config.intermediate_size)
    return settings


def _eps(config: Any) -> dict[str, float]:
    for name in ("layer_norm_eps", "norm_epsilon"):
        if hasattr(config, name):
            return {".attention.layer_norm_epsilon": getattr(config, name)}
    return {".attention.layer_norm_rms_epsilon": config.rms_norm_eps}


def _rotary_settings(config: Any, head_dim: int) -> dict[str, Any]:
    full = config.rope_parameters.get("full_attention", config.rope_parameters)
    sliding = config.rope_parameters.get(SLIDING, full)
    settings: dict[str, Any] = {
        ".rope.freq_base": float(full["rope_theta"]),
        ".rope.freq_base_swa": float(sliding["rope_theta"]),
        ".rope.dimension_count": int(head_dim * full.get("partial_rotary_factor", 1.0)),
    }
    if full["rope_type"] == "yarn":
        settings[".rope.scaling.type"] = "yarn"
        settings[".rope.scaling.factor"] = float(full["factor"])
        settings[".rope.scaling.original_context_length"] = full["original_max_position_embeddings"]
    return settings


def _window_settings(config: Any) -> dict[str, Any]:
    types = getattr(config, "layer_types", None)
    window = getattr(config, "sliding_window", None)
    if window is None or (types is not None and SLIDING not in types) or config.model_type in _NEVER_SLIDE:
        return {".attention.sliding_window": 0}
    pattern = {} if types is None else {".attention.sliding_window_pattern": [kind == SLIDING for kind in types]}
    return {".attention.sliding_window": window, **pattern}


_NEVER_SLIDE = {"llama", "olmo2", "granite", "glm4"}


def _converted(form: GgufForm, config: Any, tensors: dict[str, Tensor]) -> Iterator[tuple[str, Numbers]]:
    """Tensors by their names in a GGUF file."""
    names = gguf.get_tensor_name_map(_MODEL_ARCHS[form.architecture], config.num_hidden_layers)
    experts: dict[str, list[Tensor]] = {}
    for name, values in tensors.items():
        if match := _EXPERT.fullmatch(name):
            index = match[1].rpartition(".")[2]
            experts.setdefault(f"blk.{index}.ffn_{_EXPERT_LEAVES[match[2]]}_exps.weight", []).append(values)
        elif ".mlp.experts." in name:
            yield from _gpt_oss_experts(name, values)
        else:
            translated = names.get_name(name, try_suffixes=(".weight", ".bias"))
            assert translated is not None, f"gguf-py has no name for {name}"
            yield translated, _numbers(form, config, name, values).numpy()
    for name, stack in experts.items():
        yield name, torch.stack(stack).numpy()
    full = config.rope_parameters.get("full_attention", config.rope_parameters)
    if full["rope_type"] == "llama3":
        yield "rope_freqs.weight", _rope_freqs(full, config.head_dim)


def _numbers(form: GgufForm, config: Any, name: str, values: Tensor) -> Tensor:
    if form.architecture in _REORDERED and re.search(r"\.(q|k)_proj\.", name):
        is_query = ".q_proj." in name
        return _reordered(values, config.num_attention_heads if is_query else config.num_key_value_heads)
    if form.architecture.startswith("gemma") and name.endswith("norm.weight"):
        return values + 1
    return values


def _reordered(values: Tensor, num_heads: int) -> Tensor:
    """Rotary pairs at half a head's distance become neighbours (`LlamaModel.permute`)."""
    halves = values.reshape(num_heads, 2, values.shape[0] // num_heads // 2, *values.shape[1:])
    return halves.swapaxes(1, 2).reshape(values.shape)


def _gpt_oss_experts(name: str, values: Tensor) -> Iterator[tuple[str, Numbers]]:
    match = re.fullmatch(r"model\.layers\.(\d+)\.mlp\.experts\.(gate_up_proj|down_proj)(_bias)?", name)
    assert match is not None, name
    index, leaf, bias = match.groups()
    kind = "bias" if bias else "weight"
    by_output = values if bias else values.transpose(1, 2)
    if leaf == "down_proj":
        yield f"blk.{index}.ffn_down_exps.{kind}", by_output.contiguous().numpy()
        return
    yield f"blk.{index}.ffn_gate_exps.{kind}", by_output[:, 0::2].contiguous().numpy()
    yield f"blk.{index}.ffn_up_exps.{kind}", by_output[:, 1::2].contiguous().numpy()


def _rope_freqs(rope: dict[str, Any], head_dim: int) -> Numbers:
    """What each frequency is divided by (`LlamaModel.generate_extra_tensors`)."""
    original = rope["original_max_position_embeddings"]
    low, high, divisors = rope["low_freq_factor"], rope["high_freq_factor"], []
    for dim in range(0, head_dim, 2):
        wavelength = 2 * math.pi * rope["rope_theta"] ** (dim / head_dim)
        if wavelength < original / high:
            divisors.append(1.0)
        elif wavelength > original / low:
            divisors.append(rope["factor"])
        else:
            smooth = (original / wavelength - low) / (high - low)
            divisors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(divisors, np.float32)
