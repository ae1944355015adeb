"""Attention over scores: one formula behind the fused and the explicit way, whatever the model adds to it."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from models.attention import Scores
from models.cache_plan import LayerLimits, is_visible, plan_chunk, plan_decode

HEADS, GROUP, TOKENS, KEYS, HEAD_DIM = 2, 3, 5, 11, 8


def random_parts() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Packed queries, keys, values and a mask that leaves every query something to see."""
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(2, HEADS, GROUP * TOKENS, HEAD_DIM, generator=generator)
    keys, values = torch.randn(2, 2, HEADS, KEYS, HEAD_DIM, generator=generator)
    mask = torch.rand(2, 1, GROUP * TOKENS, KEYS, generator=generator) > 0.5
    mask[..., 0] = True
    return queries, keys, values, mask


@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("has_sinks", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_weights_are_a_softmax_over_capped_scores_and_the_learned_sink(
    softcap: float | None, has_sinks: bool, masked: bool
) -> None:
    queries, keys, values, mask = random_parts()
    sinks = torch.randn(HEADS * GROUP) if has_sinks else None
    actual = Scores(0.3, softcap).attend(queries, keys, values, mask if masked else None, sinks)
    for row, head, packed in itertools.product(range(2), range(HEADS), range(GROUP * TOKENS)):
        scores = 0.3 * keys[row, head] @ queries[row, head, packed]
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        weights = scores.exp() * (mask[row, 0, packed] if masked else 1.0)
        extra = sinks[head * GROUP + packed // TOKENS].exp() if sinks is not None else 0.0
        expected = weights @ values[row, head] / (weights.sum() + extra)
        assert torch.allclose(actual[row, head, packed], expected, atol=1e-5)


@pytest.mark.parametrize("scores", [Scores(0.3, None), Scores(0.3, 2.0)], ids=["fused", "explicit"])
def test_a_masked_key_gives_nothing_even_if_it_is_infinite(scores: Scores) -> None:
    queries, keys, values, mask = random_parts()
    expected = scores.attend(queries, keys, values, mask, None)
    hidden = (~mask).all(dim=2).expand(-1, HEADS, -1)
    mask = mask & ~hidden[:, :1].unsqueeze(2)
    keys[hidden] = 1e30
    assert torch.equal(scores.attend(queries, keys, values, mask, None), expected)


@pytest.mark.parametrize(
    "limits", [LayerLimits(4), LayerLimits(4, 2), LayerLimits(4, grows=True), LayerLimits(None, grows=True)]
)
def test_no_query_is_ever_left_without_a_key(limits: LayerLimits) -> None:
    for length, num_tokens in itertools.product([0, 1, 3, 4, 5, 6, 7, 20], [2, 3, 4, 5, 9]):
        plan = plan_chunk(limits, [length, 2 * length], num_tokens, GROUP, torch.device("cpu"))
        assert plan.mask_B1MK.any(dim=-1).all()
        decode = plan_decode(limits, [length, 2 * length], torch.tensor([length, 2 * length]), 64, static=True)
        assert decode.mask_B11K is None or decode.mask_B11K.any(dim=-1).all()
    indices = torch.arange(30).unsqueeze(0)
    assert is_visible(indices, indices, limits)[0].diagonal().all()
