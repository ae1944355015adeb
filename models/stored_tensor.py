"""One tensor in a model file: where its rows lie and how their bytes become numbers.

Rows are read into memory of our own, a block at a time. A memory map would be shorter to write, but its pages count as
the process's memory, and a model would seem to need twice its size while it loads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from backends.errors import ModelFileError, UnsupportedModelError

Bytes = npt.NDArray[np.uint8]
_SLICE_ELEMENTS = 2**17  # decoded at a time: all of it fits the processor's cache, which makes it twice as fast
Decode = Callable[[Bytes], Tensor]
"""Turns the bytes of R rows, uint8 [R, row_bytes], into their R x row_elements numbers."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor as a matrix of rows: the last dimension is a row, the others count rows.

    Attributes:
        name: as the file spells it.
        path, offset: where its bytes begin.
        shape: of the tensor, () for a single number.
        row_bytes: bytes of one row.
        encoding: of the elements, as the file names it ("BF16", "Q4_K").
        decode: see `Decode`; None where no one here knows the encoding.
        tail: where a second part of every row's bytes lies, such as scales; `decode` gets it behind the first.
    """

    name: str
    path: Path
    offset: int
    shape: tuple[int, ...]
    row_bytes: int
    encoding: str
    decode: Decode | None
    tail: StoredTensor | None = None

    @property
    def row_elements(self) -> int:
        return self.shape[-1] if self.shape else 1

    @property
    def num_rows(self) -> int:
        return math.prod(self.shape[:-1])

    @property
    def num_bytes(self) -> int:
        """As stored."""
        return self.num_rows * self.row_bytes + (0 if self.tail is None else self.tail.num_bytes)

    def check_readable(self) -> None:
        """Raise UnsupportedModelError unless the encoding can be turned into numbers here; reads nothing."""
        if self.decode is None:
            raise UnsupportedModelError(
                f"{self.path} stores {self.name} as {self.encoding}, which the ring backend cannot read.",
                "Choose a version of the model in BF16, F16, F32 or a GGUF of the Q4, Q5, Q6, Q8 or IQ4 kinds.",
            )

    def part(self, start: int, stop: int) -> StoredTensor:
        """Return indices start .. stop - 1 of the first dimension of a tensor of two or more, as a tensor."""
        rows_each = self.num_rows // self.shape[0]
        offset = self.offset + start * rows_each * self.row_bytes
        tail = None if self.tail is None else self.tail.part(start, stop)
        return replace(self, offset=offset, shape=(stop - start, *self.shape[1:]), tail=tail)

    def at(self, index: int) -> StoredTensor:
        """Return one index of the first dimension of a tensor of two or more, as a tensor without that dimension."""
        one = self.part(index, index + 1)
        return replace(one, shape=one.shape[1:], tail=None if self.tail is None else self.tail.at(index))

    def whole(self) -> Tensor:
        """Read everything, in the tensor's shape."""
        slices = list(self.slices())
        return (slices[0] if len(slices) == 1 else torch.cat(slices)).reshape(self.shape)

    def slices(self) -> Iterator[Tensor]:
        """Read some rows a time, in order, [R, row_elements] each, at least one row, possibly none at all."""
        step = max(1, _SLICE_ELEMENTS // max(1, self.row_elements))
        for data in self._blocks(step):
            yield self.numbers(data)

    def _blocks(self, step: int) -> Iterator[Bytes]:
        """Read the bytes of `step` rows a time."""
        tails = None if self.tail is None else self.tail._blocks(step)
        with self._open() as file:
            for start in range(0, self.num_rows, step):
                data = np.empty((min(step, self.num_rows - start), self.row_bytes), dtype=np.uint8)
                self.read_into(file, data, start)
                yield data if tails is None else np.concatenate((data, next(tails)), axis=1)

    def picker(self) -> RowPicker:
        """Open the tensor for reading single rows again and again."""
        assert self.tail is None, "no embedding is stored in two parts"
        return RowPicker(self, self._open())

    def _open(self) -> BinaryIO:
        try:
            return self.path.open("rb", buffering=0)
        except OSError as error:
            raise ModelFileError(f"{self.path} cannot be read: {error.strerror}.") from error

    def numbers(self, data: Bytes) -> Tensor:
        """Turn the bytes of R rows into numbers, [R, row_elements]."""
        self.check_readable()
        assert self.decode is not None
        return self.decode(data).reshape(len(data), self.row_elements)

    def read_into(self, file: BinaryIO, data: Bytes, start: int) -> None:
        """Fill `data` with the bytes of the rows from `start` on."""
        file.seek(self.offset + start * self.row_bytes)
        view, done = data.reshape(-1).data, 0
        while done < len(view):
            count = file.readinto(view[done:])  # type: ignore[attr-defined]  # unbuffered files have it
            if not count:
                raise ModelFileError(f"{self.path} ends inside {self.name}: it is truncated.", "Download it again.")
            done += count


class RowPicker:
    """Reads rows of one tensor by index, keeping its file open."""

    def __init__(self, tensor: StoredTensor, file: BinaryIO) -> None:
        self._tensor = tensor
        self._file = file

    def __call__(self, indices: Sequence[int]) -> Tensor:
        """Return the rows, [len(indices), row_elements]."""
        tensor = self._tensor
        data = np.empty((len(indices), tensor.row_bytes), dtype=np.uint8)
        for place, index in enumerate(indices):
            tensor.read_into(self._file, data[place : place + 1], index)
        return tensor.numbers(data)

    def close(self) -> None:
        """Close the file; the picker is of no use afterwards."""
        self._file.close()


def plain_decoder(dtype: torch.dtype) -> Decode:
    """Return the decoder of a type that torch knows: it looks at the bytes through it."""

    def decode(data: Bytes) -> Tensor:
        return torch.from_numpy(data).view(dtype)

    return decode
