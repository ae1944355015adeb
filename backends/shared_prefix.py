"""How far two texts are the same, in tokens."""

from __future__ import annotations

from collections.abc import Sequence


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many tokens two texts share from their start."""
    longest = min(len(one), len(other))
    if one[:longest] == other[:longest]:  # the usual case, at the speed of a memory comparison
        return longest
    return next((place for place in range(longest) if one[place] != other[place]), longest)
