"""The three normalisations of decoders: RMS, RMS with weights stored minus one (Gemma), and LayerNorm."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from typing_extensions import assert_never

from models.config import NormKind


class Norm(nn.Module):
    """Normalises the last dimension.

    Args:
        size: of that dimension.
        kind: "rms_plus_one" multiplies by 1 + weight.
        epsilon: added to the mean square, or to the variance.
        bias: LayerNorm only.
    """

    def __init__(self, size: int, kind: NormKind, epsilon: float, bias: bool = False) -> None:
        super().__init__()
        self._shape = (size,)
        self._kind = kind
        self._epsilon = epsilon
        self.weight = nn.Parameter(torch.empty(size))
        self.bias = nn.Parameter(torch.empty(size)) if bias else None

    def forward(self, values: Tensor) -> Tensor:
        """Same shape and dtype as `values`; sums run in float32 or better."""
        kind: NormKind = self._kind
        match kind:
            case "rms":
                return F.rms_norm(values, self._shape, self.weight, self._epsilon)
            case "rms_plus_one":
                normed = F.rms_norm(values, self._shape, None, self._epsilon)
                return torch.addcmul(normed, normed, self.weight)
            case "layer":
                return F.layer_norm(values, self._shape, self.weight, self.bias, self._epsilon)
            case _:
                assert_never(kind)
