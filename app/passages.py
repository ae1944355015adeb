"""Texts cut into passages for the full-text index, and what the index found mapped back to their characters.

A reply of a million characters would be one entry to the index: found, but where? So texts are indexed in passages of
some two thousand characters that overlap a little. Offsets are counted in characters of the whole text throughout.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.folding import fold_for_index

PASSAGE_CHARS = 2_400
STEP_CHARS = 2_000
"""Passages begin so far apart; the rest overlaps, so that words near each other are together in one of them."""

HIT_OPENS, HIT_CLOSES = "\x02", "\x03"
"""What the index puts around a hit; taken out of texts beforehand."""

_GAP = "\x1f"
_LONGEST_WORD_CHARS = 200
_CONTROLS = dict.fromkeys(map(ord, f"\0{HIT_OPENS}{HIT_CLOSES}{_GAP}"), " ")

# Scripts written without spaces, and Hangul (its single letters too), whose words carry their endings: one character a
# word, words as phrases.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fdf\u3040-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)
_TERM = re.compile(r'"([^"]*)"?|([^\s"]+)')


def passages(text: str, start: int = 0) -> Iterator[tuple[int, str]]:
    """Yield (offset, passage) of a text, from one of its passages on.

    Only the last passage depends on where the text ends: a text that grew goes on from there.
    """
    while len(text) - start > PASSAGE_CHARS:
        yield start, text[start : _between_words(text, start + PASSAGE_CHARS)]
        start = _between_words(text, start + STEP_CHARS)
    yield start, text[start:]


def indexable(text: str) -> str:
    """Return a text as it is given to the index: without control characters that mean something here, and with gaps
    around characters of scripts that have no spaces, so that any part of a sentence is found.

    Spelling is the caller's business, see `app.folding.fold_for_index`."""
    return _UNSPACED.sub(f"{_GAP}\\g<0>{_GAP}", text.translate(_CONTROLS))


def unmarked(marked: str) -> tuple[str, list[tuple[int, int]]]:
    """Return a passage as it was (control characters aside), and where its hits begin and end.

    Example:
        >>> unmarked("by the \\x02river\\x03")
        ('by the river', [(7, 12)])
    """
    plain, hits = [], []
    num_chars = opened_at = 0
    for part in re.split(f"([{HIT_OPENS}{HIT_CLOSES}])", marked.replace(_GAP, "")):
        if part == HIT_OPENS:
            opened_at = num_chars
        elif part == HIT_CLOSES:
            hits.append((opened_at, num_chars))
        else:
            plain.append(part)
            num_chars += len(part)
    return "".join(plain), hits


def index_query(typed: str) -> str:
    """Return what a person typed in the index's language: all words, the last perhaps unfinished, "quotes" exactly.

    Empty if there is nothing to look for. No character has another meaning, so nothing typed is an error.
    """
    typed = fold_for_index(typed).text
    terms = [quoted or word for quoted, word in _TERM.findall(typed)]
    phrases = [indexable(term).replace('"', '""') for term in terms if any(map(str.isalnum, term))]
    if not phrases:
        return ""
    unfinished = "*" if typed[-1].isalnum() else ""
    return " ".join(f'"{phrase}"' for phrase in phrases) + unfinished


def _between_words(text: str, at: int) -> int:
    """Return the last place after a space or line end at or before `at`; `at` itself inside a very long word."""
    low = at - _LONGEST_WORD_CHARS
    return max(text.rfind(" ", low, at), text.rfind("\n", low, at)) + 1 or at
