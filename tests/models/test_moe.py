"""Experts: the way a graph can record equals the way that visits only the experts it needs."""

from __future__ import annotations

import pytest
import torch

from models.moe import MixtureOfExperts
from tests.models.tiny_models import tiny_model


@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe", "gpt_oss"])
@pytest.mark.parametrize("rows", [1, 5])
@torch.inference_mode()
def test_experts_the_device_looks_up_equal_those_the_host_visits(family: str, rows: int) -> None:
    moe = next(module for module in tiny_model(family).decoder.modules() if isinstance(module, MixtureOfExperts))
    hidden = torch.randn(rows, 32)
    weights, experts = moe._route(hidden)
    looked_up, visited = (way(hidden, weights, experts) for way in (moe._pair_by_pair, moe._expert_by_expert))
    assert torch.allclose(looked_up, visited, atol=1e-4)
    assert visited.abs().max() > 0.1
