"""MXFP4 weights of safetensors folders (gpt-oss): 4-bit numbers in blocks of 32 that share a power of two.

A weight [.., outputs, inputs] is two tensors: `*_blocks`, uint8 [.., outputs, blocks, 16], and `*_scales`, uint8
[.., outputs, blocks]. Byte j of a block holds its numbers 2j (low four bits) and 2j + 1 (high four bits), each an index
into `VALUES`; number = VALUES[index] * 2 ** (scale - 127). Source: OCP Microscaling Formats 1.0, section 5.3.3, and
transformers' `integrations/mxfp4.py`. Every number is exact in bfloat16. GGUF files store the same numbers in another
order, which the gguf package knows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from backends.errors import ModelFileError
from models.stored_tensor import Bytes, StoredTensor

VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
_BLOCK_BYTES = 16
_BLOCKS, _SCALES = "_blocks", "_scales"
_PAIRS = np.array([(VALUES[byte & 15], VALUES[byte >> 4]) for byte in range(256)], np.float32)
with np.errstate(over="ignore"):  # 255 is no number in this format; it becomes infinite here, as in transformers
    _POWERS = np.ldexp(1.0, np.arange(256) - 127).astype(np.float32)


def join_mxfp4(tensors: dict[str, StoredTensor]) -> dict[str, StoredTensor]:
    """Return the tensors with every pair of blocks and scales as one tensor, under the name of its blocks.

    Raises:
        ModelFileError: one of a pair is missing, or their shapes do not match.
    """
    joined = dict(tensors)
    for name in tensors:
        stem, is_blocks = name.removesuffix(_BLOCKS), name.endswith(_BLOCKS)
        if is_blocks:
            joined[name] = _joined(tensors[name], _partner(tensors, name, stem + _SCALES))
        elif name.endswith(_SCALES):
            _partner(tensors, name, name.removesuffix(_SCALES) + _BLOCKS)
            del joined[name]
    return joined


def _partner(tensors: dict[str, StoredTensor], name: str, partner: str) -> StoredTensor:
    if partner not in tensors:
        raise ModelFileError(
            f"{tensors[name].path} holds {name}, but {partner} is missing.", "It may be incomplete: download it again."
        )
    return tensors[partner]


def _joined(blocks: StoredTensor, scales: StoredTensor) -> StoredTensor:
    is_pair = blocks.encoding == scales.encoding == "U8" and blocks.shape == (*scales.shape, _BLOCK_BYTES)
    if not is_pair:
        raise ModelFileError(
            f"{blocks.path} stores {blocks.name} as {blocks.encoding} {blocks.shape} and its scales as "
            f"{scales.encoding} {scales.shape}; MXFP4 takes U8, and {_BLOCK_BYTES} bytes a scale.",
            "Download it again.",
        )
    *leading, num_blocks = scales.shape
    return StoredTensor(
        name=blocks.name,
        path=blocks.path,
        offset=blocks.offset,
        shape=(*leading, num_blocks * 2 * _BLOCK_BYTES),
        row_bytes=num_blocks * _BLOCK_BYTES,
        encoding="MXFP4",
        decode=_decoder(num_blocks),
        tail=scales,
    )


def _decoder(num_blocks: int) -> Callable[[Bytes], Tensor]:
    def decode(data: Bytes) -> Tensor:
        """Turn rows of blocks, followed by their scales, into numbers."""
        blocks = data[:, : num_blocks * _BLOCK_BYTES].reshape(-1, _BLOCK_BYTES)
        scales = data[:, num_blocks * _BLOCK_BYTES :].reshape(-1, 1, 1)
        return torch.from_numpy(_PAIRS[blocks]) * torch.from_numpy(_POWERS[scales])

    return decode
