"""When not to use a ring, in sentences that name the numbers they rest on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from app.proof.quantities import bytes_text
from backends.requests import CachePolicy, LoadRequest
from models.backend_support import window_in_force
from models.config import ModelConfig
from models.sizing import policy_kv_bytes, request_bytes_per_token

_SMALL_SHARE = 0.1  # of the weights: a cache below it is not worth bounding


def advice(
    config: ModelConfig,
    request: LoadRequest,
    weights_bytes: int,
    element_bytes: int,
    expected_tokens: int | None,
    text_of: Callable[[float], str] = bytes_text,
) -> tuple[str, ...]:
    """Say when a ring is the wrong choice, with the numbers it rests on, bytes written by `text_of`."""
    per_token = request_bytes_per_token(config, request, element_bytes)
    ring = replace(request, policy=CachePolicy.RING)
    ring_bytes = policy_kv_bytes(config, ring, request.window, element_bytes)
    window = window_in_force(config, ring)
    even = -(-ring_bytes // per_token)
    sentences = []
    if expected_tokens is not None and expected_tokens <= even:
        sentences.append(
            f"No ring is needed for {expected_tokens:,} tokens: a cache that keeps everything takes "
            f"{text_of(expected_tokens * per_token)}, the ring at W = {window:,} "
            f"{text_of(ring_bytes)}; they are even at {even:,} tokens."
        )
    elif expected_tokens is not None and expected_tokens * per_token < _SMALL_SHARE * weights_bytes:
        sentences.append(
            f"For {expected_tokens:,} tokens the ring saves {text_of(expected_tokens * per_token - ring_bytes)}, "
            f"little beside weights of {text_of(weights_bytes)}; keeping everything forgets nothing."
        )
    else:
        sentences.append(
            f"Short answers need no ring: up to {even:,} tokens a cache that keeps everything is no larger than the "
            f"{text_of(ring_bytes)} of the ring at W = {window:,}."
        )
    sentences.append(_forgets(config, window, per_token, text_of))
    return tuple(sentences)


def _forgets(config: ModelConfig, window: int, per_token: int, text_of: Callable[[float], str]) -> str:
    """Say what cannot be quoted any more, and what keeping it would cost."""
    per_layer = per_token // len(config.layers)
    if config.num_full_layers == 0:
        return (
            f"All {len(config.layers)} layers slide: no cache lets the model look back further than "
            f"{config.trained_window:,} tokens in one layer, so keeping more gains nothing."
        )
    several = config.num_full_layers > 1
    forgetful = f"{config.num_full_layers} full-attention layers forget" if several else "full-attention layer forgets"
    growth = config.num_full_layers * per_layer
    policy = "'as trained'" if config.num_sliding_layers else "'full'"
    return (
        f"A task that must quote what lies more than {window:,} tokens back cannot use the ring: its "
        f"{forgetful} it. The policy {policy} keeps it, at "
        f"{text_of(growth)} a token."
    )
