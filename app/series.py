"""A series of points that stays small however long it grows, keeps every spike, and always shows the whole run."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import overload

Point = tuple[int, float, float]
"""tokens, seconds, value."""

_NUMBER_BYTES = 8
_POINT_NUMBERS = 3
_BUCKET_NUMBERS = 2 * _POINT_NUMBERS  # its lowest and its highest point


class Points(Sequence[Point]):
    """Points as plain numbers: the lists of tuples that a run's figures would be take megabytes."""

    def __init__(self, points: Iterable[Point] = ()) -> None:
        self._numbers = array("d", chain.from_iterable(points))

    def __len__(self) -> int:
        return len(self._numbers) // _POINT_NUMBERS

    @overload
    def __getitem__(self, index: int) -> Point: ...

    @overload
    def __getitem__(self, index: slice) -> list[Point]: ...

    def __getitem__(self, index: int | slice) -> Point | list[Point]:
        places = range(len(self))[index]
        return [self._point(place) for place in places] if isinstance(places, range) else self._point(places)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def _point(self, place: int) -> Point:
        tokens, time_s, value = self._numbers[place * _POINT_NUMBERS : (place + 1) * _POINT_NUMBERS]
        return int(tokens), time_s, _plain(value)


class BoundedSeries:
    """Min/max buckets of equal numbers of points; when all buckets are full, neighbours merge and buckets double.

    With 4 buckets, points 1..4 make four buckets of one point; point 5 merges them to two of two points and starts a
    third. A bucket is drawn as its lowest and its highest point, in the order they came.

    Args:
        max_points: drawn at most; even, at least 8.
    """

    def __init__(self, max_points: int = 2000, points: Iterable[Point] = ()) -> None:
        if max_points < 8 or max_points % 2:
            raise ValueError(f"a series of {max_points} points cannot be halved; give an even number of at least 8")
        # Two drawn points are kept for the very first and the very last one, which need not be extremes.
        self._max_buckets = (max_points - 2) // 2
        # As plain numbers and all of them from the start: a series takes no more memory when it is full.
        self._numbers = array("d", bytes(_BUCKET_NUMBERS * _NUMBER_BYTES * self._max_buckets))
        self._num_buckets = 0
        self._points_per_bucket = 1
        self._num_in_last = 0
        self._first: Point | None = None
        self._last: Point | None = None
        for point in points:
            self.add(point)

    def add(self, point: Point) -> None:
        """Append a point; tokens and seconds must not go back."""
        if self._first is None:
            self._first = point
        self._last = point
        if self._num_buckets and self._num_in_last < self._points_per_bucket:
            last = self._num_buckets - 1
            self._put(last, _merged(self._bucket(last), (point, point)))
            self._num_in_last += 1
            return
        if self._num_buckets >= self._max_buckets:
            self._halve()
        self._put(self._num_buckets, (point, point))
        self._num_buckets += 1
        self._num_in_last = 1

    def points(self) -> Points:
        """Return the points to draw, oldest first, at most `max_points`, first and last always among them."""
        drawn: list[Point] = []
        for low, high in map(self._bucket, range(self._num_buckets)):
            drawn += [low] if low == high else sorted((low, high), key=_moment)
        if self._first is not None and drawn[0] != self._first:
            drawn.insert(0, self._first)
        if self._last is not None and drawn[-1] != self._last:
            drawn.append(self._last)
        return Points(drawn)

    def _bucket(self, place: int) -> tuple[Point, Point]:
        start = place * _BUCKET_NUMBERS
        low_tokens, low_s, low, high_tokens, high_s, high = self._numbers[start : start + _BUCKET_NUMBERS]
        return (int(low_tokens), low_s, _plain(low)), (int(high_tokens), high_s, _plain(high))

    def _put(self, place: int, bucket: tuple[Point, Point]) -> None:
        start = place * _BUCKET_NUMBERS
        self._numbers[start : start + _BUCKET_NUMBERS] = array("d", (*bucket[0], *bucket[1]))

    def _halve(self) -> None:
        num_pairs, is_odd = divmod(self._num_buckets, 2)
        for place in range(num_pairs):
            self._put(place, _merged(self._bucket(2 * place), self._bucket(2 * place + 1)))
        if is_odd:
            self._put(num_pairs, self._bucket(self._num_buckets - 1))
        self._num_buckets = num_pairs + is_odd
        self._points_per_bucket *= 2


def _merged(left: tuple[Point, Point], right: tuple[Point, Point]) -> tuple[Point, Point]:
    """Return lowest and highest of both; of equals the first is the low, the last the high: flat lines stretch."""
    low = right[0] if right[0][2] < left[0][2] else left[0]
    high = right[1] if right[1][2] >= left[1][2] else left[1]
    return low, high


def _plain(value: float) -> float:
    """Return a whole number as such: bytes go to pages and files without a decimal point."""
    return int(value) if value.is_integer() else value


def _moment(point: Point) -> tuple[float, int]:
    return point[1], point[0]
