"""What the doctor asks of llama.cpp: a sequence to be fed, taken up and weighed; see `models.outside_checks`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from backends.llamacpp.context import BATCH_TOKENS
from backends.llamacpp.generation import LlamaCppBackend
from backends.llamacpp.loading import load
from backends.requests import CachePolicy, LoadRequest
from models.findings import Finding
from models.outside_checks import Logits, examine_outside

_TOLERANCE_NATS = 0.05
"""Between batches of one and of many, which run other kernels: up to 0.008 measured on Gemma, 60 to 300 tokens."""


class Outside:
    """See `models.outside_checks.Probed`."""

    tolerance_nats = _TOLERANCE_NATS

    def __init__(self, backend: LlamaCppBackend) -> None:
        self._parts = backend.parts
        info, context = backend.info, self._parts.context
        bounds_full_layers = info.policy is CachePolicy.RING
        slides = info.policy is not CachePolicy.FULL and context.num_sliding_layers > 0
        self.window_tokens = info.window
        self.capacity_tokens = context.num_cells if info.policy is CachePolicy.RING or not slides else info.window
        self.is_bounded = bounds_full_layers or (slides and not context.has_full_layers)
        self._moves = bounds_full_layers and context.has_full_layers
        window, num_layers = self._parts.model.sliding_window, context.num_layers
        self.reach_tokens = num_layers * (window - 1) + 1 if slides and not context.has_full_layers else None
        self.bytes_per_token = context.bytes_per_token

    def start(self) -> None:
        self._parts.sequence.clear()

    def feed(self, tokens: Sequence[int]) -> Logits:
        sequence, rest = self._parts.sequence, list(tokens)
        while rest:
            sequence.make_room()
            batch = rest[: min(BATCH_TOKENS, sequence.room)]
            rest = rest[len(batch) :]
            sequence.feed(batch, want_logits=not rest)
        return self._parts.context.logits().astype(np.float64)

    def take_up(self, tokens: Sequence[int]) -> tuple[int, Logits]:
        num_reused = self._parts.sequence.take_up(tokens)
        return num_reused, self.feed(tokens[num_reused:])

    def kept(self) -> Sequence[int] | None:
        sequence = self._parts.sequence
        if not self._moves:
            return None
        fed, num_recent = list(sequence.fed), sequence.num_cells - sequence.sinks
        return fed if sequence.num_cells == len(fed) else [*fed[: sequence.sinks], *fed[len(fed) - num_recent :]]

    def uncached(self, tokens: Sequence[int]) -> Logits | None:
        return None

    def sizes(self) -> tuple[int, int]:
        return self._parts.context.held_bytes(), self._parts.context.allocated_bytes


def examine(request: LoadRequest, text: str) -> Iterator[Finding]:
    """Load the model and probe it; runs in a process of its own."""
    backend = load(request, lambda progress: None)
    try:
        yield from examine_outside(Outside(backend), backend.parts.prompts.plain_ids(text))
    finally:
        backend.close()
