"""A growing reply as Markdown blocks: finished ones rendered once and never again, the open one as often as asked.

The screen of a long reply stays flat because of three bounds kept here: work per update is that of the open block,
the open block never exceeds `HARD_LIMIT_CHARS` (an endless fence, table, list or line is cut into parts), and finished
blocks are only ever appended. Where blocks begin and end depends on the text alone, not on how it arrived, so a block's
index is an offset that any tab can resume from. The store keeps the text; this is only a view of it.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from markdown_it.token import Token

from app.block_log import Block as Block
from app.block_log import BlockLog, PieceLog
from app.markdown import make_parser, render

SOFT_LIMIT_CHARS = 4_096
"""Open code, lists and paragraphs longer than this are cut where it does not show: between lines, between items."""

HARD_LIMIT_CHARS = 8_192
"""No open block is longer than this; beyond it, it is cut at a line's end, at a space, or right there."""

_PIECE_CHARS = 4_096
_NEWLINE = re.compile(r"\r\n?|\n")
_PARSER = make_parser()


class Transcript:
    """Blocks of one text that grows at its end. Not thread-safe: its owner serialises the calls."""

    def __init__(self) -> None:
        self.blocks = BlockLog()
        self.num_chars = 0
        self._tail = ""
        self._prefix = ""  # repeated in front of the tail while it goes on with a block that was cut
        self._references: dict[str, Any] = {}
        self._codes = PieceLog()
        self._code_starts = array("q")  # the first piece of each code frame; a cut frame has several
        self._open_html: str | None = ""
        self._open_codes: list[str] = []

    def append(self, text: str) -> None:
        """Take the text that came next and finish the blocks it ends."""
        for start in range(0, len(text), _PIECE_CHARS):
            piece = text[start : start + _PIECE_CHARS]
            ends_line = self._tail.endswith("\r")  # held back, since it might have been half of "\r\n"
            self._tail += piece
            if ends_line or "\n" in piece or "\r" in piece or len(self._tail) > HARD_LIMIT_CHARS:
                self._settle()
        self.num_chars += len(text)
        if text:
            self._open_html = None

    def end_block(self) -> None:
        """Finish the open end as it is, so that what comes next begins a block of its own."""
        if self._tail:
            self._finish(len(self._tail))
        self._prefix, self._open_html, self._open_codes = "", "", []

    def open_html(self) -> str:
        """Return the HTML of the text after the last finished block; empty if there is none."""
        if self._open_html is None:
            self._open_html, self._open_codes = self._render(self._tail)
        return self._open_html

    def code(self, number: int) -> str:
        """Return the text of a code frame by its number in this text, exactly, without fences.

        Raises:
            IndexError: there is no such frame (yet).
        """
        self.open_html()
        finished = self._finished_code(number)
        open_number = number - self._first_open_code()
        if 0 <= open_number < len(self._open_codes):
            return (finished or "") + self._open_codes[open_number]
        if finished is None:
            raise IndexError(f"no code frame {number}")
        return finished

    def _settle(self) -> None:
        """Finish every block that a later one has ended, then cut what is left while it is too long."""
        while True:
            source = self._prefix + self._tail
            outline = _Outline.of(source)
            shift = len(self._prefix)
            for start, end in pairwise([shift, *outline.starts[1:]]):
                self._finish(end - start)
            if len(outline.starts) > 1:
                continue
            cut = outline.cut(source)
            if cut is None or cut.length <= shift:
                return
            self._finish(cut.length - shift, cut.next_prefix)

    def _finish(self, length: int, next_prefix: str = "") -> None:
        source, self._tail = self._tail[:length], self._tail[length:]
        continues = bool(self._prefix)
        html, codes = self._render(source)
        for place, code in enumerate(codes):
            if place or not continues or not self._code_starts:
                self._code_starts.append(len(self._codes))
            self._codes.append(code)
        start = self.blocks.end
        self.blocks.append(Block(start, start + length, html))
        self._prefix = next_prefix

    def _finished_code(self, number: int) -> str | None:
        if not 0 <= number < len(self._code_starts):
            return None
        is_last = number + 1 == len(self._code_starts)
        end = len(self._codes) if is_last else self._code_starts[number + 1]
        return "".join(self._codes[part] for part in range(self._code_starts[number], end))

    def _render(self, source: str) -> tuple[str, list[str]]:
        env: dict[str, Any] = {
            "references": self._references,
            "first_code": self._first_open_code(),
            "continues": bool(self._prefix),
            "codes": [],
        }
        return render(_PARSER, self._prefix + source, env), env["codes"]

    def _first_open_code(self) -> int:
        """Return the number of the tail's first code frame: that of the frame before, if the tail goes on with it."""
        return max(len(self._code_starts) - bool(self._prefix), 0)


@dataclass(frozen=True)
class _Cut:
    """Where to end a block that is too long, and what to repeat in front of the rest."""

    length: int
    next_prefix: str = ""


@dataclass(frozen=True)
class _Outline:
    """Top-level blocks of a source, as far as its complete lines tell.

    Attributes:
        starts: offset of each block.
        lines: offset of each complete line, and of the end of the last.
        kind: token type of the last block; empty if there is none.
        items: offsets of its list items, if it is a list.
    """

    starts: list[int]
    lines: list[int]
    kind: str
    items: list[int]

    @classmethod
    def of(cls, source: str) -> _Outline:
        # a "\r" at the very end may be half of "\r\n"
        lines = [0, *(match.end() for match in _NEWLINE.finditer(source, 0, len(source) - source.endswith("\r")))]
        tokens: list[Token] = []
        _PARSER.block.parse(_NEWLINE.sub("\n", source[: lines[-1]]), _PARSER, {}, tokens)
        tops = [token for token in tokens if token.level == 0 and token.map]
        starts = [lines[token.map[0]] for token in tops if token.map]
        items = [token for token in tokens if token.type == "list_item_open" and token.level == 1 and token.map]
        last = starts[-1] if starts else 0
        return cls(
            starts=starts,
            lines=lines,
            kind=tops[-1].type if tops else "",
            items=[start for start in (lines[item.map[0]] for item in items if item.map) if start > last],
        )

    def cut(self, source: str) -> _Cut | None:
        """Return where to cut the last block; None while it is short enough."""
        start = self.starts[-1] if self.starts else 0
        if len(source) - start > HARD_LIMIT_CHARS and self.lines[-1] - start <= SOFT_LIMIT_CHARS:
            return self._hard_cut(source, start)
        if self.lines[-1] - start <= SOFT_LIMIT_CHARS:  # only complete lines have their final meaning
            return None
        soft_end = start + SOFT_LIMIT_CHARS
        match self.kind:
            case "fence":
                if end := _last_within(self.lines, start, soft_end):
                    return _Cut(end, source[start : self.lines[self.lines.index(start) + 1]])
            case "paragraph_open" | "code_block":
                if end := _last_within(self.lines, start, soft_end):
                    return _Cut(end)
            case "bullet_list_open" | "ordered_list_open":
                if end := _last_within(self.items, start, soft_end):
                    return _Cut(end)
        return self._hard_cut(source, start) if len(source) - start > HARD_LIMIT_CHARS else None

    def _hard_cut(self, source: str, start: int) -> _Cut:
        hard_end = start + HARD_LIMIT_CHARS
        if end := _last_within(self.lines, start, hard_end):
            if self.kind != "table_open":
                return _Cut(end)
            head_end = self.lines[self.lines.index(start) + 2]  # header and delimiter row
            return _Cut(end, source[start:head_end]) if end > head_end else _Cut(end)
        space = source.rfind(" ", start + 1, hard_end)
        return _Cut(space + 1 if space > start else hard_end)


def _last_within(offsets: list[int], start: int, end: int) -> int:
    """Return the last of the ascending offsets in (start, end]; 0 if there is none."""
    at = bisect_right(offsets, end) - 1
    return offsets[at] if at >= 0 and offsets[at] > start else 0
