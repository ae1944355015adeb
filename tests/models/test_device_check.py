"""The check made for a GPU, run here on the CPU: the same functions, tiny shapes."""

from __future__ import annotations

import torch

from models.device_check import check_exactness, time_decode, tiny_config


def test_a_device_that_computes_as_the_cpu_does_passes() -> None:
    result = check_exactness(torch.device("cpu"), num_windows=4)
    assert result.prefill_error < 1e-4
    assert result.decode_error < 1e-4
    assert result.num_equal_draws == result.num_draws == 128


def test_every_policy_is_timed_at_every_depth_with_bytes_to_the_formula() -> None:
    timings = list(time_decode(tiny_config(), torch.device("cpu"), torch.bfloat16, 8, (1, 4), num_steps=5))
    assert [(timing.policy, timing.depth_windows) for timing in timings] == [
        (policy, depth) for policy in ("ring", "as trained", "full") for depth in (1, 4)
    ]
    for timing in timings:
        assert timing.kv_bytes == timing.kv_bytes_formula
    ring = [timing.kv_bytes for timing in timings if timing.policy == "ring"]
    full = [timing.kv_bytes for timing in timings if timing.policy == "full"]
    assert ring[0] == ring[1]
    assert full[0] < full[1]
