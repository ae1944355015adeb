"""Text that only grows: cheap to append to, cheap to read from any offset, and its beginning can be let go."""

from __future__ import annotations

from bisect import bisect_right

_BLOCK_CHARS = 16_384


class TextLog:
    """Append-only text in pieces; small pieces are joined into blocks of 16k characters, once each.

    Args:
        num_chars: of a text before it, which is held elsewhere.

    Attributes:
        num_chars: of the whole text.
    """

    def __init__(self, text: str = "", num_chars: int = 0) -> None:
        self._pieces: list[str] = []
        self._starts: list[int] = []
        self._first_small = 0
        self.num_chars = num_chars
        self.append(text)

    @property
    def start(self) -> int:
        """Offset of the first character held."""
        return self._starts[0] if self._starts else self.num_chars

    def append(self, text: str) -> None:
        """Add text at the end."""
        if not text:
            return
        self._pieces.append(text)
        self._starts.append(self.num_chars)
        self.num_chars += len(text)
        if self.num_chars - self._starts[self._first_small] >= _BLOCK_CHARS:
            self._join_small_pieces()

    def text_from(self, offset: int) -> str:
        """Return the characters from `offset` on; none if it lies at or beyond the end.

        Raises:
            ValueError: the offset is negative, or lies before what is held.
        """
        if offset < 0:
            raise ValueError(f"offset {offset} is negative; the text starts at 0")
        if offset >= self.num_chars:
            return ""
        if offset < self.start:
            raise ValueError(f"offset {offset} lies before {self.start}, where the text held here begins")
        piece = bisect_right(self._starts, offset) - 1
        return "".join(self._pieces[piece:])[offset - self._starts[piece] :]

    def let_go(self, offset: int) -> None:
        """Forget blocks that end at or before an offset."""
        num_gone = 0
        while num_gone < self._first_small and self._end(num_gone) <= offset:
            num_gone += 1
        del self._pieces[:num_gone], self._starts[:num_gone]
        self._first_small -= num_gone

    def _end(self, piece: int) -> int:
        return self._starts[piece + 1] if piece + 1 < len(self._starts) else self.num_chars

    def _join_small_pieces(self) -> None:
        self._pieces[self._first_small :] = ["".join(self._pieces[self._first_small :])]
        del self._starts[self._first_small + 1 :]
        self._first_small += 1
