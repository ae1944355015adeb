"""How large a model gets: slots and bytes of its cache under a policy, and what the page tells before loading.

Plain arithmetic on a `ModelConfig`; nothing is loaded and nothing measured. The ring cache allocates exactly these
bytes, and the tests hold it to that.

A token's key and value in one layer take 2 * kv_heads * head_dim numbers. Kept plain, each has the bytes of the
activations. In int8 or fp8 each has one byte, and every head of every key and value a scale of two more:
2 * kv_heads * (head_dim + 2); sinks stay plain.
"""

from __future__ import annotations

import platform
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from backends.requests import CachePolicy, KVType, LoadRequest
from models.backend_support import slides_in_llamacpp
from models.config import ModelConfig
from models.estimate_warnings import warnings_for

if TYPE_CHECKING:
    from models.model_files import ModelFiles

COMPARED_TOKENS = (10_000, 100_000, 1_000_000)
"""Lengths at which the page says what a cache without a ring would take."""
_SCALE_BYTES = 2  # bfloat16
_Q8_0_ELEMENTS, _Q8_0_BYTES = 32, 34  # of a block in llama.cpp
_PLAIN_ENCODINGS = frozenset({"F64", "F32", "BF16", "F16"})
_HAS_INT8_KERNELS = platform.machine().lower() in ("x86_64", "amd64")
_LLAMACPP_CELLS_STEP = 256  # llama.cpp rounds caches up to this
_LLAMACPP_BATCH_TOKENS = 128  # our prefill chunk, part of its sliding caches
_LLAMACPP_LEAST_DISCARD_TOKENS = 64


def layer_slots(config: ModelConfig, policy: CachePolicy, window: int, sinks: int, tokens: int) -> tuple[int, ...]:
    """Return the slots each layer has set aside after `tokens` tokens.

    A bounded layer has all of its slots from the start: S + W, but of a sliding layer no more than its trained window.
    A growing layer has one a token.

    Example: a sliding layer (512) and a full one, W = 1,024, S = 4, after 5,000 tokens: (512, 1028) under "ring",
    (512, 5000) under "as trained", (5000, 5000) under "full".
    """
    return tuple(_slots(layer.trained_window, policy, window, sinks, tokens)[0] for layer in config.layers)


def kv_bytes(
    config: ModelConfig,
    policy: CachePolicy,
    window: int,
    sinks: int,
    tokens: int,
    bytes_per_element: int,
    kv_type: KVType = "auto",
) -> int:
    """Return the bytes of keys and values set aside after `tokens` tokens, for one sequence.

    Args:
        bytes_per_element: of what is kept plain: everything, or with codes the sinks.
    """
    coded, plain = _token_bytes(config, bytes_per_element, kv_type), _token_bytes(config, bytes_per_element)
    each = (_slots(layer.trained_window, policy, window, sinks, tokens) for layer in config.layers)
    return sum(pinned * plain + (slots - pinned) * coded for slots, pinned in each)


def kv_held_bytes(
    config: ModelConfig,
    policy: CachePolicy,
    window: int,
    sinks: int,
    tokens: int,
    bytes_per_element: int,
    kv_type: KVType = "auto",
) -> int:
    """Return the bytes of the slots that hold a token: less than `kv_bytes` while the rings are filling."""
    coded, plain = _token_bytes(config, bytes_per_element, kv_type), _token_bytes(config, bytes_per_element)
    each = (_slots(layer.trained_window, policy, window, sinks, tokens) for layer in config.layers)
    held = ((min(slots, tokens), min(pinned, tokens)) for slots, pinned in each)
    return sum(pinned * plain + (slots - pinned) * coded for slots, pinned in held)


def kv_bytes_per_token(config: ModelConfig, bytes_per_element: int, kv_type: KVType = "auto") -> int:
    """Return what one token adds to a cache that keeps everything."""
    return len(config.layers) * _token_bytes(config, bytes_per_element, kv_type)


def kv_element_bytes(request: LoadRequest, on_gpu: bool, encodings: Collection[str] = ()) -> int:
    """Return the bytes of one key or value number kept plain: 16 bits in llama.cpp, elsewhere as the activations.

    Args:
        encodings: element types of the weights in the file; none given counts as a quantised file.
    """
    return 2 if request.backend == "llamacpp" else _held(request, on_gpu, encodings).activation_bytes


def held_weights_bytes(files: ModelFiles, request: LoadRequest, on_gpu: bool) -> int:
    """Return the bytes of the weights once loaded; norms and the scales of int8 rows, under two per cent, left out."""
    sizes = files.weights
    if request.backend == "llamacpp":
        return sizes.num_bytes
    held = _held(request, on_gpu, sizes.encodings)
    if not held.is_int8:
        return sizes.num_elements * held.activation_bytes
    return sizes.num_elements - sizes.lookup_elements  # an embedding that is not the head as well stays in the file


class _Held(NamedTuple):
    """How the ring backend holds a model: `models.precision` without torch, tested to agree with it."""

    activation_bytes: int
    is_int8: bool = False


def _held(request: LoadRequest, on_gpu: bool, encodings: Collection[str]) -> _Held:
    precision = request.precision
    if on_gpu:
        return _Held(4 if precision == "float32" else 2)
    if precision == "int8":
        return _Held(4, is_int8=True)
    if precision != "auto":
        return _Held(4 if precision == "float32" else 2)
    stored = set(encodings)
    if "MXFP4" in stored:
        return _Held(2)
    if not stored or stored - _PLAIN_ENCODINGS:
        return _Held(4, is_int8=True) if _HAS_INT8_KERNELS else _Held(2)
    return _Held(2 if stored & {"F16", "BF16"} else 4)


@dataclass(frozen=True)
class Estimate:
    """What the page says before a model is loaded. Bytes of one sequence.

    Attributes:
        weights_bytes: as held after loading.
        kv_bytes: keys and values under the chosen policy, once the window is full (of a growing policy, at
            `growing_context_tokens`); None where the architecture is unknown here.
        kv_full_bytes: number of tokens -> bytes of a cache that keeps everything.
        kv_policy_bytes: the same lengths -> bytes under the chosen policy.
        fits: whether weights and `kv_bytes` fit in the free memory; None where that is unknown.
        full_cache_outgrows_at_tokens: length at which weights and a cache that keeps everything would exceed the free
            memory; None where unknown or never.
        warnings: sentences, the most important first.
    """

    weights_bytes: int
    kv_bytes: int | None
    kv_full_bytes: Mapping[int, int]
    kv_policy_bytes: Mapping[int, int]
    fits: bool | None
    full_cache_outgrows_at_tokens: int | None
    warnings: tuple[str, ...]


def estimate(
    config: ModelConfig | None,
    weights_bytes: int,
    request: LoadRequest,
    *,
    has_chat_template: bool,
    free_bytes: int | None = None,
    on_gpu: bool = False,
    encodings: Collection[str] = (),
) -> Estimate:
    """Estimate memory and gather what the person should know first.

    Args:
        config: None for an architecture that only llama.cpp or transformers knows.
        weights_bytes: see `held_weights_bytes`.
        request: backend, policy, window and sinks; sinks of None count as 4, since the prompt is not known yet.
        free_bytes: of the memory the model would go to; None if unknown.
        on_gpu: whether it would run on a GPU.
        encodings: see `kv_element_bytes`.
    """
    element_bytes = kv_element_bytes(request, on_gpu, encodings)
    full_bytes: dict[int, int] = {}
    policy_bytes: dict[int, int] = {}
    settled_bytes = outgrows = None
    if config is not None:
        per_token = request_bytes_per_token(config, request, element_bytes)
        settled_bytes = policy_kv_bytes(config, request, request.growing_context_tokens, element_bytes)
        for tokens in COMPARED_TOKENS:
            full_bytes[tokens] = per_token * tokens
            policy_bytes[tokens] = policy_kv_bytes(config, request, tokens, element_bytes)
        if free_bytes is not None:
            outgrows = max(0, free_bytes - weights_bytes) // per_token + 1
    needed = weights_bytes + (settled_bytes or 0)
    fits = None if free_bytes is None else needed <= free_bytes
    sentences = warnings_for(config, request, needed, None if fits else free_bytes, has_chat_template)
    return Estimate(weights_bytes, settled_bytes, full_bytes, policy_bytes, fits, outgrows, sentences)


def policy_kv_bytes(config: ModelConfig, request: LoadRequest, tokens: int, element_bytes: int) -> int:
    """Return the bytes of keys and values a backend sets aside for `tokens` tokens under the request's policy."""
    if request.backend == "llamacpp":
        per_cell = request_bytes_per_token(config, request, element_bytes) // len(config.layers)
        return _llamacpp_cells(config, request, tokens) * per_cell
    sinks = resolved_sinks(request)
    return kv_bytes(config, request.policy, request.window, sinks, tokens, element_bytes, request.kv_type)


def request_bytes_per_token(config: ModelConfig, request: LoadRequest, element_bytes: int) -> int:
    """Return what one token adds to a cache that keeps everything in the request's backend, coded as it asks."""
    if request.backend == "llamacpp" and request.kv_type != "auto":
        elements = 2 * config.num_kv_heads * config.head_dim
        return len(config.layers) * (elements * _Q8_0_BYTES // _Q8_0_ELEMENTS)
    return kv_bytes_per_token(config, element_bytes, request.kv_type)


def resolved_sinks(request: LoadRequest) -> int:
    """Return S; the length of a pinned system prompt is not known before the chat, so it counts as 4."""
    return 4 if request.sinks is None else request.sinks


def _slots(trained_window: int | None, policy: CachePolicy, window: int, sinks: int, tokens: int) -> tuple[int, int]:
    """Return the slots of a layer after `tokens` tokens, and how many of them are sinks."""
    if policy is CachePolicy.FULL or (policy is CachePolicy.AS_TRAINED and trained_window is None):
        return tokens, 0
    if trained_window is not None and trained_window <= sinks + window:
        return trained_window, 0
    return sinks + window, sinks


def _token_bytes(config: ModelConfig, bytes_per_element: int, kv_type: KVType = "auto") -> int:
    """Bytes of one token's key and value in one layer."""
    if kv_type == "auto":
        return 2 * config.num_kv_heads * config.head_dim * bytes_per_element
    return 2 * config.num_kv_heads * (config.head_dim + _SCALE_BYTES)


def _llamacpp_cells(config: ModelConfig, request: LoadRequest, tokens: int) -> int:
    """Cells of all layers in llama.cpp (src/llama-kv-cache-iswa.cpp): its bounded context is a little over S + W."""
    slides = slides_in_llamacpp(config.architecture, len(config.layers))
    trained = config.trained_window or 0 if slides else 0
    smallest = resolved_sinks(request) + max(request.window, trained) + _LLAMACPP_LEAST_DISCARD_TOKENS
    context = _padded(smallest if request.policy is CachePolicy.RING else max(smallest, tokens))
    if not trained:
        return context * len(config.layers)
    bounded = context if request.policy is CachePolicy.FULL else min(context, _padded(trained + _LLAMACPP_BATCH_TOKENS))
    return context * config.num_full_layers + bounded * config.num_sliding_layers


def _padded(cells: int) -> int:
    return -(-cells // _LLAMACPP_CELLS_STEP) * _LLAMACPP_CELLS_STEP
