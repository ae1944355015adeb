"""Rotary position embedding that stays right at any position.

Angles are float64 products of the position and the frequency; there is no table to run out of, and only the final
cosine and sine are cast. In float32 the phases would be off by 0.06 rad at a million tokens and 0.22 at four.
Frequencies follow transformers' `modeling_rope_utils` (each formula names its source); they are kept on the CPU in
float64, so that casting or moving the model cannot touch them.

Shape letters: B rows, H heads, T tokens, D head_dim, R rotated dimensions of a head, F = R / 2 frequencies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import assert_never

from models.config import RopeConfig, RotaryLayout


def frequencies(rope: RopeConfig, length_tokens: int = 0) -> Tensor:
    """Radians per position of every rotated pair.

    Args:
        rope: settings of one layer.
        length_tokens: of the sequence so far; only "dynamic" and "longrope" depend on it.

    Returns:
        [F], float64, on the CPU.
    """
    exponents_F = torch.arange(0, rope.dims, 2, dtype=torch.float64, device="cpu") / rope.dims
    plain_F = rope.theta**-exponents_F
    match rope.kind:
        case "default":
            scaled_F = plain_F
        case "linear":
            scaled_F = plain_F / rope.factor
        case "dynamic":
            scaled_F = _dynamic_theta(rope, length_tokens) ** -exponents_F
        case "llama3":
            scaled_F = _llama3(plain_F, rope)
        case "yarn":
            scaled_F = _yarn(plain_F, rope)
        case "longrope":
            scaled_F = plain_F / _row(_longrope_factors(rope, length_tokens))
        case _:
            assert_never(rope.kind)
    if rope.frequency_divisors is not None:
        scaled_F = scaled_F / _row(rope.frequency_divisors)
    return scaled_F


def attention_factor(rope: RopeConfig) -> float:
    """What cosine and sine are multiplied with: given, or derived from the scaling factor (yarn, longrope)."""
    return rope.derived_attention_factor if rope.attention_factor is None else rope.attention_factor


def _dynamic_theta(rope: RopeConfig, length_tokens: int) -> float:
    """NTK-aware base that grows with the sequence beyond the trained length."""
    original = _original_context(rope)
    stretch = rope.factor * max(length_tokens, original) / original - (rope.factor - 1.0)
    return float(rope.theta * stretch ** (rope.dims / (rope.dims - 2)))


def _llama3(plain_F: Tensor, rope: RopeConfig) -> Tensor:
    """Long wavelengths are slowed by the factor, short ones kept, those between blended (Llama 3.1)."""
    turns_F = _original_context(rope) * plain_F / (2.0 * math.pi)
    smooth_F = (turns_F - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    smooth_F = smooth_F.clamp(0.0, 1.0)
    return (1.0 - smooth_F) * plain_F / rope.factor + smooth_F * plain_F


def _yarn(plain_F: Tensor, rope: RopeConfig) -> Tensor:
    """Blend of kept and slowed frequencies along a ramp over the dimensions (YaRN, arXiv 2309.00071, section 3.2)."""
    low = _yarn_dimension(rope, rope.beta_fast)
    high = _yarn_dimension(rope, rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.dims - 1)
    if low == high:
        high += 0.001  # as transformers does, against dividing by zero
    index_F = torch.arange(rope.dims // 2, dtype=torch.float64, device="cpu")
    slowed_F = ((index_F - low) / (high - low)).clamp(0.0, 1.0)
    return plain_F / rope.factor * slowed_F + plain_F * (1.0 - slowed_F)


def _yarn_dimension(rope: RopeConfig, num_turns: float) -> float:
    """Dimension whose pair turns that many times within the original context."""
    wavelengths = _original_context(rope) / (num_turns * 2.0 * math.pi)
    return rope.dims * math.log(wavelengths) / (2.0 * math.log(rope.theta))


def _longrope_factors(rope: RopeConfig, length_tokens: int) -> tuple[float, ...]:
    """The short list up to the original context, the long one from one token beyond it."""
    chosen = rope.long_factors if length_tokens > _original_context(rope) else rope.short_factors
    assert chosen is not None, "the parsers refuse longrope without both lists"
    return chosen


def _original_context(rope: RopeConfig) -> int:
    assert rope.original_context_tokens is not None, "the parsers refuse this rope kind without it"
    return rope.original_context_tokens


def _row(values: tuple[float, ...]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, device="cpu")


@dataclass(frozen=True)
class Rotation:
    """Cosine and signed sine for the tokens of one call, ready to turn queries and keys.

    Attributes:
        cosine, sine: [B, 1, T, R]; the sine carries the minus sign of the first of each pair.
        layout: how dimensions pair up.
    """

    cosine: Tensor
    sine: Tensor
    layout: RotaryLayout

    def __call__(self, heads_BHTD: Tensor) -> Tensor:
        """Turn the leading R dimensions of each head; the rest pass through."""
        num_rotated = self.cosine.shape[-1]
        if num_rotated == heads_BHTD.shape[-1]:
            return self._turn(heads_BHTD)
        turned_BHTR = self._turn(heads_BHTD[..., :num_rotated])
        return torch.cat((turned_BHTR, heads_BHTD[..., num_rotated:]), dim=-1)

    def _turn(self, heads_BHTR: Tensor) -> Tensor:
        if self.layout == "half":  # partner of i is i + R/2, so rolling by half swaps every pair
            partners_BHTR = heads_BHTR.roll(heads_BHTR.shape[-1] // 2, dims=-1)
        else:
            pairs_BHTF2 = heads_BHTR.reshape(*heads_BHTR.shape[:-1], -1, 2)
            partners_BHTR = pairs_BHTF2.flip(-1).flatten(-2)
        return torch.addcmul(heads_BHTR * self.cosine, partners_BHTR, self.sine)


class Rotary:
    """Rotary embedding of one layer kind: positions in, `Rotation` out."""

    def __init__(self, rope: RopeConfig) -> None:
        self._rope = rope
        self._factor = attention_factor(rope)
        self._signed_R: dict[tuple[bool, torch.device], Tensor] = {}

    def at(self, positions_BT: Tensor, dtype: torch.dtype, length_tokens: int = 0) -> Rotation:
        """Rotation for int64 positions, computed on their device in float64 and cast last.

        `length_tokens` is that of the whole sequence, for the kinds whose frequencies depend on it.
        """
        signed_R = self._signed(length_tokens, positions_BT.device)
        angles_B1TR = (positions_BT.unsqueeze(-1) * signed_R).unsqueeze(1)
        cosine, sine = angles_B1TR.cos(), angles_B1TR.sin()
        if self._factor != 1.0:
            cosine, sine = cosine * self._factor, sine * self._factor
        return Rotation(cosine.to(dtype), sine.to(dtype), self._rope.layout)

    def _signed(self, length_tokens: int, device: torch.device) -> Tensor:
        """Signed frequencies [R]; those that a captured graph may read stay where they are."""
        if self._rope.kind == "dynamic":  # other frequencies with every token: never captured, so nothing to keep
            return _signed(self._rope, length_tokens).to(device)
        is_long = self._rope.kind == "longrope" and length_tokens > _original_context(self._rope)
        key = (is_long, device)
        if key not in self._signed_R:
            self._signed_R[key] = _signed(self._rope, length_tokens).to(device)
        return self._signed_R[key]


def _signed(rope: RopeConfig, length_tokens: int) -> Tensor:
    """Frequencies [R] in the order of the dimensions, the first of each pair negated.

    Cosine is even and sine odd, so this signs the sine as a rotation needs it, at no further step.
    """
    frequencies_F = frequencies(rope, length_tokens)
    if rope.layout == "half":
        return torch.cat((-frequencies_F, frequencies_F))
    return torch.stack((-frequencies_F, frequencies_F), dim=-1).flatten()
