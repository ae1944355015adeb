"""The length that two texts share, from which both engines take up what they have read."""

from __future__ import annotations

from array import array

from backends.shared_prefix import common_prefix


def test_common_prefix_counts_leading_equal_tokens() -> None:
    assert common_prefix([1, 2, 3], [1, 2, 4, 5]) == 2
    assert common_prefix([1, 2], [1, 2, 3]) == 2
    assert common_prefix([], [1]) == 0


def test_arrays_and_lists_compare_by_their_tokens() -> None:
    assert common_prefix(array("i", [1, 2, 3]), [1, 2, 3, 4]) == 3
    assert common_prefix(array("i", [1, 2, 3]), array("i", [1, 5])) == 1
