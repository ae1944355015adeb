"""How well a model predicts given tokens, fed through the same cache as generation.

Shape letters: T tokens of a call, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch.nn import functional

from backends.contract import Cancelled
from models.text_model import TextCache, TextModel

_MOST_CHUNK_TOKENS = 64  # twice as fast per token as 16
_MOST_LOGITS = 2**24  # the head runs for each of them: 64 MB in float32


def token_losses(model: TextModel, cache: TextCache, tokens: Sequence[int], cancelled: Cancelled) -> Iterator[float]:
    """Yield the loss of each token but the first, in nats; `cache` is empty at the start."""
    chunk_tokens = max(1, min(_MOST_CHUNK_TOKENS, _MOST_LOGITS // model.vocab_size))
    for start in range(0, len(tokens) - 1, chunk_tokens):
        if cancelled():
            return
        yield from _losses(model, cache, tokens[start : min(start + chunk_tokens, len(tokens) - 1) + 1])


@torch.inference_mode()
def _losses(model: TextModel, cache: TextCache, tokens: Sequence[int]) -> list[float]:
    """Feed all tokens but the last, which is only predicted."""
    ids_1T = torch.tensor([tokens], device=cache.device)
    logits_TV = model(ids_1T[:, :-1], cache, logits="all")[0].float()
    losses: list[float] = functional.cross_entropy(logits_TV, ids_1T[0, 1:], reduction="none").tolist()
    return losses
