"""Which safetensors files a Hugging Face folder has and what their headers say, without torch and without the weights.

Format: 8 bytes of header length, a JSON header of names, types, shapes and offsets, then the bytes
(https://huggingface.co/docs/safetensors).
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends.errors import ModelFileError
from models.links import refuse_dangling

INDEX_NAME = "model.safetensors.index.json"
_MAX_HEADER_BYTES = 100_000_000  # the limit of the reference implementation
_LFS_POINTER = b"version "
_SHARD_NAME = re.compile(r"-(\d{5})-of-(\d{5})\.safetensors$")


@dataclass(frozen=True)
class TensorEntry:
    """One tensor as its header describes it.

    Attributes:
        encoding: the header's dtype ("BF16").
        offset: bytes from the start of the file.
        num_bytes: as stored.
    """

    encoding: str
    shape: tuple[int, ...]
    offset: int
    num_bytes: int

    @property
    def num_elements(self) -> int:
        return math.prod(self.shape)


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a model: those its index names, else `model.safetensors`, else all there are.

    Raises:
        ModelFileError: a file is missing or a link to nothing, there is none at all, or there are two sets of them.
    """
    refuse_dangling(sorted(folder.glob("*.safetensors*")))
    single = folder / "model.safetensors"
    if (folder / INDEX_NAME).is_file():
        names = sorted(set(_weight_map(folder).values()))
        if missing := [name for name in names if not (folder / name).is_file()]:
            raise ModelFileError(
                f"{folder} lacks {missing[0]}, one of {len(missing)} missing of {len(names)} weight files.",
                "Download it again.",
            )
        if single.is_file() and single.name not in names:
            raise _two_sets(folder, single.name, names[0])
        return [folder / name for name in names]
    files = [single] if single.is_file() else sorted(path for path in folder.glob("*.safetensors") if path.is_file())
    if files:
        _check_one_set(folder, files)
        return files
    pickles = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in folder.glob(pattern))
    if pickles:
        raise ModelFileError(
            f"{folder} holds its weights as {pickles[0]}, which can run code when opened.",
            "Get the model in the safetensors format.",
        )
    raise ModelFileError(f"{folder} holds no weights (*.safetensors).", "Download the model again.")


def _check_one_set(folder: Path, files: list[Path]) -> None:
    """Check files that no index lists: one whole set of shards, or none of them a shard.

    Raises:
        ModelFileError: some are of another set, or one is missing.
    """
    sets: dict[str, list[Path]] = {}
    for path in files:
        match = _SHARD_NAME.search(path.name)
        sets.setdefault(path.name[: match.start()] + match[2] if match else "", []).append(path)
    if len(sets) > 1:
        first, other, *_ = sets.values()
        raise _two_sets(folder, first[0].name, other[0].name)
    if (match := _SHARD_NAME.search(files[0].name)) is not None and len(files) != int(match[2]):
        raise ModelFileError(
            f"{folder} holds {len(files)} of the {int(match[2])} files that {files[0].name} is one of.",
            "Download it again.",
        )


def _two_sets(folder: Path, one: str, other: str) -> ModelFileError:
    return ModelFileError(
        f"{folder} holds two sets of weights, {one} and {other}, and nothing says which is right.",
        "Move the files of one of them elsewhere.",
    )


def read_folder(folder: Path, files: Iterable[Path]) -> dict[Path, dict[str, TensorEntry]]:
    """Return what each weight file of a folder holds, checked against its index and against each other.

    Raises:
        ModelFileError: see `read_entries`; a file lacks a tensor that the index says it holds, or two hold the same.
    """
    found = {path: read_entries(path) for path in files}
    if (folder / INDEX_NAME).is_file():
        for tensor, name in _weight_map(folder).items():
            if tensor not in found[folder / name]:
                raise ModelFileError(
                    f"{folder / name} lacks {tensor}, which {INDEX_NAME} says it holds.", "Download it again."
                )
    holders: dict[str, Path] = {}
    for path, entries in found.items():
        for tensor in entries:
            if (holder := holders.setdefault(tensor, path)) != path:
                raise ModelFileError(
                    f"{holder} and {path.name} both hold {tensor}: they are of different sets of weights.",
                    "Download the model again into an empty folder.",
                )
    return found


def read_entries(path: Path) -> dict[str, TensorEntry]:
    """Return what a safetensors file holds, by tensor name.

    Raises:
        ModelFileError: the file is unreadable, truncated, a git-lfs pointer or no safetensors file.
    """
    header, data_start = _read_header(path)
    size = path.stat().st_size - data_start
    entries = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        try:
            start, stop = (int(offset) for offset in entry["data_offsets"])
            shape = tuple(map(int, entry["shape"]))
            entries[name] = TensorEntry(str(entry["dtype"]), shape, data_start + start, stop - start)
        except (KeyError, TypeError, ValueError) as error:
            raise ModelFileError(f"{path} describes {name} badly: {error}.", "Download it again.") from error
        if stop > size:
            raise ModelFileError(
                f"{path} is truncated: {name} ends {stop - size:,} bytes after it.", "Download it again."
            )
    return entries


def _weight_map(folder: Path) -> dict[str, str]:
    """Return tensor -> file as the folder's index says."""
    index = folder / INDEX_NAME
    try:
        names = json.loads(index.read_text("utf-8"))["weight_map"]
        # Only plain names: an index must not reach outside its folder.
        return {str(tensor): Path(str(file)).name for tensor, file in names.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelFileError(f"{index} is not a safetensors index: {error}.", "Download it again.") from error


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
