"""A reply as blocks, its reasoning marked off so that a page can fold it away.

The reasoning comes first: a bar, blocks in `div.thinking`, and a line that counts its words once it has ended. The
answer follows as blocks like any. The text is taken apart by `models.reasoning`; the marks themselves are not shown.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import replace

from app.block_log import BlockLog
from app.markdown import plain
from app.outline import Outline
from app.transcript import Transcript
from models.reasoning import Piece, ReasoningSplitter

_BAR = '<div class="thinking-bar"><button class="fold" type="button" aria-expanded="false">Reasoning</button></div>'


class FoldedTranscript:
    """A `Transcript` of one text that grows at its end. Not thread-safe: its owner serialises the calls.

    Args:
        opening: returns the mark of reasoning that the prompt ended with; asked when the first text comes.

    Attributes:
        blocks: finished ones, only ever appended; their offsets leave out marks and white space around them.
        num_chars: of the text so far, marks and all.
        outline: sections and headings of the finished blocks.
    """

    def __init__(self, opening: Callable[[], str] = lambda: "") -> None:
        self.blocks = BlockLog()
        self.num_chars = 0
        self.outline = Outline()
        self._opening = opening
        self._splitter: ReasoningSplitter | None = None
        self._transcript = Transcript()
        self._pieces: list[tuple[int, int]] = []  # where pieces begin in the text, and in what the transcript holds
        self._num_words = 0
        self._in_word = False
        self._answer_at: int | None = None  # index of its first block

    def append(self, text: str) -> None:
        """Take the text that came next and finish the blocks it ends."""
        if not text:
            return
        if self._splitter is None:
            self._splitter = ReasoningSplitter(self._opening())
        self.num_chars += len(text)
        for piece in self._splitter.push(text):
            self._take(piece)

    def open_html(self) -> str:
        """Return the HTML of the text after the last finished block; empty if there is none."""
        html = self._transcript.open_html()
        if html or self._splitter is None or self._num_words:
            return self._dressed(html, len(self.blocks)) if html else ""
        return "".join(plain(piece.text) for piece in self._splitter.pending() if not piece.is_reasoning)

    def code(self, number: int) -> str:
        """Return the text of a code frame; see `Transcript.code`."""
        return self._transcript.code(number)

    def block_at(self, offset: int) -> int:
        """Return the index of the block that holds a character of the text; that of the open end if none does yet."""
        place = bisect_right(self._pieces, (offset, self.num_chars + 1)) - 1
        if place < 0:
            return 0
        start, held_start = self._pieces[place]
        next_held = self._pieces[place + 1][1] if place + 1 < len(self._pieces) else self._transcript.num_chars
        held = min(held_start + offset - start, max(next_held - 1, held_start))
        return self._transcript.blocks.at(held)

    def text_span(self, first: int, num_blocks: int) -> tuple[int, int]:
        """Return where the text of finished blocks begins and ends, marks and white space between them included."""
        offsets = range(self.num_chars)
        return (
            bisect_left(offsets, first, key=self.block_at),
            bisect_left(offsets, first + num_blocks, key=self.block_at),
        )

    @property
    def num_reasoning_blocks(self) -> int:
        """How many of the finished blocks, from the first on, are reasoning."""
        if not self._num_words:
            return 0
        return len(self.blocks) if self._answer_at is None else self._answer_at

    def _take(self, piece: Piece) -> None:
        if piece.is_reasoning:
            self._count_words(piece.text)
        elif self._answer_at is None:
            self._transcript.end_block()
            self._adopt()
            self._answer_at = len(self.blocks)
        self._note_place(piece.start)
        self._transcript.append(piece.text)
        self._adopt()

    def _adopt(self) -> None:
        """Take over the blocks that are new."""
        for block in self._transcript.blocks[len(self.blocks) :]:
            self.outline.add(block.end - block.start, block.html)
            self.blocks.append(replace(block, html=self._dressed(block.html, len(self.blocks))))

    def _dressed(self, html: str, index: int) -> str:
        """Return a block as it is shown: reasoning in its frame, with the bar before it and the count behind it."""
        if self._answer_at is None or index < self._answer_at:
            return f'{"" if index else _BAR}<div class="thinking">{html}</div>' if self._num_words else html
        if index > self._answer_at or not self._num_words:
            return html
        return f'<div class="thinking-end">{self._num_words:,} words of reasoning</div>{html}'

    def _count_words(self, text: str) -> None:
        num_words = len(text.split())
        self._num_words += num_words - (num_words > 0 and self._in_word and not text[0].isspace())
        self._in_word = not text[-1].isspace()

    def _note_place(self, start: int) -> None:
        """Remember where a piece begins, unless it goes on where the one before ended."""
        held = self._transcript.num_chars
        if not self._pieces or self._pieces[-1][0] - self._pieces[-1][1] != start - held:
            self._pieces.append((start, held))
