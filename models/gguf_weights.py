"""Tensors of a GGUF file as numbers: plain types through torch, block types through the gguf package.

Which tensor is which weight is `models.weight_names`; the container is `models.gguf_reader`.
"""

from __future__ import annotations

import math

import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

from models.gguf_reader import GgufFile, GgufTensor
from models.stored_tensor import Bytes, Decode, StoredTensor, plain_decoder

_PLAIN_TYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "F64": torch.float64}
_LEGACY_TYPES = {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4"}
_K_TYPES = {"Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "TQ1_0", "TQ2_0"}
_I_TYPES = {"IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS"}
_BLOCK_TYPES = _LEGACY_TYPES | _K_TYPES | _I_TYPES


def gguf_tensors(file: GgufFile) -> dict[str, StoredTensor]:
    """Return every tensor of the file by its name there."""
    return {name: _stored(file, tensor) for name, tensor in file.tensors.items()}


def _stored(file: GgufFile, tensor: GgufTensor) -> StoredTensor:
    path = file.paths[tensor.shard]
    num_rows = math.prod(tensor.shape[:-1])
    return StoredTensor(
        name=tensor.name,
        path=path,
        offset=tensor.offset,
        shape=tensor.shape,
        row_bytes=tensor.num_bytes // num_rows if num_rows else 0,
        encoding=tensor.ggml_type,
        decode=_decoder(tensor),
    )


def _decoder(tensor: GgufTensor) -> Decode | None:
    if tensor.ggml_type in _PLAIN_TYPES:
        return plain_decoder(_PLAIN_TYPES[tensor.ggml_type])
    if tensor.ggml_type not in _BLOCK_TYPES:
        return None
    block_type = GGMLQuantizationType[tensor.ggml_type]

    def decode(data: Bytes) -> torch.Tensor:
        return torch.from_numpy(dequantize(data, block_type))

    return decode
