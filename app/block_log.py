"""Finished blocks of a growing text, in a file as soon as they are many: memory stays flat however long it gets."""

from __future__ import annotations

import contextlib
import tempfile
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, overload

from models.folders import cache_folder

HELD_BYTES = 262_144
"""Of a text log, in memory; beyond it a file takes everything."""


@dataclass(frozen=True)
class Block:
    """One finished block: characters [start, end) of the text, as sanitised HTML."""

    start: int
    end: int
    html: str


class PieceLog:
    """Texts that are only appended and read by number. Where no file can be had, they stay in memory."""

    def __init__(self) -> None:
        self._ends = array("q")
        self._file: IO[bytes] | None = None
        self._in_memory: dict[int, bytes] = {}
        self._num_bytes_held = 0

    def __len__(self) -> int:
        return len(self._ends)

    def append(self, text: str) -> None:
        """Add a text."""
        content = text.encode("utf-8", "surrogatepass")
        number, start = len(self._ends), self._end
        self._in_memory[number] = content
        self._num_bytes_held += len(content)
        self._ends.append(start + len(content))
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

    @property
    def _end(self) -> int:
        return self._ends[-1] if self._ends else 0

    def _write_out(self) -> None:
        with contextlib.suppress(OSError):  # the disk is full: later, perhaps
            if self._file is None:
                folder = cache_folder()
                folder.mkdir(parents=True, exist_ok=True)
                self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - as long as the log
            first = min(self._in_memory)
            self._file.seek(self._ends[first - 1] if first else 0)
            self._file.write(b"".join(self._in_memory.values()))
            self._file.flush()
            self._in_memory.clear()
            self._num_bytes_held = 0


class BlockLog(Sequence[Block]):
    """Blocks in order, read like a list."""

    def __init__(self) -> None:
        self._starts = array("q")
        self._ends = array("q")
        self._html = PieceLog()

    def append(self, block: Block) -> None:
        """Add a block."""
        self._starts.append(block.start)
        self._ends.append(block.end)
        self._html.append(block.html)

    @property
    def end(self) -> int:
        """Where the last block ends; 0 if there is none."""
        return self._ends[-1] if self._ends else 0

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
        return Block(self._starts[number], self._ends[number], self._html[number])
