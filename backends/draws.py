"""What every engine's draws share: uniform numbers, one per generated token, from a counter instead of a state.

A counter makes "stop after 7, continue for 13" draw what "20 in one go" draws, and rows and requests share no state.
"""

from __future__ import annotations

import secrets

ROUNDING = 1e-9
"""Probabilities this close count as equal: two engines that add up equal numbers differ in the last digits."""

_MASK = 2**64 - 1


def uniform(seed: int, index: int) -> float:
    """Return the index-th number of the seed's stream, in [0, 1).

    SplitMix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators"), applied to the seed and
    then to the index, so that neighbouring seeds give unrelated streams.
    """
    return (_mix(_mix(seed & _MASK) ^ (index & _MASK)) >> 11) / 2**53


def second(number: float) -> float:
    """Return another number in [0, 1) for the draw that `number` is for: SplitMix64 of its 53 bits."""
    return (_mix(int(number * 2**53)) >> 11) / 2**53


def fresh_seed() -> int:
    """Return a seed that differs from run to run, small enough to type."""
    return secrets.randbelow(2**32)


def _mix(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
