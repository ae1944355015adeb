"""Finding words in the texts of one chat as a browser would: any part of a word, in any spelling, every place of them.

The full-text index (`app.search_index`) finds chats and messages; this finds the next place in what is being read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from app.folding import end_of_character, fold

_BETWEEN_WORDS = r"[*_`~]*\s+[*_`~]*"

MAX_PLACES = 5_000
"""Given at once; a person who wants more types more of the word."""


@dataclass(frozen=True)
class Place:
    """Characters [start, start + num_chars) of a message's text."""

    message_id: int
    start: int
    num_chars: int


class Words:
    """Words typed, to be found in a row; nothing is found if nothing is typed.

    Any white space may be between them, and the marks by which Markdown makes some of them bold or code. Case and
    spelling do not matter (`app.folding`); what is found are whole characters of the text.
    """

    def __init__(self, typed: str) -> None:
        words = fold(typed).text.split()
        self._pattern = re.compile(_BETWEEN_WORDS.join(map(re.escape, words))) if words else None

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield (start, end) of every place of the words in a text."""
        if self._pattern is None:
            return
        folded = fold(text)
        last = None
        for match in self._pattern.finditer(folded.text):
            start, end = folded.span_of(match.start(), match.end())
            span = start, end_of_character(text, end)
            if span != last:  # both s of one ß
                yield span
            last = span


def find(texts: Iterable[tuple[int, str]], query: str) -> list[Place]:
    """Return the places in texts given as (message id, text), in their order; at most `MAX_PLACES` + 1 of them."""
    words = Words(query)
    places = (Place(message_id, start, end - start) for message_id, text in texts for start, end in words.spans(text))
    return list(islice(places, MAX_PLACES + 1))
