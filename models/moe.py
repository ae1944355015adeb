"""Mixture of experts: a router sends every token through a few of many feed-forward blocks.

Shape letters: B rows, T tokens, N tokens of all rows, E hidden size, X experts, A experts a token goes through,
I width of an expert, O outputs of a layer.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from typing_extensions import assert_never

from models.config import Activation, ModelConfig, MoeConfig
from models.feed_forward import activate

_GATHERED_PAIRS = 16  # token-expert pairs whose weights are worth copying together, to spare the host a look at them


class ExpertLinear(nn.Module):
    """One linear layer of every expert: weight [X, O, I] and bias [X, O]."""

    def __init__(self, num_experts: int, in_features: int, out_features: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_experts, out_features, in_features))
        self.bias = nn.Parameter(torch.empty(num_experts, out_features)) if bias else None

    def one(self, expert: int, inputs_NI: Tensor) -> Tensor:
        """Send tokens through one expert; nothing is copied."""
        return F.linear(inputs_NI, self.weight[expert], None if self.bias is None else self.bias[expert])

    def each(self, experts_N: Tensor, inputs_NI: Tensor) -> Tensor:
        """Send every token through its own expert, without the host knowing which."""
        outputs_NO = (self.weight[experts_N] @ inputs_NI.unsqueeze(-1)).squeeze(-1)
        return outputs_NO if self.bias is None else outputs_NO + self.bias[experts_N]


class MixtureOfExperts(nn.Module):
    """The feed-forward block of a layer with experts.

    Args:
        config: of the model.
        moe: of the layer.
    """

    def __init__(self, config: ModelConfig, moe: MoeConfig) -> None:
        super().__init__()
        self._moe = moe
        self._activation: Activation = config.activation
        self.router = nn.Linear(config.hidden_size, moe.num_experts, bias=moe.bias)  # small, and its choice is delicate
        self.gate = ExpertLinear(moe.num_experts, config.hidden_size, moe.expert_size, moe.bias)
        self.up = ExpertLinear(moe.num_experts, config.hidden_size, moe.expert_size, moe.bias)
        self.down = ExpertLinear(moe.num_experts, moe.expert_size, config.hidden_size, moe.bias)

    def forward(self, hidden_BTE: Tensor) -> Tensor:
        hidden_NE = hidden_BTE.flatten(0, 1)
        weights_NA, experts_NA = self._route(hidden_NE)
        if hidden_NE.device.type != "cpu" and experts_NA.numel() <= _GATHERED_PAIRS:
            mixed_NE = self._gathered(hidden_NE, weights_NA, experts_NA)
        else:
            mixed_NE = self._one_by_one(hidden_NE, weights_NA, experts_NA)
        return mixed_NE.view_as(hidden_BTE)

    def _route(self, hidden_NE: Tensor) -> tuple[Tensor, Tensor]:
        """Weights and indices [N, A] of the experts each token goes through."""
        moe, scores_NX = self._moe, self.router(hidden_NE)
        match moe.kind:
            case "softmax_topk":
                weights_NA, experts_NA = scores_NX.softmax(dim=-1, dtype=_exact(scores_NX)).topk(moe.num_active, dim=-1)
                if moe.norm_topk:
                    weights_NA = weights_NA / weights_NA.sum(dim=-1, keepdim=True)
            case "topk_softmax":
                best_NA, experts_NA = scores_NX.topk(moe.num_active, dim=-1)
                weights_NA = best_NA.softmax(dim=-1, dtype=_exact(scores_NX))
            case _:
                assert_never(moe.kind)
        return weights_NA.to(hidden_NE.dtype), experts_NA

    def _one_by_one(self, hidden_NE: Tensor, weights_NA: Tensor, experts_NA: Tensor) -> Tensor:
        """Visit every expert that is needed, with all its tokens at once."""
        mixed_NE = torch.zeros_like(hidden_NE)
        for expert in torch.unique(experts_NA).tolist():
            tokens, places = (experts_NA == expert).nonzero(as_tuple=True)
            inputs = hidden_NE[tokens]
            inner = self._inner(self.gate.one(expert, inputs), self.up.one(expert, inputs))
            outputs = self.down.one(expert, inner) * weights_NA[tokens, places].unsqueeze(-1)
            mixed_NE.index_add_(0, tokens, outputs)
        return mixed_NE

    def _gathered(self, hidden_NE: Tensor, weights_NA: Tensor, experts_NA: Tensor) -> Tensor:
        """The same with all token-expert pairs at once, in operations that a CUDA graph can hold."""
        num_tokens, num_active = experts_NA.shape
        inputs, experts = hidden_NE.repeat_interleave(num_active, dim=0), experts_NA.flatten()
        inner = self._inner(self.gate.each(experts, inputs), self.up.each(experts, inputs))
        outputs_NAE = self.down.each(experts, inner).view(num_tokens, num_active, -1)
        return (outputs_NAE * weights_NA.unsqueeze(-1)).sum(dim=1)

    def _inner(self, gate: Tensor, up: Tensor) -> Tensor:
        moe = self._moe
        if moe.kind == "softmax_topk":
            return activate(gate, self._activation) * up
        if moe.gate_limit is not None:
            gate, up = gate.clamp(max=moe.gate_limit), up.clamp(-moe.gate_limit, moe.gate_limit)
        return (up + 1.0) * gate * torch.sigmoid(moe.gate_alpha * gate)


def _exact(scores: Tensor) -> torch.dtype:
    return torch.promote_types(scores.dtype, torch.float32)
