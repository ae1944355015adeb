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
from models.linear_factory import LinearFactory


class ExpertLinear(nn.Module):
    """One linear layer of every expert: weight [X, O, I] and bias [X, O]."""

    def __init__(self, num_experts: int, in_features: int, out_features: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_experts, out_features, in_features))
        self.bias = nn.Parameter(torch.empty(num_experts, out_features)) if bias else None

    def forward(self, inputs_NI: Tensor, expert: int | Tensor) -> Tensor:
        """Send tokens through one expert, given as a number or, where only the device knows it, as a tensor [1]."""
        if isinstance(expert, int):
            weight_OI, bias_O = self.weight[expert], None if self.bias is None else self.bias[expert]
        else:  # a copy, but of one expert at a time
            weight_OI = self.weight.index_select(0, expert)[0]
            bias_O = None if self.bias is None else self.bias.index_select(0, expert)[0]
        return F.linear(inputs_NI, weight_OI, bias_O)


class SeparateExperts(nn.ModuleList):
    """One linear layer of every expert, each a layer of its own, `0` to `X - 1`: how int8 weights are held."""

    def forward(self, inputs_NI: Tensor, expert: int | Tensor) -> Tensor:
        """Send tokens through one expert."""
        assert isinstance(expert, int), "int8 layers run on a CPU, where experts are chosen by number"
        outputs_NO: Tensor = self[expert](inputs_NI)
        return outputs_NO


class MixtureOfExperts(nn.Module):
    """The feed-forward block of a layer with experts.

    Args:
        config: of the model.
        moe: of the layer.
        linear: `torch.nn.Linear` stacks the experts; of any other kind, each expert gets layers of its own.
    """

    def __init__(self, config: ModelConfig, moe: MoeConfig, linear: LinearFactory = nn.Linear) -> None:
        super().__init__()

        def experts(in_features: int, out_features: int) -> nn.Module:
            if linear is nn.Linear:
                return ExpertLinear(moe.num_experts, in_features, out_features, moe.bias)
            return SeparateExperts(linear(in_features, out_features, moe.bias) for _ in range(moe.num_experts))

        self._moe = moe
        self._activation: Activation = config.activation
        self.router = nn.Linear(config.hidden_size, moe.num_experts, bias=moe.bias)  # small, and its choice is delicate
        self.gate = experts(config.hidden_size, moe.expert_size)
        self.up = experts(config.hidden_size, moe.expert_size)
        self.down = experts(moe.expert_size, config.hidden_size)

    def forward(self, hidden_BTE: Tensor) -> Tensor:
        hidden_NE = hidden_BTE.flatten(0, 1)
        weights_NA, experts_NA = self._route(hidden_NE)
        is_decode_step = hidden_BTE.shape[1] == 1  # which may be recorded, so a GPU looks the experts up itself
        if hidden_NE.device.type != "cpu" and is_decode_step:
            mixed_NE = self._pair_by_pair(hidden_NE, weights_NA, experts_NA)
        else:
            mixed_NE = self._expert_by_expert(hidden_NE, weights_NA, experts_NA)
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

    def _expert_by_expert(self, hidden_NE: Tensor, weights_NA: Tensor, experts_NA: Tensor) -> Tensor:
        """Visit every expert that is needed, with all its tokens at once."""
        mixed_NE = torch.zeros_like(hidden_NE)
        for expert in torch.unique(experts_NA).tolist():
            tokens, places = (experts_NA == expert).nonzero(as_tuple=True)
            # A single token is not copied: int8 layers then split it once for all experts.
            inputs = hidden_NE if len(hidden_NE) == 1 else hidden_NE[tokens]
            outputs = self._send(inputs, expert) * weights_NA[tokens, places].unsqueeze(-1)
            mixed_NE.index_add_(0, tokens, outputs)
        return mixed_NE

    def _pair_by_pair(self, hidden_NE: Tensor, weights_NA: Tensor, experts_NA: Tensor) -> Tensor:
        """The same in operations that a CUDA graph can hold: the host never learns which experts they are."""
        rows = []
        for inputs_1E, weights_A, experts_A in zip(torch.split(hidden_NE, 1), weights_NA, experts_NA, strict=True):
            outputs = [self._send(inputs_1E, expert_1) for expert_1 in torch.split(experts_A, 1)]
            rows.append(weights_A @ torch.cat(outputs))
        return torch.stack(rows)

    def _send(self, inputs_NE: Tensor, expert: int | Tensor) -> Tensor:
        inner = self._inner(self.gate(inputs_NE, expert), self.up(inputs_NE, expert))
        output: Tensor = self.down(inner, expert)
        return output

    def _inner(self, gate: Tensor, up: Tensor) -> Tensor:
        moe = self._moe
        if moe.kind == "softmax_topk":
            return activate(gate, self._activation) * up
        if moe.gate_limit is not None:
            gate, up = gate.clamp(max=moe.gate_limit), up.clamp(-moe.gate_limit, moe.gate_limit)
        return (up + 1.0) * gate * torch.sigmoid(moe.gate_alpha * gate)


def _exact(scores: Tensor) -> torch.dtype:
    return torch.promote_types(scores.dtype, torch.float32)
