"""Experts: the way a graph can record equals the way that visits only the experts it needs."""

from __future__ import annotations

import pytest
import torch

from models.moe import MixtureOfExperts
from tests.models.tiny_models import tiny_model


@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe", "gpt_oss"])
@pytest.mark.parametrize("rows", [1, 5])
@torch.inference_mode()
def test_gathered_experts_equal_experts_visited_one_by_one(family: str, rows: int) -> None:
    moe = next(module for module in tiny_model(family).decoder.modules() if isinstance(module, MixtureOfExperts))
    hidden = torch.randn(rows, 32)
    weights, experts = moe._route(hidden)
    gathered, visited = moe._gathered(hidden, weights, experts), moe._one_by_one(hidden, weights, experts)
    assert torch.allclose(gathered, visited, atol=1e-4)
    assert visited.abs().max() > 0.1
