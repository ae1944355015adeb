"""What the doctor asks of a model that runs through transformers; see `models.outside_checks`.

Models of our own decoder are looked into instead: `models.doctor_checks`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

import numpy as np
import torch

from backends.requests import LoadRequest
from backends.ring.generation import RingBackend
from backends.ring.loading import load
from backends.ring.sequence import CachedText
from models.findings import Finding
from models.outside_checks import Logits, examine_outside
from models.stock_model import StockCache, StockModel

_TOLERANCE_NATS = {torch.float32: 1e-4}
_TOLERANCE_IN_16_BITS = 0.05


class Outside:
    """See `models.outside_checks.Probed`."""

    def __init__(self, model: StockModel, text: CachedText, backend: RingBackend) -> None:
        assert isinstance(text.cache, StockCache)
        self._model, self._text, self._cache = model, text, text.cache
        keys_values = self._cache.keys_values
        windows = [ring.window for ring in keys_values.rings]
        self.is_bounded = bool(windows) and not keys_values.growing
        self.window_tokens = self.capacity_tokens = max(windows, default=backend.info.window)
        self.reach_tokens = sum(window - 1 for window in windows) + 1 if self.is_bounded else None
        self.bytes_per_token = backend.info.kv_bytes_per_token_full
        self.tolerance_nats = _TOLERANCE_NATS.get(model.dtype, _TOLERANCE_IN_16_BITS)

    def start(self) -> None:
        self._text.start_over(0)

    def feed(self, tokens: Sequence[int]) -> Logits:
        logits = self._model(self._ids(tokens), self._cache)
        self._text.note_fed(tokens)
        return _plain(logits)

    def take_up(self, tokens: Sequence[int]) -> tuple[int, Logits]:
        num_reused = self._text.take_up(tokens)
        return num_reused, self.feed(tokens[num_reused:])

    def kept(self) -> Sequence[int] | None:
        return None

    def uncached(self, tokens: Sequence[int]) -> Logits | None:
        return _plain(self._model.uncached(self._ids(tokens)))

    def sizes(self) -> tuple[int, int]:
        return self._cache.held_nbytes, self._cache.nbytes

    def _ids(self, tokens: Sequence[int]) -> torch.Tensor:
        return torch.tensor([list(tokens)], device=self._cache.device)


def examine(request: LoadRequest, text: str) -> Iterator[Finding]:
    """Load the model and probe it; runs in a process of its own."""
    with closing(load(request, lambda progress: None)) as backend:
        model, cached_text, prompts = backend.parts
        if isinstance(model, StockModel):
            yield from examine_outside(Outside(model, cached_text, backend), prompts.plain_ids(text))


def _plain(logits_1TV: torch.Tensor) -> Logits:
    found: Logits = logits_1TV[0, -1].double().cpu().numpy()
    return found.astype(np.float64)
