"""How weights are held: the person's choice, what the file stores, and what the device can run."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch

from backends.errors import UnsupportedModelError
from backends.requests import Precision
from models.linear import int8_is_available

_PLAIN_ENCODINGS = {"F64", "F32", "BF16", "F16"}
_OVERFLOWS_FLOAT16 = "Gemma models compute numbers beyond float16's range; where the output is no number, choose auto."
_NO_BFLOAT16_FOR_GEMMA = "This GPU has no bfloat16, and Gemma's numbers are beyond float16: float32 is used."
_NO_FLOAT16 = "Processors are slow in float16, so the weights are held in bfloat16, which takes the same memory."


@dataclass(frozen=True)
class WeightPrecision:
    """How weights are held and computed with.

    Attributes:
        dtype: of activations, keys and values, and of all weights but int8 ones.
        is_int8: whether linear layers hold int8 weights (then `dtype` is float32).
        notices: what the person should know about the choice.
    """

    dtype: torch.dtype
    is_int8: bool = False
    notices: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """In words, for the page."""
        return "int8 per channel" if self.is_int8 else str(self.dtype).removeprefix("torch.")


def choose_precision(
    requested: Precision, encodings: Collection[str], device: torch.device, architecture: str = ""
) -> WeightPrecision:
    """Choose how to hold weights that a file stores in these encodings.

    Args:
        architecture: as the model's file names it. Gemma's activations are beyond float16.

    Raises:
        UnsupportedModelError: int8 was asked for and this build of torch cannot run it.
    """
    if device.type == "cuda":
        return _on_gpu(requested, overflows_float16="gemma" in architecture.lower())
    return _on_cpu(requested, encodings)


def _on_cpu(requested: Precision, encodings: Collection[str]) -> WeightPrecision:
    match requested:
        case "float32":
            return WeightPrecision(torch.float32)
        case "bfloat16":
            return WeightPrecision(torch.bfloat16)
        case "int8":
            if not int8_is_available():
                raise UnsupportedModelError(
                    "This build of PyTorch has no int8 kernels for this processor.", "Choose bfloat16 or float32."
                )
            return WeightPrecision(torch.float32, is_int8=True)
        case "float16":
            return WeightPrecision(torch.bfloat16, notices=(_NO_FLOAT16,))
        case "auto":
            return _automatic_on_cpu(set(encodings))


def _automatic_on_cpu(encodings: set[str]) -> WeightPrecision:
    if "MXFP4" in encodings:  # exact in bfloat16, while a byte a channel would lose most of its powers of two
        return WeightPrecision(torch.bfloat16)
    if encodings - _PLAIN_ENCODINGS:  # quantised to eight bits or fewer by whoever made the file
        if int8_is_available():
            return WeightPrecision(torch.float32, is_int8=True)
        return WeightPrecision(torch.bfloat16, notices=("Weights are held in bfloat16: this processor has no int8.",))
    if encodings & {"F32", "F64"} and not encodings & {"F16", "BF16"}:
        return WeightPrecision(torch.float32)
    if "F16" in encodings:
        return WeightPrecision(torch.bfloat16, notices=(_NO_FLOAT16,))
    return WeightPrecision(torch.bfloat16)


def _on_gpu(requested: Precision, overflows_float16: bool) -> WeightPrecision:
    match requested:
        case "float32":
            return WeightPrecision(torch.float32)
        case "float16":
            notices = (_OVERFLOWS_FLOAT16,) if overflows_float16 else ()
            return WeightPrecision(torch.float16, notices=notices)
        case "auto" | "bfloat16" | "int8":
            notices = (
                ("int8 weights are for CPUs; on the GPU they are held in 16 bits.",) if requested == "int8" else ()
            )
            if torch.cuda.is_bf16_supported(including_emulation=False):
                return WeightPrecision(torch.bfloat16, notices=notices)
            if overflows_float16:
                return WeightPrecision(torch.float32, notices=(*notices, _NO_BFLOAT16_FOR_GEMMA))
            return WeightPrecision(torch.float16, notices=(*notices, "This GPU has no bfloat16: float16 is used."))
