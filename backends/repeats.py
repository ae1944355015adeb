"""Repeats in a sequence, as DRY counts them; the ground both of its implementations start from."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from backends.requests import Sampling

_LARGEST_PENALTY = 1e30  # beside any logit it decides, and a float32 still holds it
_LARGEST_LOG = 88.7228391  # of a float32, as llama.cpp caps the exponent


def repeat_lengths(tokens: Sequence[int], breakers: Collection[int] = ()) -> list[int]:
    """Return for each place how many tokens up to there equal those the sequence ends with; 0 for the last place.

    A repeat never reaches back over a breaker. Linear in the number of tokens: the Z-algorithm (Gusfield 1997, section
    1.4) on the reversed sequence, as in llama.cpp's `llama_sampler_dry_apply`.

    Example:
        a b c c b c y a b c gives 0 0 3 1 0 2 0 0 0 0: "a b c" is there from the third place back.
    """
    num_tokens = len(tokens)
    back = tokens[::-1]
    limit = next((place for place, token in enumerate(back) if token in breakers), num_tokens)
    lengths = [0] * num_tokens
    left = right = 0
    for place in range(1, num_tokens):
        length = min(right - place, lengths[place - left]) if place < right else 0
        while place + length < num_tokens and back[length] == back[place + length]:
            length += 1
        lengths[place] = length
        if place + length > right:
            left, right = place, place + length
    return [min(length, limit) for length in reversed(lengths)]


def repeat_penalties(sampling: Sampling) -> list[float]:
    """Return what DRY takes off a logit for a repeat of 0, 1, 2, ... up to `dry_window` tokens.

    `multiplier * base ** (length - allowed length)`, nothing below the allowed length (p-e-w 2024, "DRY: A modern
    repetition penalty", oobabooga/text-generation-webui#5677), with llama.cpp's cap on the exponent.
    """
    growth = math.log(sampling.dry_base)
    most = int(_LARGEST_LOG / growth) if sampling.dry_base > 1.000001 else sampling.dry_window
    allowed = sampling.dry_allowed_length
    exponents = (min(length - allowed, most) for length in range(allowed, sampling.dry_window + 1))
    penalties = [0.0] * allowed + [sampling.dry_multiplier * sampling.dry_base**exponent for exponent in exponents]
    return [min(penalty, _LARGEST_PENALTY) for penalty in penalties[: sampling.dry_window + 1]]
