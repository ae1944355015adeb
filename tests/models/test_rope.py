"""Rotary embedding: frequencies as transformers computes them, phases that hold at any position."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from models.config import RopeConfig, RotaryLayout
from models.rope import Rotary, attention_factor, frequencies

HEAD_DIM = 16
FAR_POSITIONS = [0, 1, 257, 4_095, 4_096, 100_000, 1_000_000, 20_000_000]
SHORT, LONG = tuple(1.0 + i / 8 for i in range(8)), tuple(2.0 + i for i in range(8))
KINDS: dict[str, tuple[RopeConfig, dict[str, Any]]] = {
    "linear": (RopeConfig(10_000.0, "linear", 16, factor=8.0), {"factor": 8.0}),
    "dynamic": (
        RopeConfig(10_000.0, "dynamic", 16, factor=4.0, original_context_tokens=512),
        {"factor": 4.0},
    ),
    "llama3": (
        RopeConfig(500_000.0, "llama3", 16, factor=8.0, original_context_tokens=64, high_freq_factor=4.0),
        {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
    ),
    "yarn": (
        RopeConfig(10_000.0, "yarn", 16, factor=4.0, original_context_tokens=64),
        {"factor": 4.0, "original_max_position_embeddings": 64},
    ),
    "yarn, not truncated": (
        RopeConfig(150_000.0, "yarn", 16, factor=32.0, original_context_tokens=4096, truncate=False),
        {"factor": 32.0, "original_max_position_embeddings": 4096, "truncate": False},
    ),
    "yarn with mscale": (
        RopeConfig(10_000.0, "yarn", 16, factor=4.0, original_context_tokens=64, mscale=0.7, mscale_all_dim=0.9),
        {"factor": 4.0, "original_max_position_embeddings": 64, "mscale": 0.7, "mscale_all_dim": 0.9},
    ),
    "yarn with its factor given": (
        RopeConfig(10_000.0, "yarn", 16, factor=4.0, original_context_tokens=64, attention_factor=0.5),
        {"factor": 4.0, "original_max_position_embeddings": 64, "attention_factor": 0.5},
    ),
    "longrope": (
        RopeConfig(
            10_000.0,
            "longrope",
            16,
            factor=8.0,
            original_context_tokens=64,
            short_factors=SHORT,
            long_factors=LONG,
        ),
        {
            "factor": 8.0,
            "original_max_position_embeddings": 64,
            "short_factor": list(SHORT),
            "long_factor": list(LONG),
        },
    ),
}


def stock_frequencies(rope: RopeConfig, parameters: dict[str, Any], length: int) -> tuple[torch.Tensor, float]:
    config = LlamaConfig(
        hidden_size=64,
        num_attention_heads=4,
        head_dim=HEAD_DIM,
        max_position_embeddings=512,
        rope_parameters={"rope_type": rope.kind, "rope_theta": rope.theta, **parameters},
    )
    values, factor = ROPE_INIT_FUNCTIONS[rope.kind](config, torch.device("cpu"), seq_len=length)
    return values.double(), float(factor)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("length", [1, 64, 65, 512, 513, 5000])
def test_frequencies_and_factor_are_those_of_transformers(name: str, length: int) -> None:
    rope, parameters = KINDS[name]
    expected, factor = stock_frequencies(rope, parameters, length)
    assert torch.allclose(frequencies(rope, length), expected, rtol=1e-5, atol=0)
    assert attention_factor(rope) == pytest.approx(factor)


def test_longrope_takes_the_long_list_from_one_token_past_the_trained_length() -> None:
    rope, _ = KINDS["longrope"]
    assert torch.equal(frequencies(rope, 64), frequencies(rope, 0))
    assert torch.equal(frequencies(rope, 65), frequencies(rope, 10_000))
    assert not torch.equal(frequencies(rope, 64), frequencies(rope, 65))


def test_a_ggufs_divisors_divide_the_frequencies() -> None:
    divisors = tuple(float(i) for i in range(1, 9))
    plain, divided = RopeConfig(10_000.0, dims=16), RopeConfig(10_000.0, dims=16, frequency_divisors=divisors)
    assert torch.allclose(frequencies(divided) * torch.tensor(divisors).double(), frequencies(plain))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("theta", [10_000.0, 1_000_000.0])
def test_phases_hold_at_any_position(dtype: torch.dtype, theta: float) -> None:
    rotation = Rotary(RopeConfig(theta, dims=256)).at(torch.tensor([FAR_POSITIONS]), dtype)
    step = torch.finfo(dtype).eps
    for row, position in enumerate(FAR_POSITIONS):
        for pair in (0, 1, 17, 127):
            angle = position * theta ** (-2 * pair / 256)
            for dim, sign in ((pair, -1.0), (pair + 128, 1.0)):
                assert float(rotation.cosine[0, 0, row, dim]) == pytest.approx(math.cos(angle), abs=step)
                assert float(rotation.sine[0, 0, row, dim]) == pytest.approx(sign * math.sin(angle), abs=step)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_neighbouring_positions_never_collide(dtype: torch.dtype) -> None:
    rotary = Rotary(RopeConfig(10_000.0, dims=HEAD_DIM))
    for position in FAR_POSITIONS:
        here, there = (rotary.at(torch.tensor([[p]]), dtype) for p in (position, position + 1))
        assert not torch.equal(here.cosine, there.cosine)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_only_distances_matter_even_twenty_million_tokens_in(layout: RotaryLayout) -> None:
    rotary = Rotary(RopeConfig(10_000.0, dims=HEAD_DIM, layout=layout))
    query, key = torch.randn(2, 1, 1, 1, HEAD_DIM, dtype=torch.float64)

    def score(position: int) -> float:
        queries = rotary.at(torch.tensor([[position]]), torch.float64)(query)
        keys = rotary.at(torch.tensor([[position - 300]]), torch.float64)(key)
        return float((queries * keys).sum())

    for position in FAR_POSITIONS[4:]:
        assert score(position) == pytest.approx(score(300), abs=1e-6)


def test_partial_rotary_turns_the_leading_dimensions_among_themselves() -> None:
    rotation = Rotary(RopeConfig(10_000.0, dims=12)).at(torch.tensor([[5]]), torch.float32)
    for dim in range(HEAD_DIM):
        head = torch.zeros(1, 1, 1, HEAD_DIM)
        head[..., dim] = 1.0
        moved = set(rotation(head).flatten().nonzero().flatten().tolist())
        assert moved == ({dim % 6, dim % 6 + 6} if dim < 12 else {dim})
        assert rotation(head).norm() == pytest.approx(1.0)


def test_interleaved_rotary_turns_neighbours() -> None:
    rope = RopeConfig(10_000.0, dims=HEAD_DIM, layout="interleaved")
    head = torch.randn(1, 1, 1, HEAD_DIM)
    turned = Rotary(rope).at(torch.tensor([[7]]), torch.float32)(head)
    numbers = torch.view_as_complex(head.reshape(-1, 2))
    expected = numbers * torch.polar(torch.ones(8), (7 * frequencies(rope)).float())
    assert torch.allclose(torch.view_as_complex(turned.reshape(-1, 2)), expected, atol=1e-6)
