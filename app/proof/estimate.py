"""What a model will take before it is loaded: weights, keys and values by layer kind, and when a full cache ends.

The arithmetic of weights and caches is `models.sizing`'s; this adds the table of windows, what the process needs
besides, and advice that names the numbers it rests on.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from app.proof.advice import advice
from app.proof.report import PALETTE, Figure, axes, line
from backends.requests import CachePolicy, LoadRequest
from models.backend_support import window_in_force
from models.config import ModelConfig
from models.model_files import ModelFiles
from models.sizing import (
    estimate,
    held_weights_bytes,
    kv_element_bytes,
    policy_kv_bytes,
    request_bytes_per_token,
    resolved_sinks,
)

_CHUNK_TOKENS = 128
_HELD_BESIDES = {"ring": (55 * 2**20, 455), "llamacpp": (23 * 2**20, 122), "echo": (2**20, 0)}


@dataclass(frozen=True)
class LayerKind:
    """Layers of one kind and what they keep.

    Attributes:
        window: trained; None for full attention.
        bytes_per_token: of one token's keys and values over all these layers.
    """

    name: str
    num_layers: int
    window: int | None
    bytes_per_token: int


@dataclass(frozen=True)
class WindowRow:
    """One window under the ring policy.

    Attributes:
        kv_bytes: keys and values once full; they stay there.
        total_bytes: with weights, buffers and runtime.
        fits: in the free memory; None where that is unknown.
        even_at_tokens: length at which a cache that keeps everything is as large: the ring saves nothing before.
        in_force: W as the backend would run it.
    """

    window: int
    kv_bytes: int
    total_bytes: int
    fits: bool | None
    even_at_tokens: int
    in_force: int


@dataclass(frozen=True)
class Outlook:
    """Everything said before loading.

    Attributes:
        element_bytes: of one key or value number kept plain.
        buffers_bytes: tokenizer, scratch space of a step, and a saved turn where the backend keeps one.
        runtime_bytes: the process without a model; None where not measured.
        full_ends_at_tokens: length at which a cache that keeps everything exceeds the free memory.
        sentences: warnings and advice, the most important first.
    """

    model: str
    request: LoadRequest
    weights_bytes: int
    element_bytes: int
    kinds: tuple[LayerKind, ...]
    kv_bytes: int
    buffers_bytes: int
    runtime_bytes: int | None
    free_bytes: int | None
    rows: tuple[WindowRow, ...]
    full_ends_at_tokens: int | None
    sentences: tuple[str, ...]

    @property
    def total_bytes(self) -> int:
        """Of the whole worker process."""
        return self.weights_bytes + self.kv_bytes + self.buffers_bytes + (self.runtime_bytes or 0)


@dataclass(frozen=True)
class Surroundings:
    """What the machine has and what the person expects; None where unknown.

    Attributes:
        runtime_bytes: see `app.proof.machine.runtime_bytes`.
        expected_tokens: length of prompt and reply together.
    """

    free_bytes: int | None = None
    on_gpu: bool = False
    runtime_bytes: int | None = None
    expected_tokens: int | None = None
    has_chat_template: bool = True


def outlook(files: ModelFiles, request: LoadRequest, around: Surroundings, windows: Sequence[int] = ()) -> Outlook:
    """Estimate a model under a load request.

    Raises:
        UnsupportedModelError: the architecture is one whose layers are not known here.
    """
    config = files.config()
    weights = held_weights_bytes(files, request, around.on_gpu)
    encodings = files.weights.encodings
    element = kv_element_bytes(request, around.on_gpu, encodings)
    buffers = buffers_bytes(config, request) + _saved_turn_bytes(config, request, element)
    fixed = weights + buffers + (around.runtime_bytes or 0)
    known = estimate(
        config,
        fixed,
        request,
        has_chat_template=around.has_chat_template,
        free_bytes=around.free_bytes,
        on_gpu=around.on_gpu,
        encodings=encodings,
    )
    rows = [
        _row(config, replace(request, policy=CachePolicy.RING, window=window), element, fixed, around.free_bytes)
        for window in windows or default_windows(config, request.window)
    ]
    sentences = (*known.warnings, *advice(config, request, weights, element, around.expected_tokens))
    return Outlook(
        model=files.name,
        request=request,
        weights_bytes=weights,
        element_bytes=element,
        kinds=layer_kinds(config, request_bytes_per_token(config, request, element)),
        kv_bytes=known.kv_bytes or 0,
        buffers_bytes=buffers,
        runtime_bytes=around.runtime_bytes,
        free_bytes=around.free_bytes,
        rows=tuple(rows),
        full_ends_at_tokens=known.full_cache_outgrows_at_tokens,
        sentences=sentences,
    )


def buffers_bytes(config: ModelConfig, request: LoadRequest) -> int:
    """Return what a worker holds besides weights, cache and libraries: tokenizer, scratch space, a saved turn.

    The fixed part and the part by vocabulary were measured on the two demo models (Linux, the versions of
    constraints.txt): their tokenizers differ by a factor of five.
    """
    fixed_bytes, bytes_per_vocabulary_entry = _HELD_BESIDES[request.backend]
    widths = 4 * config.hidden_size + 3 * config.mlp_size + 3 * config.num_heads * config.head_dim
    scratch_bytes = 4 * (_CHUNK_TOKENS * widths + 2 * config.vocab_size)
    return fixed_bytes + bytes_per_vocabulary_entry * config.vocab_size + scratch_bytes


def _saved_turn_bytes(config: ModelConfig, request: LoadRequest, element: int) -> int:
    """The ring backend copies a bounded cache at the end of the prompt, so that a reply can be written anew."""
    if request.backend != "ring" or request.policy is CachePolicy.FULL:
        return 0
    return policy_kv_bytes(config, request, request.window, element)


def layer_kinds(config: ModelConfig, bytes_per_token: int) -> tuple[LayerKind, ...]:
    """Return the kinds of layers, sliding ones first, with what a token takes in each of all its bytes."""
    per_layer = bytes_per_token // len(config.layers)
    windows = sorted({layer.trained_window for layer in config.layers}, key=lambda window: window or 1 << 62)
    kinds = []
    for window in windows:
        count = sum(layer.trained_window == window for layer in config.layers)
        name = "full attention" if window is None else f"sliding, window {window:,}"
        kinds.append(LayerKind(name, count, window, count * per_layer))
    return tuple(kinds)


def default_windows(config: ModelConfig, chosen: int) -> list[int]:
    """Return doubling windows around the trained one, with it and the chosen one among them."""
    longest = min(config.context_tokens or 32_768, 32_768)
    doubling = [128 << power for power in range(12) if 128 << power <= longest]
    return sorted({*doubling, chosen, *([config.trained_window] if config.trained_window else [])})


def kv_curve(
    config: ModelConfig,
    request: LoadRequest,
    tokens: Sequence[int],
    on_gpu: bool = False,
    encodings: Collection[str] = (),
) -> list[int]:
    """Return the bytes of keys and values at each length under the request's policy, set aside for that length."""
    element = kv_element_bytes(request, on_gpu, encodings)
    request = replace(request, growing_context_tokens=0)
    return [policy_kv_bytes(config, request, length, element) for length in tokens]


def figure(
    config: ModelConfig,
    request: LoadRequest,
    longest: int = 100_000,
    on_gpu: bool = False,
    encodings: Collection[str] = (),
) -> Figure:
    """Return bytes over tokens under the three policies at the request's window."""
    tokens = sorted({round(longest * step / 100) for step in range(1, 101)} | {request.window})
    traces = []
    for policy, colour, dash in zip(
        CachePolicy, (PALETTE[2], PALETTE[0], PALETTE[3]), ("solid", "dot", "dash"), strict=True
    ):
        bytes_held = kv_curve(config, replace(request, policy=policy), tokens, on_gpu, encodings)
        traces.append(line(policy.value, tokens, bytes_held, colour, dash))
    caption = f"Window {request.window:,}, sinks {resolved_sinks(request)}."
    return Figure("Keys and values by length of the text", traces, axes("tokens", "bytes", log_y=True), caption)


def _row(config: ModelConfig, request: LoadRequest, element: int, fixed: int, free: int | None) -> WindowRow:
    kv = policy_kv_bytes(config, request, request.window, element)
    even = -(-kv // request_bytes_per_token(config, request, element))
    in_force = window_in_force(config, request)
    return WindowRow(request.window, kv, fixed + kv, None if free is None else fixed + kv <= free, even, in_force)
