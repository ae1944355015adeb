"""Tokens to text one at a time: whole characters only, nothing lost, at the same cost however long the reply."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Protocol

_LONGEST_CHARACTER_BYTES = 4


class Pieces(Protocol):
    """Bytes of each token, as `models.token_pieces.TokenPieces` knows them."""

    @property
    def strips_first_space(self) -> bool: ...

    def __getitem__(self, token_id: int) -> bytes: ...


class HasPieces(Protocol):
    """A tokenizer that knows its tokens as bytes."""

    @property
    def pieces(self) -> Pieces: ...


class StreamDecoder:
    """Text of one reply as its tokens come.

    The concatenation of every `push` and the `flush` is decode(prompt + generated) without decode(prompt). It holds at
    most three bytes: those of a character that has begun. A reply that continues one cut inside a character takes those
    bytes up from the end of the prompt.
    """

    def __init__(self, tokenizer: HasPieces, prompt_ids: Sequence[int]) -> None:
        self._pieces = tokenizer.pieces
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._at_start = self._pieces.strips_first_space and not any(self._pieces[token] for token in prompt_ids)
        self._utf8.decode(_last_bytes(self._pieces, prompt_ids))

    def push(self, token_id: int) -> str:
        """Return the characters this token completes, often one or more, sometimes none."""
        return self._strip_first(self._utf8.decode(self._pieces[token_id]))

    def flush(self) -> str:
        """Return what stands for a character that was cut off: U+FFFD, as decoding the whole would."""
        return self._strip_first(self._utf8.decode(b"", final=True))

    def _strip_first(self, text: str) -> str:
        if self._at_start and text:
            self._at_start = False
            return text.removeprefix(" ")
        return text


def decode(pieces: Pieces, token_ids: Iterable[int]) -> str:
    """Return the text of a whole sequence; bytes that are no character become U+FFFD."""
    text = b"".join(map(pieces.__getitem__, token_ids)).decode("utf-8", "replace")
    return text.removeprefix(" ") if pieces.strips_first_space else text


def _last_bytes(pieces: Pieces, token_ids: Sequence[int]) -> bytes:
    """Return the last bytes of a sequence from a character's first byte on, enough to know whether one was cut."""
    tail = b""
    for piece in map(pieces.__getitem__, reversed(token_ids)):
        tail = piece + tail
        if len(tail) >= _LONGEST_CHARACTER_BYTES:
            break
    for start in islice(range(len(tail) - 1, -1, -1), _LONGEST_CHARACTER_BYTES):
        if tail[start] & 0xC0 != 0x80:  # not a continuation byte: a character begins here
            return tail[start:]
    return b""
