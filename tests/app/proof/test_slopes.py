"""Slopes: right values, and intervals that hold the truth about as often as they claim, on curves like memory."""

from __future__ import annotations

import numpy as np
import pytest

from app.proof.slopes import median_and_quartiles, slope_of


def test_a_straight_line_has_its_slope_and_no_doubt() -> None:
    slope = slope_of(range(0, 20_000, 10), [1e9 + 1024.0 * n for n in range(0, 20_000, 10)])
    assert slope is not None
    assert slope.value == pytest.approx(1024.0, rel=1e-9)
    assert slope.high - slope.low < 1e-3
    assert not slope.is_flat


def test_a_constant_curve_is_flat() -> None:
    slope = slope_of(range(100), [7.5e6] * 100)
    assert slope is not None
    assert (slope.value, slope.low, slope.high) == (0.0, 0.0, 0.0)
    assert slope.is_flat


def test_growth_in_steps_of_whole_blocks_is_still_seen_as_growth() -> None:
    tokens = np.arange(0, 20_000, 20)
    slope = slope_of(tokens.tolist(), (np.floor(tokens / 1024) * 1024 * 100.0).tolist())
    assert slope is not None
    assert slope.low > 0
    assert slope.value == pytest.approx(100.0, rel=0.1)


@pytest.mark.parametrize("agreement", [0.0, 0.5, 0.9], ids="neighbours agree by {}".format)
def test_the_interval_holds_the_true_slope_as_often_as_it_says_even_where_neighbours_agree(agreement: float) -> None:
    random = np.random.default_rng(5)
    num_hits = 0
    for _ in range(200):
        noise = random.standard_normal(400)
        for i in range(1, 400):
            noise[i] += agreement * noise[i - 1]
        tokens = np.arange(400) * 10.0
        slope = slope_of(tokens.tolist(), (3 + 0.02 * tokens + noise).tolist())
        assert slope is not None
        num_hits += slope.low <= 0.02 <= slope.high
    assert 0.88 <= num_hits / 200 <= 1.0


@pytest.mark.parametrize(("x", "y"), [([], []), ([1, 2], [1, 2]), ([5, 5, 5, 5], [1, 2, 3, 4])])
def test_too_little_to_tell_gives_none(x: list[float], y: list[float]) -> None:
    assert slope_of(x, y) is None


def test_curves_that_do_not_pair_are_refused() -> None:
    with pytest.raises(ValueError, match="3 x values do not pair with 2 y values"):
        slope_of([1, 2, 3], [1, 2])


def test_median_and_quartiles_of_odd_and_single_samples() -> None:
    assert median_and_quartiles([4.0, 1.0, 2.0, 3.0, 5.0]) == (3.0, 2.0, 4.0)
    assert median_and_quartiles([2.5]) == (2.5, 2.5, 2.5)
