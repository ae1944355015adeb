"""Tensors of a Hugging Face folder: safetensors files only, never pickles, which can run code when opened.

Format: 8 bytes of header length, a JSON header of names, types, shapes and offsets, then the bytes
(https://huggingface.co/docs/safetensors). Which tensor is which weight is `models.weight_names`.
"""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

import torch

from backends.errors import ModelFileError
from models.stored_tensor import StoredTensor, plain_decoder

_INDEX = "model.safetensors.index.json"
_FLOAT_TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_MAX_HEADER_BYTES = 100_000_000  # the limit of the reference implementation
_LFS_POINTER = b"version "


def folder_tensors(folder: Path) -> dict[str, StoredTensor]:
    """Return every tensor of the folder's safetensors files by its name there.

    With an index file, the files it names; otherwise `model.safetensors`, or the only safetensors files there are.

    Raises:
        ModelFileError: a file is missing, truncated or damaged, or the folder holds pickled weights only.
    """
    tensors: dict[str, StoredTensor] = {}
    for path in _weight_files(folder):
        tensors.update(_file_tensors(path))
    return tensors


def _weight_files(folder: Path) -> list[Path]:
    index = folder / _INDEX
    if index.is_file():
        paths = [folder / name for name in sorted(set(_weight_map(index).values()))]
        if missing := [path.name for path in paths if not path.is_file()]:
            raise ModelFileError(f"{folder} lacks {', '.join(missing)}, named in {_INDEX}.", "Download it again.")
        return paths
    single = folder / "model.safetensors"
    paths = [single] if single.is_file() else sorted(folder.glob("*.safetensors"))
    if not paths:
        pickles = [path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in folder.glob(pattern)]
        found = f"only {', '.join(pickles[:3])}, which can run code when opened" if pickles else "no weights"
        raise ModelFileError(f"{folder} holds {found}.", "Get the model in the safetensors format.")
    return paths


def _weight_map(index: Path) -> dict[str, str]:
    try:
        names = json.loads(index.read_text("utf-8"))["weight_map"]
        # Only plain names: an index must not reach outside its folder.
        return {str(tensor): Path(str(file)).name for tensor, file in names.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelFileError(f"{index} is not a safetensors index: {error}.", "Download it again.") from error


def _file_tensors(path: Path) -> dict[str, StoredTensor]:
    header, base = _read_header(path)
    size = path.stat().st_size - base
    return {name: _stored(path, name, entry, base, size) for name, entry in header.items() if name != "__metadata__"}


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    """Return the parsed header and the offset of the bytes behind it."""
    try:
        with path.open("rb") as file:
            start = file.read(8)
            if start == _LFS_POINTER:
                raise ModelFileError(f"{path} is a git-lfs pointer, not the weights.", "Run `git lfs pull` there.")
            (length,) = struct.unpack("<Q", start)
            if length > _MAX_HEADER_BYTES:
                raise ValueError(f"it claims a header of {length:,} bytes")
            header = json.loads(file.read(length))
        if not isinstance(header, dict):
            raise TypeError("its header is no table")
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, TypeError, struct.error) as error:
        raise ModelFileError(f"{path} is not a safetensors file: {error}.", "Download it again.") from error
    return header, 8 + length


def _stored(path: Path, name: str, entry: Any, base: int, size: int) -> StoredTensor:
    try:
        encoding, shape = str(entry["dtype"]), tuple(int(extent) for extent in entry["shape"])
        start, stop = (int(offset) for offset in entry["data_offsets"])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFileError(f"{path} describes {name} badly: {error}.", "Download it again.") from error
    if stop > size:
        raise ModelFileError(f"{path} is truncated: {name} ends {stop - size:,} bytes after it.", "Download it again.")
    if not 0 <= start <= stop:
        raise ModelFileError(f"{path} places {name} at bytes {start} to {stop}.", "Download it again.")
    dtype, num_rows = _FLOAT_TYPES.get(encoding), math.prod(shape[:-1])
    if dtype is not None and stop - start != math.prod(shape) * dtype.itemsize:
        raise ModelFileError(f"{path} gives {name} {stop - start:,} bytes for shape {shape}.", "Download it again.")
    row_bytes = (stop - start) // num_rows if num_rows else 0
    decode = None if dtype is None else plain_decoder(dtype)
    return StoredTensor(name, path, base + start, shape, row_bytes, encoding, decode)
