"""What has to hold in a GGUF file before llama.cpp may see it: it ends its process, or gives no key, where it does not.

Bounds and assertions are those of `llama_model_base::load_hparams` and `llama_vocab::impl::load` in llama.cpp 0.3.36.
"""

from __future__ import annotations

import numpy as np

from backends.errors import ModelFileError
from models.config_keys import ConfigKeys
from models.gguf_reader import GgufFile

_MOST_LAYERS, _MOST_EXPERTS = 512, 1024
_ROPE_SCALINGS = ("none", "linear", "yarn", "longrope")
_TOKENS, _SCORES, _TYPES = (f"tokenizer.ggml.{name}" for name in ("tokens", "scores", "token_type"))


def check_file(gguf: GgufFile) -> None:
    """Check counts, heads, experts, scaling and vocabulary.

    Raises:
        ModelFileError: names the file, the key and the value.
    """
    prefix = f"{gguf.architecture}."
    values = {key: gguf.metadata[key] for key in gguf.metadata if key.startswith(prefix)}
    keys = ConfigKeys(values, str(gguf.path))
    _check_layers(keys, prefix)
    _check_heads(keys, prefix)
    _check_experts(keys, prefix)
    scaling = keys.get(f"{prefix}rope.scaling.type")
    if scaling not in (None, *_ROPE_SCALINGS):
        raise keys.wrong(f"{prefix}rope.scaling.type", f"one of {', '.join(_ROPE_SCALINGS)}")
    _check_vocabulary(gguf)


def _check_layers(keys: ConfigKeys, prefix: str) -> None:
    num_layers = keys.integer(f"{prefix}block_count")
    if num_layers > _MOST_LAYERS:
        raise keys.wrong(f"{prefix}block_count", f"at most {_MOST_LAYERS}")
    keys.integer(f"{prefix}embedding_length")
    keys.integer(f"{prefix}context_length")
    if (keys.integer_or_none(f"{prefix}nextn_predict_layers", 0) or 0) >= num_layers:
        raise keys.wrong(f"{prefix}nextn_predict_layers", f"below the {num_layers} layers there are")


def _check_heads(keys: ConfigKeys, prefix: str) -> None:
    """Every layer's query heads share its key heads evenly; 0 heads is a layer without attention."""
    count_key, kv_key = f"{prefix}attention.head_count", f"{prefix}attention.head_count_kv"
    num_layers = keys.integer(f"{prefix}block_count")
    counts = _per_layer(keys, count_key, num_layers)
    kv_counts = _per_layer(keys, kv_key, num_layers) if kv_key in keys else counts
    for layer, (count, kv_count) in enumerate(zip(counts, kv_counts, strict=True)):
        if count and kv_count and count % kv_count:
            raise keys.wrong(kv_key, f"a divisor of the {count} attention heads of layer {layer}")


def _per_layer(keys: ConfigKeys, key: str, num_layers: int) -> list[int]:
    """Return a count of each layer, from one number or a list of them."""
    value = keys.get(key)
    if isinstance(value, (np.ndarray, list)):
        if len(value) < num_layers:
            raise keys.wrong(key, f"a list of {num_layers} numbers")
        return [int(count) for count in value[:num_layers]]
    return [keys.integer(key, minimum=0) if key in keys else 0] * num_layers


def _check_experts(keys: ConfigKeys, prefix: str) -> None:
    num_experts = keys.integer_or_none(f"{prefix}expert_count", 0) or 0
    if num_experts > _MOST_EXPERTS:
        raise keys.wrong(f"{prefix}expert_count", f"at most {_MOST_EXPERTS}")
    used_key = f"{prefix}expert_used_count"
    used = keys.get(used_key)
    num_used = int(np.max(used)) if isinstance(used, (np.ndarray, list)) else keys.integer_or_none(used_key, 0) or 0
    if not (1 if num_experts else 0) <= num_used <= num_experts:
        raise keys.wrong(used_key, f"from 1 to the {num_experts} experts there are" if num_experts else "0 or absent")


def _check_vocabulary(gguf: GgufFile) -> None:
    tokens = gguf.metadata.get(_TOKENS)
    if not isinstance(tokens, list):
        return  # some architectures write none; llama.cpp says so itself where it needs one
    if len(set(tokens)) < len(tokens):
        raise ModelFileError(f"{gguf.path}: {_TOKENS} holds {_first_double(tokens)}.", "Convert the model again.")
    for key in (_SCORES, _TYPES):
        values = gguf.metadata.get(key)
        if values is not None and len(values) < len(tokens):
            raise ModelFileError(
                f"{gguf.path}: {key} holds {len(values):,} values for {len(tokens):,} tokens.",
                "Convert the model again.",
            )


def _first_double(tokens: list[str]) -> str:
    seen: dict[str, int] = {}
    for token_id, token in enumerate(tokens):
        if (first := seen.setdefault(token, token_id)) != token_id:
            return f"the token {token!r} twice, as {first:,} and {token_id:,}"
    raise AssertionError("called for tokens that are not all different")
