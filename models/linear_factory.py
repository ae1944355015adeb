"""How a decoder gets its linear layers, so that quantised ones can take their place."""

from __future__ import annotations

from typing import Protocol

from torch import nn


class LinearFactory(Protocol):
    """Makes one linear layer: `torch.nn.Linear`, or a stand-in that is called alike."""

    def __call__(self, in_features: int, out_features: int, bias: bool) -> nn.Module: ...
