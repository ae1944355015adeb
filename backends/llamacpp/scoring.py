"""How well a model predicts given tokens, fed one by one through the same cells as generation."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from backends.contract import Cancelled
from backends.llamacpp.context import Context
from backends.llamacpp.sequence import TokenSequence


def token_losses(
    context: Context, sequence: TokenSequence, tokens: Sequence[int], cancelled: Cancelled
) -> Iterator[float]:
    """Yield the loss of each token but the first, in nats; the sequence is empty before and after."""
    sequence.clear()
    try:
        for token, following in itertools.pairwise(tokens):
            if cancelled():
                return
            sequence.feed((token,), want_logits=True)
            logits_V = context.logits().astype(np.float64)
            peak = logits_V.max()
            yield float(peak + np.log(np.exp(logits_V - peak).sum()) - logits_V[following])
    finally:
        sequence.clear()
