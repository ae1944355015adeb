"""What a page needs to show a part of a very long reply: its blocks in sections of bounded size, and its headings.

Kept while the reply grows, so that asking costs nothing; a few numbers a section, whatever is in it.
"""

from __future__ import annotations

import html
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from app.block_log import PieceLog

SECTION_BLOCKS = 40
SECTION_CHARS = 12_000
"""A section ends with the block that reaches either."""

LINE_CHARS = 68
"""Of text on a line of the page, for estimates of height."""

_HEADING = re.compile(r"<h([1-6])[^>]*>(.*?)</h\1>", re.DOTALL)
_TAG = re.compile(r"<[^>]*>")


@dataclass(frozen=True)
class Section:
    """Blocks that are loaded together.

    Attributes:
        first: index of its first block; it ends where the next section begins.
        num_chars: of the text it shows.
        num_rows: lines it takes on a page of usual width, roughly.
    """

    first: int
    num_chars: int
    num_rows: int


@dataclass(frozen=True)
class Heading:
    """A heading, its text without any marks; `level` is 1 to 6."""

    block: int
    level: int
    text: str


class HeadingLog:
    """Headings in the order of the text, in a file as soon as they are many."""

    def __init__(self) -> None:
        self._pieces = PieceLog()

    def append(self, heading: Heading) -> None:
        """Add a heading."""
        self._pieces.append(f"{heading.block} {heading.level} {heading.text}")

    def __iter__(self) -> Iterator[Heading]:
        for number in range(len(self._pieces)):
            block, level, text = self._pieces[number].split(" ", 2)
            yield Heading(int(block), int(level), text)


class Outline:
    """The outline of blocks that are only ever appended.

    Attributes:
        headings: in the order of the text.
    """

    def __init__(self) -> None:
        self.headings = HeadingLog()
        self._num_blocks = 0
        self._firsts = array("q")
        self._num_chars = array("q")
        self._num_rows = array("q")

    def add(self, num_chars: int, block_html: str) -> None:
        """Take the next block, of so many characters of text."""
        if self._last_is_full():
            self._firsts.append(self._num_blocks)
            self._num_chars.append(0)
            self._num_rows.append(0)
        self._num_chars[-1] += num_chars
        self._num_rows[-1] += _num_rows(num_chars, block_html)
        for level, inside in _HEADING.findall(block_html):
            text = " ".join(html.unescape(_TAG.sub("", inside)).split())
            self.headings.append(Heading(self._num_blocks, int(level), text))
        self._num_blocks += 1

    def sections(self, first: int = 0) -> Iterator[Section]:
        """Yield the sections from a number on; the last may still grow."""
        for number in range(first, len(self._firsts)):
            yield Section(self._firsts[number], self._num_chars[number], self._num_rows[number])

    def _last_is_full(self) -> bool:
        if not self._firsts:
            return True
        return self._num_blocks - self._firsts[-1] >= SECTION_BLOCKS or self._num_chars[-1] >= SECTION_CHARS


def _num_rows(num_chars: int, block_html: str) -> int:
    own_lines = block_html.count("<li ") + block_html.count("<tr>") or block_html.count("\n")
    return max(-(-num_chars // LINE_CHARS), own_lines)
