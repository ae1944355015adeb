"""A Hugging Face `config.json` as a `ModelConfig`.

The families are rows of `models.hf_families`; this module finds the text decoder in the file, refuses by name what
would load and then compute something else, and fills in what every family says the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backends.errors import UnsupportedModelError
from models.config import LayerConfig, ModelConfig
from models.config_keys import ConfigKeys
from models.hf_defaults import DEFAULTS
from models.hf_families import FAMILIES, Family
from models.hf_rope import FULL, SLIDING, parse_ropes

_TEXT_PARTS = {
    "gemma3": "gemma3_text",
    "mistral3": "mistral",
    "cohere2_vision": "cohere2",
}
"""Multimodal model types whose text part is a plain decoder -> the text part's type where it names none."""
_WRITES_NO_TEXT = ("Classification", "QuestionAnswering", "Reward", "MaskedLM", "ConditionalGenerationAudio")


def parse_hf_config(config: Mapping[str, Any], source: str = "config.json") -> ModelConfig:
    """Return the features of the (text) decoder a `config.json` describes.

    Args:
        config: the parsed file.
        source: how to name the file in an error.

    Raises:
        UnsupportedModelError: the architecture, or one of its settings, is one the decoder cannot run.
        ModelFileError: a value is missing, wrong, or contradicts another.
    """
    text = _text_part(config, source)
    model_type = text.get("model_type")
    architecture = _architecture(config, text)
    family = FAMILIES.get(model_type) if isinstance(model_type, str) else None
    if family is None:
        raise UnsupportedModelError(
            f"{source}: {architecture} (model_type {model_type!r}) is not a family Ringside knows."
        )
    _refuse_unsupported(config, text, architecture, source)
    keys = ConfigKeys(text, source, DEFAULTS[str(model_type)])
    return _build(keys, family, architecture)


def knows_family(config: Mapping[str, Any]) -> bool:
    """Whether the decoder a `config.json` describes is of a family in `models.hf_families`, settings aside."""
    outer_type, nested = config.get("model_type"), config.get("text_config")
    if isinstance(nested, Mapping):
        return outer_type in _TEXT_PARTS
    return outer_type in FAMILIES


def _build(keys: ConfigKeys, family: Family, architecture: str) -> ModelConfig:
    num_heads, num_kv_heads, head_dim = _head_sizes(keys)
    windows = family.windows(keys)
    ropes = parse_ropes(keys, head_dim, family.rope)
    layers = tuple(
        LayerConfig(
            trained_window=window,
            rope=ropes[FULL if window is None else SLIDING] if rotates else None,
            moe=family.moe(keys, index),
        )
        for index, (window, rotates) in enumerate(zip(windows, family.rotates(keys, windows), strict=True))
    )
    fields: dict[str, Any] = {
        "architecture": architecture,
        "vocab_size": keys.integer("vocab_size"),
        "hidden_size": keys.integer("hidden_size"),
        "mlp_size": keys.integer("intermediate_size"),
        "num_heads": num_heads,
        "num_kv_heads": num_kv_heads,
        "head_dim": head_dim,
        "layers": layers,
        "attention_scale": head_dim**-0.5,
        "tied_embeddings": keys.flag("tie_word_embeddings"),
        "context_tokens": keys.integer_or_none("max_position_embeddings"),
        "bos_token_id": keys.integer_or_none("bos_token_id", 0),
        "eos_token_ids": _eos_token_ids(keys),
    }
    return ModelConfig(**{**fields, **family.features(keys)})


def _head_sizes(keys: ConfigKeys) -> tuple[int, int, int]:
    """Return (heads, key/value heads, head_dim)."""
    num_heads = keys.integer("num_attention_heads")
    num_kv_heads = keys.integer_or_none("num_key_value_heads") or num_heads
    if num_heads % num_kv_heads:
        if "num_key_value_heads" in keys:
            raise keys.wrong("num_key_value_heads", f"a divisor of the {num_heads} attention heads")
        num_kv_heads = num_heads  # the class default is for the original size only
    head_dim = keys.integer_or_none("head_dim") or keys.integer("hidden_size") // num_heads
    return num_heads, num_kv_heads, head_dim


def _eos_token_ids(keys: ConfigKeys) -> tuple[int, ...]:
    value = keys.get("eos_token_id")
    if value is None:
        return ()
    ids = tuple(value) if isinstance(value, list) else (value,)
    if not all(isinstance(token_id, int) for token_id in ids):
        raise keys.wrong("eos_token_id", "a token id or a list of them")
    return ids


def _text_part(config: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the config of the decoder: the file itself, or the text part of a multimodal one."""
    nested = config.get("text_config")
    if not isinstance(nested, Mapping):
        return dict(config)
    outer_type = str(config.get("model_type"))
    if outer_type not in _TEXT_PARTS:
        raise UnsupportedModelError(
            f"{source}: {outer_type!r} is a multimodal model whose text part Ringside does not know."
        )
    shared = {key: config[key] for key in ("tie_word_embeddings", "bos_token_id", "eos_token_id") if key in config}
    return {"model_type": _TEXT_PARTS[outer_type], **shared, **nested}


def _architecture(config: Mapping[str, Any], text: Mapping[str, Any]) -> str:
    names = config.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else str(text.get("model_type"))


def _refuse_unsupported(config: Mapping[str, Any], text: Mapping[str, Any], architecture: str, source: str) -> None:
    """Refuse by name what would load and then compute something else."""
    if any(word in architecture for word in _WRITES_NO_TEXT):
        raise UnsupportedModelError(f"{source}: {architecture} does not write text.")
    quantisation = config.get("quantization_config") or text.get("quantization_config")
    if isinstance(quantisation, Mapping) and quantisation.get("quant_method") != "mxfp4":
        raise UnsupportedModelError(
            f"{source}: weights quantised with {quantisation.get('quant_method')!r} cannot be read.",
            "Use the unquantised folder or a GGUF file.",
        )
    if text.get("use_bidirectional_attention"):
        raise UnsupportedModelError(f"{source}: {architecture} attends in both directions, so it does not write text.")
    if text.get("num_kv_shared_layers"):
        raise UnsupportedModelError(f"{source}: layers that share keys and values are not supported.")
    if text.get("attention_chunk_size"):
        raise UnsupportedModelError(f"{source}: chunked attention is not supported.")
