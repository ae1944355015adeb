"""Linear layers in 8-bit integers for CPUs: weights per output channel, activations per token.

One generated token reads every weight once, so on a CPU the bytes of the weights are the time of a token. These layers
hold one byte a weight and run fbgemm's integer kernels at about memory bandwidth.

A byte is enough for a weight but not for an activation: a few channels are a hundred times larger than the rest, and
rounding the rest away costs more than everything else together (on the 135M SmolLM2, a mean KL of 0.043 against 0.004
for the weights). So a token's activations go in twice, rounded and as what rounding left over, which makes 16 bits of
them; the kernel reads the weights once for both, so that a decode step takes hardly longer.

The integer products are exact and every token is scaled by itself alone, so a token's result does not depend on what
it is batched with: prefill in any chunks and decode agree to the last bit of this layer.

Torch offers the kernel under `torch.ops.quantized`; only the front ends around it are deprecated.

Shape letters: T tokens (any leading dimensions), I input features, O output features.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

_LEVELS = 127  # of an activation on either side of zero
_ZERO_POINT = 128  # fbgemm takes activations as unsigned bytes
_FINER = 2 * _LEVELS  # what rounding leaves over is at most half a step
_SMALLEST_SCALE = 1e-30  # an all-zero row is divided by this instead of by zero


def int8_is_available() -> bool:
    """Whether this build of torch has the integer kernels (x86 with AVX2)."""
    return "fbgemm" in torch.backends.quantized.supported_engines


@cache
def weight_levels() -> int:
    """Return the largest magnitude of an int8 weight on this CPU.

    Without VNNI the AVX2 kernel adds pairs of products in 16 bits: 2 * 255 * 64 < 2**15 keeps that exact, at the price
    of one bit.
    """
    return 127 if torch.cpu.get_capabilities().get("avx512_vnni", False) else 64


def quantize_rows(rows_OI: Tensor) -> tuple[Tensor, Tensor]:
    """Round each float32 row to `weight_levels` steps on either side of zero.

    Returns:
        int8 rows [O, I] and their float32 scales [O]: `rows * scale` is close to the values.
    """
    scales_O = rows_OI.abs().amax(dim=1).clamp_(min=_SMALLEST_SCALE).div_(weight_levels())
    return rows_OI.div(scales_O.unsqueeze(1)).round_().to(torch.int8), scales_O


@dataclass(frozen=True)
class PackedRows:
    """Some rows of a weight in fbgemm's memory order.

    Attributes:
        nbytes: of the weights and of the scale, zero point and sum that fbgemm keeps for each row.
    """

    rows: torch.ScriptObject
    nbytes: int


def pack_rows(rows_OI: Tensor, scales_O: Tensor) -> PackedRows:
    """Pack what `quantize_rows` returned. Any number of threads may do this at a time."""
    if torch.backends.quantized.engine != "fbgemm":
        torch.backends.quantized.engine = "fbgemm"  # for good: whatever packs does it in this layout
    zeros_O = torch.zeros(len(scales_O), dtype=torch.int64)
    weight = torch._make_per_channel_quantized_tensor(rows_OI, scales_O.double(), zeros_O, 0)
    packed: torch.ScriptObject = torch.ops.quantized.linear_prepack(weight, None)
    return PackedRows(packed, rows_OI.nbytes + 3 * scales_O.nbytes)


@contextmanager
def quiet_packing() -> Iterator[None]:
    """Keep back torch's warning that quantised tensor types go away; constraints.txt pins a torch that has them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*quantized tensor creation functions", category=UserWarning)
        yield


class ActivationCoder:
    """Splits activations into two bytes and a scale. Layers that share one do it once for an input they share.

    It remembers the last tensor it was given, by identity; that tensor must not be changed in place between calls.
    """

    def __init__(self) -> None:
        self._inputs_TI: Tensor | None = None
        self._coded: tuple[Tensor, Tensor] | None = None

    def __call__(self, inputs_TI: Tensor) -> tuple[Tensor, Tensor]:
        """Return steps [2, ..., I], rounded and left over, within -127 .. 127, and the size of a step [..., 1]."""
        if self._coded is None or inputs_TI is not self._inputs_TI:
            self._inputs_TI, self._coded = inputs_TI, _split(inputs_TI)
        return self._coded


def _split(inputs_TI: Tensor) -> tuple[Tensor, Tensor]:
    peaks_T1: Tensor = torch.linalg.vector_norm(inputs_TI, torch.inf, dim=-1, keepdim=True)
    scales_T1 = peaks_T1.clamp_(min=_SMALLEST_SCALE).div_(_LEVELS)
    steps_TI = inputs_TI / scales_T1
    rounded_TI = steps_TI.round()
    return torch.stack((rounded_TI, steps_TI.sub_(rounded_TI).mul_(_FINER))), scales_T1


class Int8Linear(nn.Module):
    """A linear layer with int8 weights, called like `torch.nn.Linear`. Built empty; `set_weight` fills it.

    Args:
        in_features: I.
        out_features: O.
        bias: whether `set_bias` will be called.
        coder: shared by layers that may get the same input; None is one of its own.
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = False, coder: ActivationCoder | None = None
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.has_bias = bias
        self._coder = ActivationCoder() if coder is None else coder
        self._bias_O: Tensor | None = None
        self._parts: tuple[PackedRows, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of the weights, scales and bias as held."""
        return sum(part.nbytes for part in self._parts) + (0 if self._bias_O is None else self._bias_O.nbytes)

    def set_weight(self, parts: Sequence[PackedRows]) -> None:
        """Take the weight, as consecutive rows that were packed apart, so that it never is in memory twice.

        Parts of some ten megabytes cost nothing in speed.
        """
        self._parts = tuple(parts)

    def set_bias(self, bias_O: Tensor) -> None:
        """Take the bias, float32."""
        self._bias_O = bias_O

    def forward(self, inputs_TI: Tensor) -> Tensor:
        """Return float32 [..., O] for float32 [..., I]."""
        steps_2TI, scales_T1 = self._coder(inputs_TI)
        outputs = [_multiply(steps_2TI, part.rows) for part in self._parts]
        rounded_TO, left_TO = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)
        outputs_TO: Tensor = rounded_TO.add(left_TO, alpha=1.0 / _FINER).mul_(scales_T1)
        return outputs_TO if self._bias_O is None else outputs_TO.add_(self._bias_O)


def _multiply(steps_TI: Tensor, rows: torch.ScriptObject) -> Tensor:
    """Multiply activations within -127 .. 127, rounded here, with packed weights; float32 comes out."""
    outputs: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
        steps_TI, 1.0, _ZERO_POINT, rows
    )
    return outputs
