"""Rendered replies, shared by every tab: each reply is rendered once, as far as it has grown."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from app.folded_transcript import FoldedTranscript
from app.outline import Heading, Section

MAX_CHARS = 16_000_000
"""Text whose blocks are kept; the longest unused are dropped first and rendered again when asked for."""


@dataclass(frozen=True)
class BlockSlice:
    """Finished blocks [first, first + len(blocks)) of a reply, and the open end if they reach it.

    Attributes:
        first: index of the first block given.
        blocks: sanitised HTML.
        open_html: of the text after the last finished block; None where more finished blocks follow.
        num_blocks: finished blocks there are.
        num_chars: of the text that was rendered.
    """

    first: int
    blocks: list[str]
    open_html: str | None
    num_blocks: int
    num_chars: int


@dataclass(frozen=True)
class OutlineSlice:
    """Sections from one on, as far as the text is rendered; see `app.outline`.

    Attributes:
        sections: the last may still grow, so it is given only together with the open end.
        num_blocks: of all sections up to here.
        num_reasoning_blocks: of these, from the first on.
        open_html: of the text after the last finished block; None while there is text still to be rendered.
        num_chars, num_chars_rendered: of the text, and how many of them are in blocks.
    """

    sections: list[Section]
    num_blocks: int
    num_reasoning_blocks: int
    open_html: str | None
    num_chars: int
    num_chars_rendered: int


class Transcripts:
    """Transcripts by message. Thread-safe.

    Args:
        edition_of: a number by message that changes when its text does otherwise than by growing at its end.
        opening_of: mark of reasoning by message that its prompt ended with; asked once there is text.
    """

    def __init__(
        self,
        max_chars: int = MAX_CHARS,
        edition_of: Callable[[int], int] = lambda _: 0,
        opening_of: Callable[[int], str] = lambda _: "",
    ) -> None:
        self._max_chars = max_chars
        self._edition_of = edition_of
        self._opening_of = opening_of
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[int, int], tuple[FoldedTranscript, threading.Lock]] = OrderedDict()

    def slice(
        self,
        message_id: int,
        text_from: Callable[[int], str],
        first: int = 0,
        max_blocks: int | None = None,
        max_chars: int | None = None,
    ) -> BlockSlice:
        """Bring the message up to date with `text_from(characters known)` and return blocks from `first` on.

        At most `max_blocks` of them, and about `max_chars` characters of HTML, but at least one. Where finished blocks
        beyond all asked for are there already, the text is not looked at.
        """
        transcript, lock = self._entry(message_id)
        with lock:
            if max_blocks is None or first + max_blocks >= len(transcript.blocks):
                transcript.append(text_from(transcript.num_chars))
            blocks = [
                block.html for block in transcript.blocks[first : None if max_blocks is None else first + max_blocks]
            ]
            blocks = _within(blocks, max_chars)
            at_end = first + len(blocks) >= len(transcript.blocks)
            sliced = BlockSlice(
                first=first,
                blocks=blocks,
                open_html=transcript.open_html() if at_end else None,
                num_blocks=len(transcript.blocks),
                num_chars=transcript.num_chars,
            )
        self._drop_unused()
        return sliced

    def outline(
        self, message_id: int, text_from: Callable[[int], str], first_section: int, max_new_chars: int
    ) -> OutlineSlice:
        """Render at most so many characters more and return what is new of the outline; asked again, it goes on."""
        transcript, lock = self._entry(message_id)
        with lock:
            text = text_from(transcript.num_chars)
            num_chars = transcript.num_chars + len(text)
            transcript.append(text[:max_new_chars])
            complete = len(text) <= max_new_chars
            sections = list(transcript.outline.sections(first_section))
            num_blocks = len(transcript.blocks)
            if not complete and sections:
                num_blocks = sections.pop().first
            outline = OutlineSlice(
                sections=sections,
                num_blocks=num_blocks,
                num_reasoning_blocks=transcript.num_reasoning_blocks,
                open_html=transcript.open_html() if complete else None,
                num_chars=num_chars,
                num_chars_rendered=transcript.num_chars,
            )
        self._drop_unused()
        return outline

    def headings(self, message_id: int, text_from: Callable[[int], str]) -> list[Heading]:
        """Return the headings of a message's finished blocks."""
        transcript, lock = self._entry(message_id)
        with lock:
            transcript.append(text_from(transcript.num_chars))
            return list(transcript.outline.headings)

    def text_span(
        self, message_id: int, text_from: Callable[[int], str], first: int, num_blocks: int
    ) -> tuple[int, int]:
        """Return where in the message's text these blocks begin and end; the open end counts as one."""
        transcript, lock = self._entry(message_id)
        with lock:
            transcript.append(text_from(transcript.num_chars))
            return transcript.text_span(first, num_blocks)

    def block_at(self, message_id: int, text_from: Callable[[int], str], offset: int) -> int:
        """Return the index of the block that holds a character; beyond the finished ones, that of the open end."""
        transcript, lock = self._entry(message_id)
        with lock:
            transcript.append(text_from(transcript.num_chars))
            return transcript.block_at(offset)

    def code(self, message_id: int, text_from: Callable[[int], str], number: int) -> str:
        """Return the text of a code frame. Raises IndexError if there is none of that number."""
        transcript, lock = self._entry(message_id)
        with lock:
            transcript.append(text_from(transcript.num_chars))
            return transcript.code(number)

    def _entry(self, message_id: int) -> tuple[FoldedTranscript, threading.Lock]:
        key = (message_id, self._edition_of(message_id))
        with self._lock:
            if key not in self._entries:
                self._entries[key] = (FoldedTranscript(lambda: self._opening_of(message_id)), threading.Lock())
            self._entries.move_to_end(key)
            return self._entries[key]

    def _drop_unused(self) -> None:
        with self._lock:
            total = sum(transcript.num_chars for transcript, _ in self._entries.values())
            while total > self._max_chars and len(self._entries) > 1:
                _, (transcript, _) = self._entries.popitem(last=False)
                total -= transcript.num_chars


def _within(blocks: list[str], max_chars: int | None) -> list[str]:
    if max_chars is None:
        return blocks
    size = 0
    for number, block in enumerate(blocks):
        size += len(block)
        if size > max_chars:
            return blocks[: max(number, 1)]
    return blocks
