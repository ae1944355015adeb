"""The feed-forward block of a layer."""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from typing_extensions import assert_never

from models.config import Activation, ModelConfig
from models.linear_factory import LinearFactory


def activate(values: Tensor, activation: Activation) -> Tensor:
    """Apply an activation function by its config name."""
    match activation:
        case "silu":
            return F.silu(values)
        case "gelu":
            return F.gelu(values)
        case "gelu_tanh":
            return F.gelu(values, approximate="tanh")
        case _:
            assert_never(activation)


class FeedForward(nn.Module):
    """`down(activation(gate) * up)`, or `down(activation(up))` where the model has no gate."""

    def __init__(self, config: ModelConfig, linear: LinearFactory) -> None:
        super().__init__()
        self._activation: Activation = config.activation
        self.gate = linear(config.hidden_size, config.mlp_size, bias=config.mlp_bias) if config.gated_mlp else None
        self.up = linear(config.hidden_size, config.mlp_size, bias=config.mlp_bias)
        self.down = linear(config.mlp_size, config.hidden_size, bias=config.mlp_bias)

    def forward(self, hidden_BTE: Tensor) -> Tensor:
        up: Tensor = self.up(hidden_BTE)
        if self.gate is None:
            inner = activate(up, self._activation)
        else:
            inner = activate(self.gate(hidden_BTE), self._activation) * up
        output: Tensor = self.down(inner)
        return output
