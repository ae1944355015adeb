"""Finding words in the texts of one chat as a browser would: any part of a word, in any case, every place of them.

The full-text index (`app.search_index`) finds chats and messages; this finds the next place in what is being read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

_BETWEEN_WORDS = r"[*_`~]*\s+[*_`~]*"

MAX_PLACES = 5_000
"""Given at once; a person who wants more types more of the word."""


@dataclass(frozen=True)
class Place:
    """Characters [start, start + num_chars) of a message's text."""

    message_id: int
    start: int
    num_chars: int


def pattern_for(query: str) -> re.Pattern[str] | None:
    """Return what finds the words typed, in a row; None if nothing is typed.

    Any white space may be between them, and the marks by which Markdown makes some of them bold or code.
    """
    words = query.split()
    return re.compile(_BETWEEN_WORDS.join(map(re.escape, words)), re.IGNORECASE) if words else None


def find(texts: Iterable[tuple[int, str]], query: str) -> list[Place]:
    """Return the places in texts given as (message id, text), in their order; at most `MAX_PLACES` + 1 of them."""
    pattern = pattern_for(query)
    if pattern is None:
        return []
    places = (
        Place(message_id, match.start(), match.end() - match.start())
        for message_id, text in texts
        for match in pattern.finditer(text)
    )
    return list(islice(places, MAX_PLACES + 1))
