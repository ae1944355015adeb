"""Text that only grows: cheap to append to, cheap to read from any offset, whatever its length."""

from __future__ import annotations

from bisect import bisect_right

_BLOCK_CHARS = 65_536


class TextLog:
    """Append-only text in pieces; small pieces are joined into blocks of 64k characters, once each."""

    def __init__(self, text: str = "") -> None:
        self._pieces: list[str] = []
        self._starts: list[int] = []
        self._first_small = 0
        self.num_chars = 0
        self.append(text)

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
            ValueError: the offset is negative.
        """
        if offset < 0:
            raise ValueError(f"offset {offset} is negative; the text starts at 0")
        if offset >= self.num_chars:
            return ""
        piece = bisect_right(self._starts, offset) - 1
        return "".join(self._pieces[piece:])[offset - self._starts[piece] :]

    def _join_small_pieces(self) -> None:
        self._pieces[self._first_small :] = ["".join(self._pieces[self._first_small :])]
        del self._starts[self._first_small + 1 :]
        self._first_small += 1
