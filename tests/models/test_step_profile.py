"""Where a token's time goes: operators sorted into parts, and the rest of a step outside of them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from models.step_profile import PARTS, detokenising_s, part_of, seconds_by_part
from tests.backends.tiny_gguf import write_tiny_gguf


@pytest.mark.parametrize(
    ("operator", "part"),
    [
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention"),
        ("quantized::linear_with_input_q_dq_qweight_dq_output_fp32", "weights"),
        ("aten::mm", "weights"),
        ("aten::index_copy_", "copies"),
        ("aten::cat", "copies"),
        ("aten::topk", "sampling"),
        ("aten::cumsum", "sampling"),
        ("aten::rms_norm", "norms and other arithmetic"),
        ("aten::mul", "norms and other arithmetic"),
    ],
)
def test_operators_are_sorted_by_what_they_are_for(operator: str, part: str) -> None:
    assert part_of(operator) == part


def test_of_the_operators_the_heavy_one_leads() -> None:
    left, right = torch.randn(600, 600), torch.randn(600, 600)
    found = seconds_by_part(lambda: left @ right, num_steps=3)
    assert set(found) == set(PARTS)
    inside = {
        part: seconds for part, seconds in found.items() if part != "outside PyTorch"
    }  # that is the machine's mood
    assert max(inside, key=lambda part: inside[part]) == "weights"
    assert all(seconds >= 0 for seconds in found.values())


def test_time_that_no_operator_accounts_for_is_outside_pytorch() -> None:
    found = seconds_by_part(lambda: time.sleep(0.02), num_steps=2)
    assert found["outside PyTorch"] >= 0.019


def test_detokenising_takes_time_and_less_than_loading_the_tokenizer(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", sliding_window=32, sliding_pattern=2)
    started_s = time.perf_counter()
    token_s = detokenising_s(path, [5, 6, 7])
    assert 0 < token_s < (time.perf_counter() - started_s) / 100
