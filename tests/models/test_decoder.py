"""The decoder against transformers on tiny random models: any chunking, any family, past several wraps of the ring."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from backends.requests import CachePolicy
from models.ring_cache import KVCache
from tests.models.reference_attention import reference_logits
from tests.models.tiny_models import FAMILIES, WINDOW, TinyModel, pieces, random_ids, tiny_model

NUM_TOKENS = 40
PARTITIONS = {
    "one piece": [40],
    "single steps": [1] * 40,
    "chunks of W - 1": [7] * 5 + [5],
    "chunks of W": [8] * 5,
    "chunks of W + 1": [9, 9, 9, 9, 4],
    "chunks of 2 W": [16, 16, 8],
    "halves": [20, 20],
    "prefill then steps": [20] + [1] * 20,
    "uneven": [5, 11, 24],
}


def new_cache(tiny: TinyModel, policy: CachePolicy = CachePolicy.AS_TRAINED, **arguments: Any) -> KVCache:
    """A cache whose empty slots hold NaN, so that reading one shows."""
    dtype = tiny.decoder.norm.weight.dtype
    return KVCache(
        tiny.config, policy, **{"window": WINDOW, "sinks": 0, "dtype": dtype, "fill": torch.nan, **arguments}
    )


@torch.inference_mode()
def logits(tiny: TinyModel, ids_BT: Tensor, chunks: list[int], cache: KVCache) -> Tensor:
    return torch.cat([tiny.decoder(piece, cache, logits="all") for piece in pieces(ids_BT, chunks)], dim=1)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("policy", [CachePolicy.AS_TRAINED, CachePolicy.FULL])
def test_any_chunking_gives_the_logits_of_transformers_without_a_cache(family: str, policy: CachePolicy) -> None:
    tiny, ids = tiny_model(family), random_ids(NUM_TOKENS)
    expected = tiny.expected(ids)
    for name, chunks in PARTITIONS.items():
        actual = logits(tiny, ids, chunks, new_cache(tiny, policy))
        difference = (actual - expected).abs().max()
        assert difference < 1e-4, f"{name}: {difference}"
        assert torch.equal(actual.argmax(-1), expected.argmax(-1)), name


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("sinks", [0, 3])
def test_bounded_full_layers_attend_to_sinks_and_window_at_in_cache_positions(family: str, sinks: int) -> None:
    tiny, ids = tiny_model(family).in_float64(), random_ids(NUM_TOKENS)
    expected = reference_logits(tiny.decoder, ids, new_cache(tiny, CachePolicy.RING, sinks=sinks))
    for name, chunks in PARTITIONS.items():
        actual = logits(tiny, ids, chunks, new_cache(tiny, CachePolicy.RING, sinks=sinks))
        difference = (actual - expected).abs().max()
        assert difference < 1e-9, f"{name}: {difference}"
