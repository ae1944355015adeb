"""Keys and values in 8 bits: one code a number, and one scale for each head of each token.

A token's key in one head is D numbers of about one size, so its largest sets the scale: `largest / 127` for int8,
`largest / 448` for fp8 (float8_e4m3fn). Scales are bfloat16, which never over- or underflows where float32 does not;
codes are made with the scale as stored, so rounding the scale costs nothing.

How far a decoded number is off, `largest` being that of its head and token: int8 at most 0.51 steps of
`largest / 127`; fp8 at most a sixteenth of the number itself, or 2**-10 steps of `largest / 448` where that is more.

Bytes of one head of one token: D + 2.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

CodedType = Literal["int8", "fp8"]

SCALE_DTYPE = torch.bfloat16
_LARGEST: dict[CodedType, float] = {"int8": 127.0, "fp8": 448.0}
_SMALLEST_SCALE = 1e-30  # a head of zeros is divided by this instead of by zero
_FLOAT16_OVER_FLOAT8 = 256.0  # 2**(15 - 7), the difference of the exponents' biases
_SECOND_SIGN = ~0x4000


def supports(kv_type: CodedType, device: torch.device | str) -> bool:
    """Whether torch can make such codes on that device."""
    try:
        encode(torch.ones(1, 1, device=device), kv_type)
    except (AttributeError, RuntimeError):
        return False
    return True


def encode(values: Tensor, kv_type: CodedType) -> tuple[Tensor, Tensor]:
    """Return codes [..., D] as int8, of fp8 the bits, and scales [..., 1] for values [..., D]."""
    exact, largest = values.float(), _LARGEST[kv_type]
    scales = (exact.abs().amax(dim=-1, keepdim=True) / largest).clamp_(min=_SMALLEST_SCALE).to(SCALE_DTYPE)
    scaled = exact / scales.float()
    if kv_type == "int8":
        return scaled.round_().clamp_(-largest, largest).to(torch.int8), scales
    return scaled.clamp_(-largest, largest).to(torch.float8_e4m3fn).view(torch.int8), scales


def decode(codes: Tensor, scales: Tensor, kv_type: CodedType, dtype: torch.dtype) -> Tensor:
    """Return what the codes stand for, [..., D]; NaN wherever the scale is."""
    if kv_type == "int8":
        return codes.to(dtype).mul_(scales.to(dtype))
    # torch's own conversion goes number by number on CPUs, ten times slower. Shifted by seven bits, s eeee mmm is the
    # float16 s 0eeee mmm0000000, 256 times too small, but for a second sign bit below the first.
    halves = codes.to(torch.int16).mul_(128).bitwise_and_(_SECOND_SIGN).view(torch.float16)
    return halves.to(dtype).mul_((scales.float() * _FLOAT16_OVER_FLOAT8).to(dtype))
