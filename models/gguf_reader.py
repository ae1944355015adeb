"""A GGUF file as metadata and tensor places, read over a memory map without touching the weights.

`gguf.GGUFReader` builds one array per vocabulary string and takes 21 s to open a model with 262,144 of them; this
reader walks the same bytes in well under a second and decodes a value only when it is asked for. It knows the container
only: what the keys mean is `models.gguf_config`, how blocks become numbers is `models.gguf_weights`.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little endian).
"""

from __future__ import annotations

import hashlib
import math
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from backends.errors import ModelFileError
from models.ggml_types import GGML_TYPES

_SCALARS: dict[int, struct.Struct] = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_STRING, _ARRAY = 8, 9
SCALAR_NAMES = dict(
    zip(_SCALARS, ("u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "u64", "i64", "f64"), strict=True)
)
"""How GGUF's own tools name the types of single numbers."""
_U32, _U64 = _SCALARS[4], _SCALARS[10]
_MAX_DIMS = 8  # ggml allows 4; more means that we are reading noise
_LFS_POINTER = b"version https://git-lfs"
_SHARD_NAME = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


@dataclass(frozen=True)
class GgufTensor:
    """Where one tensor lies.

    Attributes:
        name: as the file spells it ("blk.0.attn_q.weight").
        shape: in numpy order, rows first: (out_features, in_features) for a linear layer.
        ggml_type: name in `GGML_TYPES` ("Q4_K").
        offset: bytes from the start of its file.
        num_bytes: as stored.
        shard: index of its file in a split model; 0 for a single file.
    """

    name: str
    shape: tuple[int, ...]
    ggml_type: str
    offset: int
    num_bytes: int
    shard: int = 0

    @property
    def num_elements(self) -> int:
        return math.prod(self.shape)


class GgufFile:
    """An open GGUF model, of one file or several shards.

    Attributes:
        path: of the first (or only) file.
        paths: of every file.
        metadata: the first file's keys; a value is decoded when asked for. Strings are `str`, arrays of strings
            `list[str]`, arrays of numbers `numpy` views of the file.
        tensors: by name, in file order.
    """

    def __init__(self, shards: list[_Shard]) -> None:
        self.path = shards[0].path
        self.paths = tuple(shard.path for shard in shards)
        self.metadata = shards[0].metadata
        self.tensors = _joined(shards)
        self._maps = [shard.bytes for shard in shards]

    @property
    def architecture(self) -> str:
        """`general.architecture`; empty where the file does not say."""
        return str(self.metadata.get("general.architecture", ""))

    @property
    def tensor_bytes(self) -> int:
        """Bytes of all tensors, padding excluded."""
        return sum(tensor.num_bytes for tensor in self.tensors.values())

    def data(self, tensor: GgufTensor) -> npt.NDArray[np.uint8]:
        """Return the tensor's raw bytes, uint8 [num_bytes], a view of the memory map: nothing is read until used."""
        return self._maps[tensor.shard][tensor.offset : tensor.offset + tensor.num_bytes]


def read_gguf(path: str | Path) -> GgufFile:
    """Open a GGUF model; of a split one (`-00001-of-00003.gguf`), open every shard.

    Raises:
        ModelFileError: the file is missing, empty, truncated, a git-lfs pointer, not GGUF, or a version, byte order
            or tensor type this reader does not know.
    """
    return GgufFile([_Shard(shard, index) for index, shard in enumerate(shard_paths(Path(path)))])


def _joined(shards: list[_Shard]) -> dict[str, GgufTensor]:
    """Return the tensors of all shards by name.

    Raises:
        ModelFileError: a shard says that it is another one, or a tensor stands twice: files of two models were mixed.
    """
    tensors: dict[str, GgufTensor] = {}
    for index, shard in enumerate(shards):
        number, count = shard.metadata.get("split.no", index), shard.metadata.get("split.count", len(shards))
        if (number, count) != (index, len(shards)) and len(shards) > 1:
            raise ModelFileError(
                f"{shard.path} is file {number + 1} of {count} by its own keys, and file {index + 1} of {len(shards)} "
                "by its name.",
                "Download the model again.",
            )
        for tensor in shard.tensors:
            if (other := tensors.setdefault(tensor.name, tensor)) is not tensor:
                raise ModelFileError(
                    f"{shards[other.shard].path} and {shard.path.name} both hold {tensor.name}: they are of different "
                    "models.",
                    "Download the model again.",
                )
    return tensors


def shard_paths(path: Path) -> list[Path]:
    """Return every file of the split model that `path` belongs to, in order; [path] for a single file."""
    match = _SHARD_NAME.search(path.name)
    if match is None:
        return [path]
    stem, total = path.name[: match.start()], int(match[2])
    return [path.with_name(f"{stem}-{number:05}-of-{total:05}.gguf") for number in range(1, total + 1)]


def fingerprint(*paths: str | Path) -> str:
    """Return 32 hex digits that change when the files do (of a split GGUF file, all its shards).

    Hashes size, time of last change, the head and 64 samples of each file, so it costs milliseconds at any size.
    """
    digest = hashlib.sha256()
    for file_path in dict.fromkeys(shard for path in paths for shard in shard_paths(Path(path))):
        try:
            stat = file_path.stat()
            digest.update(struct.pack("<QQ", stat.st_size, stat.st_mtime_ns))
            with file_path.open("rb") as file:
                for sample in range(65):
                    file.seek(stat.st_size * sample // 65)
                    digest.update(file.read(65_536 if sample == 0 else 4_096))
        except OSError as error:
            raise _unreadable(file_path, error) from error
    return digest.hexdigest()[:32]


class GgufMetadata(Mapping[str, Any]):
    """Keys with the places of their values; decodes on demand and keeps what it decoded."""

    def __init__(self, cursor: _Cursor) -> None:
        self._cursor = cursor
        self._places: dict[str, tuple[int, int]] = {}
        self._values: dict[str, Any] = {}

    def add(self, key: str, value_type: int, offset: int) -> None:
        self._places[key] = (value_type, offset)

    def scalar_name(self, key: str) -> str | None:
        """Return the type of a single number ("u32", see `SCALAR_NAMES`); None for a text or a list."""
        return SCALAR_NAMES.get(self._places[key][0])

    def __getitem__(self, key: str) -> Any:
        if key not in self._values:
            value_type, offset = self._places[key]
            self._values[key] = self._cursor.at(offset).value(value_type)
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


class _Cursor:
    """A place in the mapped bytes that moves forward as values are read or skipped."""

    def __init__(self, path: Path, view: memoryview, offset: int = 0) -> None:
        self.path = path
        self.view = view
        self.offset = offset

    def at(self, offset: int) -> _Cursor:
        return _Cursor(self.path, self.view, offset)

    def scalar(self, kind: struct.Struct) -> Any:
        start = self.offset
        self._advance(kind.size)
        return kind.unpack_from(self.view, start)[0]

    def string(self) -> str:
        length = self.scalar(_U64)
        start = self.offset
        self._advance(length)
        return str(self.view[start : self.offset], "utf-8", "replace")

    def value(self, value_type: int) -> Any:
        if value_type == _STRING:
            return self.string()
        if value_type != _ARRAY:
            return self.scalar(self._kind(value_type))
        item_type, count = self.scalar(_U32), self.scalar(_U64)
        if item_type == _STRING:
            return [self.string() for _ in range(count)]
        if item_type == _ARRAY:
            return [self.value(_ARRAY) for _ in range(count)]
        kind, start = self._kind(item_type), self.offset
        self._advance(kind.size * count)
        return np.frombuffer(self.view, dtype=np.dtype(kind.format), count=count, offset=start)

    def skip(self, value_type: int) -> None:
        if value_type == _STRING:
            self._skip_strings(1)
        elif value_type != _ARRAY:
            self._advance(self._kind(value_type).size)
        else:
            item_type, count = self.scalar(_U32), self.scalar(_U64)
            if item_type == _STRING:
                self._skip_strings(count)
            elif item_type == _ARRAY:
                for _ in range(count):
                    self.skip(_ARRAY)
            else:
                self._advance(self._kind(item_type).size * count)

    def _skip_strings(self, count: int) -> None:
        # The hot loop of opening a file: half a million vocabulary and merge strings, hence the local names.
        unpack, view, offset, end = _U64.unpack_from, self.view, self.offset, len(self.view) - 8
        for _ in range(count):
            if offset > end:
                break
            offset += 8 + unpack(view, offset)[0]
        else:
            self._advance(offset - self.offset)
            return
        self._advance(len(self.view) + 1)

    def _advance(self, num_bytes: int) -> None:
        self.offset += num_bytes
        if self.offset > len(self.view):
            raise ModelFileError(
                f"{self.path} ends before its header does: it is truncated or damaged.", "Download it again."
            )

    def _kind(self, value_type: int) -> struct.Struct:
        if value_type not in _SCALARS:
            raise ModelFileError(
                f"{self.path} holds metadata of unknown type {value_type}: it is damaged or newer than this reader.",
                "Download it again.",
            )
        return _SCALARS[value_type]


class _Shard:
    """One GGUF file: its map, metadata and tensor places."""

    def __init__(self, path: Path, index: int) -> None:
        self.path = path
        self.bytes = _map_bytes(path)
        cursor = _Cursor(path, self.bytes.data)
        num_tensors, num_keys = _read_preamble(cursor)
        metadata = GgufMetadata(cursor)
        for _ in range(num_keys):
            key, value_type = cursor.string(), cursor.scalar(_U32)
            metadata.add(key, value_type, cursor.offset)
            cursor.skip(value_type)
        self.metadata = metadata
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise ModelFileError(f"{path} is damaged: its alignment is {alignment!r}.", "Download it again.")
        self.tensors = _read_tensors(cursor, num_tensors, index, alignment)


def _map_bytes(path: Path) -> np.memmap[Any, np.dtype[np.uint8]]:
    try:
        with path.open("rb") as file:
            head = file.read(len(_LFS_POINTER))
        if head == _LFS_POINTER:
            raise ModelFileError(
                f"{path} is a git-lfs pointer, not the model itself.", "Run `git lfs pull` in its folder."
            )
        if head[:4] != b"GGUF":
            raise ModelFileError(f"{path} is not a GGUF file: it does not begin with the letters GGUF.")
        return np.memmap(path, dtype=np.uint8, mode="r")
    except OSError as error:
        raise _unreadable(path, error) from error


def _read_preamble(cursor: _Cursor) -> tuple[int, int]:
    """Return (tensors, metadata keys) after checking version and byte order."""
    cursor.offset = 4
    version = cursor.scalar(_U32)
    if version & 0xFFFF == 0:
        raise ModelFileError(f"{cursor.path} is a big-endian GGUF file, which is not supported.", "Convert it again.")
    if version not in (2, 3):
        raise ModelFileError(f"{cursor.path} is GGUF version {version}; only 2 and 3 are read.", "Convert it again.")
    return cursor.scalar(_U64), cursor.scalar(_U64)


def _read_tensors(cursor: _Cursor, count: int, shard: int, alignment: int) -> list[GgufTensor]:
    infos = [_read_tensor_info(cursor) for _ in range(count)]
    base = -(-cursor.offset // alignment) * alignment
    tensors = [_place(cursor.path, info, base, shard) for info in infos]
    size = len(cursor.view)
    for tensor in tensors:
        if tensor.offset + tensor.num_bytes > size:
            raise ModelFileError(
                f"{cursor.path} is truncated: {tensor.name} ends at byte {tensor.offset + tensor.num_bytes:,} "
                f"of a file of {size:,}.",
                "Download it again.",
            )
    return tensors


def _read_tensor_info(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    name, num_dims = cursor.string(), cursor.scalar(_U32)
    if num_dims > _MAX_DIMS:
        raise ModelFileError(f"{cursor.path} is damaged: {name!r} claims {num_dims} dimensions.", "Download it again.")
    shape = tuple(cursor.scalar(_U64) for _ in range(num_dims))[::-1]
    return name, shape, cursor.scalar(_U32), cursor.scalar(_U64)


def _place(path: Path, info: tuple[str, tuple[int, ...], int, int], base: int, shard: int) -> GgufTensor:
    name, shape, type_number, offset = info
    if type_number not in GGML_TYPES:
        raise ModelFileError(f"{path} stores {name} in ggml type {type_number}, which is not known here.")
    type_name, block_elements, block_bytes = GGML_TYPES[type_number]
    row = shape[-1] if shape else 1
    if row % block_elements:
        raise ModelFileError(f"{path} is damaged: rows of {name} hold {row} elements, no multiple of {block_elements}.")
    num_bytes = math.prod(shape) // block_elements * block_bytes
    return GgufTensor(name, shape, type_name, base + offset, num_bytes, shard)


def _unreadable(path: Path, error: OSError) -> ModelFileError:
    if isinstance(error, FileNotFoundError):
        return ModelFileError(f"There is no file {path}.")
    return ModelFileError(f"{path} cannot be read: {error.strerror or error}.")
