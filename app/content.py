"""What a message consists of: text, and which stretches of it the model drew (with the very ids) and which were typed.

A reply as it came is one drawn stretch after the other, one per piece of its journal. Editing replaces characters; the
stretches it does not touch keep their ids, so a long text that was cut or mended goes on from what was really drawn.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from app.steering import note_for_model


@dataclass(frozen=True)
class Span:
    """Characters that belong to `num_tokens` ids; typed by a person if there are none.

    A span of no characters holds the first part of a character that the next one ends.
    """

    num_chars: int
    num_tokens: int


@dataclass(frozen=True)
class Note:
    """A steering note at this place: the model saw it, the text does not show it."""

    text: str


Layout = tuple[Span | Note, ...]


@dataclass(frozen=True)
class Content:
    """A text with its ids.

    Attributes:
        text: exactly as typed or generated; notes are not in it.
        token_ids: of the drawn stretches, in order.
        layout: which is which; empty stands for one stretch, drawn if there are ids and typed if not.
    """

    text: str = ""
    token_ids: array[int] = field(default_factory=lambda: array("i"))
    layout: Layout = ()

    @property
    def stretches(self) -> Layout:
        """The layout, spelled out."""
        if self.layout or not (self.text or self.token_ids):
            return self.layout
        return (Span(len(self.text), len(self.token_ids)),)

    @property
    def is_plain(self) -> bool:
        """Whether all of it was drawn, or all typed, with no note in between."""
        return all(isinstance(each, Span) and bool(each.num_tokens or not self.token_ids) for each in self.stretches)

    def plus(self, other: Content) -> Content:
        """Return this content followed by another."""
        return Content(self.text + other.text, self.token_ids + other.token_ids, (*self.stretches, *other.stretches))

    def head(self, num_chars: int) -> Content:
        """Return the first characters, with what ids are surely theirs."""
        return self.spliced(num_chars, len(self.text), "")

    def tail(self, num_chars: int) -> Content:
        """Return everything after the first characters; a note right there belongs to the head."""
        rest = self.spliced(0, num_chars, "")
        notes_first = next((place for place, each in enumerate(rest.layout) if isinstance(each, Span)), 0)
        return Content(rest.text, rest.token_ids, rest.layout[notes_first:])

    def spliced(self, start: int, end: int, typed: str) -> Content:
        """Return the content with the characters [start, end) replaced by typed ones.

        A stretch that the edit touches or borders on is typed text from now on: the first and the last of its ids may
        be parts of characters that are gone. Notes go with the characters around them.

        Raises:
            ValueError: the range is not inside the text.
        """
        if not 0 <= start <= end <= len(self.text):
            raise ValueError(f"characters {start} to {end} are not inside a text of {len(self.text)}")
        if start == end and not typed:
            return self
        before: list[Span | Note] = []
        after: list[Span | Note] = []
        ids = array("i")
        for stretch, at, first_id in self._placed():
            if isinstance(stretch, Note):
                if at <= start:
                    before.append(stretch)
                elif end <= at and end < len(self.text):
                    after.append(stretch)
                continue
            stop = at + stretch.num_chars
            if stop < start or at > end:
                (before if stop < start else after).append(stretch)
                ids += self.token_ids[first_id : first_id + stretch.num_tokens]
            else:
                before.append(Span(max(0, min(stop, start) - at), 0))
                after.append(Span(max(0, stop - max(at, end)), 0))
        layout = _without_empty([*before, Span(len(typed), 0), *after])
        return Content(self.text[:start] + typed + self.text[end:], ids, layout)

    def pieces(self) -> Iterator[str | array[int]]:
        """Yield what the model is shown, in order: typed text and notes as text, what was drawn in one go as ids."""
        drawn = array("i")
        for stretch, at, first_id in self._placed():
            if isinstance(stretch, Span) and stretch.num_tokens:
                drawn += self.token_ids[first_id : first_id + stretch.num_tokens]
                continue
            if drawn:
                yield drawn
                drawn = array("i")
            yield note_for_model(stretch.text) if isinstance(stretch, Note) else self.text[at : at + stretch.num_chars]
        if drawn:
            yield drawn

    def notes(self) -> list[tuple[int, str]]:
        """Return the notes with the characters before them."""
        return [(at, each.text) for each, at, _ in self._placed() if isinstance(each, Note)]

    def text_for_model(self) -> str:
        """Return the text with its notes in place."""
        return "".join(
            note_for_model(each.text) if isinstance(each, Note) else self.text[at : at + each.num_chars]
            for each, at, _ in self._placed()
        )

    def _placed(self) -> Iterator[tuple[Span | Note, int, int]]:
        """Yield each stretch with the characters and the ids before it."""
        num_chars = num_ids = 0
        for stretch in self.stretches:
            yield stretch, num_chars, num_ids
            if isinstance(stretch, Span):
                num_chars += stretch.num_chars
                num_ids += stretch.num_tokens


def edited(content: Content, text: str) -> Content:
    """Return the content with another text: what both begin and end with keeps its ids."""
    longest = min(len(content.text), len(text))
    start = _common_prefix(content.text, text, longest)
    same_end = _common_prefix(content.text[::-1], text[::-1], longest - start)
    return content.spliced(start, len(content.text) - same_end, text[start : len(text) - same_end])


def pack_layout(layout: Layout) -> str:
    """Return the layout as it is kept; empty for the usual one."""
    if len(layout) <= 1 and all(isinstance(each, Span) for each in layout):
        return ""
    rows = [each.text if isinstance(each, Note) else [each.num_chars, each.num_tokens] for each in layout]
    return json.dumps(rows, separators=(",", ":"), ensure_ascii=False)


def unpack_layout(packed: str) -> Layout:
    """Read what `pack_layout` wrote."""
    if not packed:
        return ()
    return tuple(Note(each) if isinstance(each, str) else Span(*each) for each in json.loads(packed))


def _without_empty(layout: list[Span | Note]) -> Layout:
    """Drop spans of nothing and join typed neighbours."""
    kept: list[Span | Note] = []
    for each in layout:
        if isinstance(each, Span) and not each.num_tokens:
            if not each.num_chars:
                continue
            if kept and isinstance(last := kept[-1], Span) and not last.num_tokens:
                kept[-1] = Span(last.num_chars + each.num_chars, 0)
                continue
        kept.append(each)
    return tuple(kept)


def _common_prefix(one: str, other: str, longest: int) -> int:
    """Return how many characters two texts share from their start, at most `longest`; by halving, at memcmp's speed."""
    low, high = 0, longest
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low


__all__ = ["Content", "Layout", "Note", "Span", "edited", "pack_layout", "unpack_layout"]
