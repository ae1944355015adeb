"""The minimal experiment: four caches, one answer, and what each is said to cost is what it costs."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from models import cache_experiment
from models.cache_experiment import BYTES_PER_TOKEN, CACHES, Cache
from models.step_cost import STRATEGIES, Strategy

WINDOW, CAPACITY = 8, 200


@pytest.fixture
def caches() -> dict[Strategy, Cache]:
    return {strategy: make(WINDOW, CAPACITY) for strategy, make in CACHES.items()}


def tokens(num_tokens: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    return cache_experiment.random_tokens(num_tokens, torch.Generator().manual_seed(seed))


def last_w_attention(query_H1D: Tensor, keys_HTD: Tensor, values_HTD: Tensor) -> Tensor:
    """Softmax written out over the last W of everything ever fed."""
    keys, values = keys_HTD[:, -WINDOW:], values_HTD[:, -WINDOW:]
    weights = (query_H1D @ keys.transpose(1, 2) / keys.shape[-1] ** 0.5).softmax(-1)
    output: Tensor = weights @ values
    return output


@pytest.mark.parametrize("chunks", [[1] * 30, [3] * 10, [8, 1, 9, 12], [5, 1, 1, 23], [30]])
def test_every_strategy_gives_attention_over_exactly_the_last_window(
    caches: dict[Strategy, Cache], chunks: list[int]
) -> None:
    keys, values = tokens(sum(chunks))
    fed = 0
    for size in chunks:
        for cache in caches.values():
            cache.append(keys[:, fed : fed + size], values[:, fed : fed + size])
        fed += size
        query = keys[:, fed - 1 : fed]
        expected = last_w_attention(query, keys[:, :fed], values[:, :fed])
        for strategy, cache in caches.items():
            assert torch.allclose(cache_experiment.attend(query, cache), expected, atol=1e-6), (strategy, fed)


def test_bounded_strategies_hold_window_bytes_and_the_growing_one_holds_every_token(
    caches: dict[Strategy, Cache],
) -> None:
    for cache in caches.values():
        cache.append(*tokens(40))
        cache.append(*tokens(1))
    held = {strategy: cache.nbytes // BYTES_PER_TOKEN for strategy, cache in caches.items()}
    assert held == {"concatenate": 41, "shift": WINDOW, "ring": WINDOW, "preallocate": CAPACITY}


def test_only_the_ring_and_the_preallocated_cache_add_a_token_without_allocating(caches: dict[Strategy, Cache]) -> None:
    for cache in caches.values():
        cache.append(*tokens(40))
    allocated = {strategy: cache_experiment.allocated_bytes(cache, *tokens(1)) for strategy, cache in caches.items()}
    assert allocated["ring"] == allocated["preallocate"] == 0
    assert allocated["concatenate"] >= 41 * BYTES_PER_TOKEN
    assert allocated["shift"] >= WINDOW * BYTES_PER_TOKEN


def test_the_ring_never_moves_its_storage(caches: dict[Strategy, Cache]) -> None:
    ring = caches["ring"]
    ring.append(*tokens(1))
    before = ring.view()[0].data_ptr()
    for step in range(3 * WINDOW):
        ring.append(*tokens(1, seed=step))
    assert ring.view()[0].data_ptr() == before


def test_the_preallocated_cache_says_where_it_ends(caches: dict[Strategy, Cache]) -> None:
    caches["preallocate"].append(*tokens(CAPACITY))
    with pytest.raises(ValueError, match=f"beyond the {CAPACITY} reserved places"):
        caches["preallocate"].append(*tokens(1))


def test_a_run_measures_every_strategy_before_at_and_after_a_full_window() -> None:
    costs = list(cache_experiment.run(windows=(128, 256), longest=1024))
    for window in (128, 256):
        points = [(cost.strategy, cost.tokens) for cost in costs if cost.window == window]
        assert points == [(s, n) for n in cache_experiment.depths(window, 1024) for s in STRATEGIES]
        ring = {cost.held_bytes for cost in costs if cost.window == window and cost.strategy == "ring"}
        assert ring == {window * BYTES_PER_TOKEN}
    assert all(cost.append_s > 0 and cost.attend_s > 0 and cost.low_s <= cost.high_s for cost in costs)


@pytest.mark.parametrize("window", [0, 1025])
def test_a_window_out_of_range_is_refused_with_the_range(window: int) -> None:
    with pytest.raises(ValueError, match="outside 1 to 1024"):
        next(cache_experiment.run(windows=(window,), longest=1024))


@pytest.mark.parametrize("window", [1, 2, 100, 1024])
def test_depths_rise_far_enough_apart_to_fit_the_timed_steps(window: int) -> None:
    found = cache_experiment.depths(window, 1024)
    room = itertools.pairwise(found)
    assert all(later >= earlier + cache_experiment.num_steps_at(earlier) + 2 for earlier, later in room)
    assert found[-1] <= 1024
