"""Tiny GGUF files written by gguf-py, key by key, for what the real models cannot show."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

Tensors = Mapping[str, Any]
"""name -> float32 array, rows first; or (raw uint8 array of rows, ggml type) for a quantised one."""

_NUMPY_KINDS = {
    "uint8": gguf.GGUFValueType.UINT8,
    "int8": gguf.GGUFValueType.INT8,
    "uint16": gguf.GGUFValueType.UINT16,
    "int16": gguf.GGUFValueType.INT16,
    "int32": gguf.GGUFValueType.INT32,
    "uint64": gguf.GGUFValueType.UINT64,
    "int64": gguf.GGUFValueType.INT64,
    "float64": gguf.GGUFValueType.FLOAT64,
}


def write_gguf(path: Path, architecture: str, metadata: Mapping[str, Any], tensors: Tensors | None = None) -> Path:
    """Write a file. Metadata keys starting with a dot get the architecture as prefix; values keep their Python kind,
    numpy's single numbers their width.
    """
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in metadata.items():
        _add(writer, architecture + key if key.startswith(".") else key, value)
    for name, tensor in (tensors or {}).items():
        data, raw_type = tensor if isinstance(tensor, tuple) else (np.ascontiguousarray(tensor, np.float32), None)
        writer.add_tensor(name, data, raw_dtype=raw_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: Any, key: str, value: Any) -> None:
    if isinstance(value, np.generic):
        writer.add_key_value(key, value.item(), _NUMPY_KINDS[value.dtype.name])
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)
