"""Tensors of a Hugging Face folder as numbers: safetensors files only, never pickles, which can run code when opened.

Which tensor is which weight is `models.weight_names`; the format is `models.safetensors_header`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import torch

from backends.errors import ModelFileError
from models.mxfp4 import join_mxfp4
from models.safetensors_header import TensorEntry, read_entries
from models.stored_tensor import StoredTensor, plain_decoder

_FLOAT_TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def safetensors_tensors(files: Iterable[Path]) -> dict[str, StoredTensor]:
    """Return every tensor of the files by its name there; MXFP4 blocks and scales are one, named as the blocks.

    Raises:
        ModelFileError: a file is unreadable, truncated or damaged.
    """
    tensors = {name: _stored(path, name, entry) for path in files for name, entry in read_entries(path).items()}
    return join_mxfp4(tensors)


def _stored(path: Path, name: str, entry: TensorEntry) -> StoredTensor:
    dtype = _FLOAT_TYPES.get(entry.encoding)
    if entry.num_bytes < 0 or (dtype is not None and entry.num_bytes != entry.num_elements * dtype.itemsize):
        raise ModelFileError(
            f"{path} gives {name} {entry.num_bytes:,} bytes for shape {entry.shape}.", "Download it again."
        )
    num_rows = math.prod(entry.shape[:-1])
    return StoredTensor(
        name=name,
        path=path,
        offset=entry.offset,
        shape=entry.shape,
        row_bytes=entry.num_bytes // num_rows if num_rows else 0,
        encoding=entry.encoding,
        decode=None if dtype is None else plain_decoder(dtype),
    )
