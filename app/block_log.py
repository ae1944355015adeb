"""Finished blocks of a growing text, in a file as soon as they are many: memory stays flat however long it gets."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, overload

from models.folders import cache_folder

HELD_BYTES = 262_144
"""Of a text log, in memory; beyond it a file takes everything."""

HELD_NUMBERS = 4_096
"""Of a number log, in memory likewise."""

_NUMBER_BYTES = 8


@dataclass(frozen=True)
class Block:
    """One finished block: characters [start, end) of the text, as sanitised HTML."""

    start: int
    end: int
    html: str


class NumberLog:
    """Whole numbers that are only appended and read by place. Where no file can be had, they stay in memory."""

    def __init__(self) -> None:
        self._held = array("q")
        self._num_written = 0
        self._file: IO[bytes] | None = None

    def __len__(self) -> int:
        return self._num_written + len(self._held)

    def append(self, number: int) -> None:
        """Add a number."""
        self._held.append(number)
        if len(self._held) % HELD_NUMBERS == 0:
            self._write_out()

    def __getitem__(self, place: int) -> int:
        """Return the number at a place, counted from 0."""
        if place >= self._num_written:
            return self._held[place - self._num_written]
        assert self._file is not None, "what is not in memory was written"
        self._file.seek(place * _NUMBER_BYTES)
        return int.from_bytes(self._file.read(_NUMBER_BYTES), sys.byteorder, signed=True)

    def _write_out(self) -> None:
        with contextlib.suppress(OSError):  # the disk is full: later, perhaps
            self._file = self._file or _temporary_file()
            self._file.seek(self._num_written * _NUMBER_BYTES)
            self._file.write(self._held)
            self._file.flush()
            self._num_written += len(self._held)
            self._held = array("q")


class PieceLog:
    """Texts that are only appended and read by number. Where no file can be had, they stay in memory."""

    def __init__(self) -> None:
        self._ends = NumberLog()
        self._end = 0
        self._file: IO[bytes] | None = None
        self._in_memory: dict[int, bytes] = {}
        self._num_bytes_held = 0

    def __len__(self) -> int:
        return len(self._ends)

    def append(self, text: str) -> None:
        """Add a text."""
        content = text.encode("utf-8", "surrogatepass")
        self._in_memory[len(self._ends)] = content
        self._num_bytes_held += len(content)
        self._end += len(content)
        self._ends.append(self._end)
        if self._num_bytes_held > HELD_BYTES:
            self._write_out()

    def __getitem__(self, number: int) -> str:
        content = self._in_memory.get(number)
        if content is None:
            assert self._file is not None, "what is not in memory was written"
            start = self._ends[number - 1] if number else 0
            self._file.seek(start)
            content = self._file.read(self._ends[number] - start)
        return content.decode("utf-8", "surrogatepass")

    def _write_out(self) -> None:
        with contextlib.suppress(OSError):  # the disk is full: later, perhaps
            self._file = self._file or _temporary_file()
            first = min(self._in_memory)
            self._file.seek(self._ends[first - 1] if first else 0)
            self._file.write(b"".join(self._in_memory.values()))
            self._file.flush()
            self._in_memory.clear()
            self._num_bytes_held = 0


class BlockLog(Sequence[Block]):
    """Blocks in order, read like a list.

    Attributes:
        end: where the last block ends; 0 if there is none.
    """

    def __init__(self) -> None:
        self.end = 0
        self._ends = NumberLog()
        self._pieces = PieceLog()

    def append(self, block: Block) -> None:
        """Add a block."""
        self._pieces.append(f"{block.start} {block.html}")
        self._ends.append(block.end)
        self.end = block.end

    def at(self, offset: int) -> int:
        """Return the index of the block that holds a character; how many there are if none does yet."""
        return bisect_right(self._ends, offset)

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> Block: ...

    @overload
    def __getitem__(self, index: slice) -> list[Block]: ...

    def __getitem__(self, index: int | slice) -> Block | list[Block]:
        numbers = range(len(self))[index]
        if isinstance(numbers, range):
            return [self._block(number) for number in numbers]
        return self._block(numbers)

    def _block(self, number: int) -> Block:
        start, html = self._pieces[number].split(" ", 1)
        return Block(int(start), self._ends[number], html)


def _temporary_file() -> IO[bytes]:
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryFile(dir=folder)
    except OSError:  # it cannot be written: the system's own folder for such files serves as well
        return tempfile.TemporaryFile()
