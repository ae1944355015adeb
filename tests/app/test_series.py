from __future__ import annotations

import sys
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.series import BoundedSeries, Point, Points


def _points(values: list[float]) -> list[Point]:
    return [(index, index / 10, value) for index, value in enumerate(values)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=400), st.sampled_from([8, 10, 50]))
def test_a_series_keeps_first_last_lowest_and_highest_within_its_limit(values: list[float], limit: int) -> None:
    series = BoundedSeries(limit, _points(values))
    drawn = series.points()
    assert len(drawn) <= limit
    assert drawn[0] == (0, 0.0, values[0])
    assert drawn[-1][2] == values[-1]
    assert drawn[-1][0] == len(values) - 1
    assert min(value for *_, value in drawn) == min(values)
    assert max(value for *_, value in drawn) == max(values)
    assert drawn == sorted(drawn, key=lambda point: point[0])
    assert set(drawn) <= set(_points(values))


def test_a_spike_of_one_point_among_a_hundred_thousand_stays() -> None:
    series = BoundedSeries(2000)
    for index in range(100_000):
        series.add((index, float(index), 9.0 if index == 61_803 else 1.0))
    assert (61_803, 61_803.0, 9.0) in series.points()
    assert len(series.points()) <= 2000


def test_the_whole_run_is_in_view_with_even_steps() -> None:
    series = BoundedSeries(200)
    for index in range(50_000):
        series.add((index, float(index), 5.0))
    tokens = [point[0] for point in series.points()]
    gaps = [after - before for before, after in pairwise(tokens)]
    assert tokens[0] == 0
    assert tokens[-1] == 49_999
    assert max(gaps) <= 50_000 // 40


def test_fewer_points_than_the_limit_are_kept_as_they_are() -> None:
    points = _points([3.0, 1.0, 2.0, 2.0])
    assert BoundedSeries(8, points[:3]).points() == points[:3]


def test_a_limit_that_cannot_be_halved_is_refused() -> None:
    with pytest.raises(ValueError, match="a series of 7 points cannot be halved"):
        BoundedSeries(7)


def test_points_are_read_like_the_list_they_were_made_of() -> None:
    made_of = _points([0.5, 2.0**40 + 1, -1.25])
    points = Points(made_of)
    assert points == made_of
    assert (len(points), points[-1], points[1:]) == (3, made_of[-1], made_of[1:])
    assert [type(value) for value in points[1]] == [int, float, int]  # bytes are written without a decimal point
    with pytest.raises(IndexError):
        points[3]


def test_a_series_takes_the_same_memory_full_and_empty() -> None:
    series = BoundedSeries(2000)
    empty_bytes = sys.getsizeof(series._numbers)
    for index in range(10_000):
        series.add((index, float(index), float(index % 7)))
    assert sys.getsizeof(series._numbers) == empty_bytes
