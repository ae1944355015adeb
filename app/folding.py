"""One spelling for what a person takes for the same text, with the way back to the characters it was made of.

Unicode writes é in one character or two, ｶﾞ in two or one, 한 as a syllable or as its letters, and a sigma in three
ways. Search compares folded texts: compatibility composition (NFKC), no case, ß as ss. The page folds titles by the
same rule, in `assets/folding.js`; a test compares the two.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import lru_cache
from unicodedata import category, is_normalized, normalize

_SIMPLE_CASE_END = "\u0530"
"""Before it are the Latin, Greek and Cyrillic letters, whose case the index's own tokenizer folds."""

_LONG_CLUSTER_CHARS = 8
"""Nobody writes the same one twice."""


class Folded:
    """A text in one spelling.

    Attributes:
        text: to be searched; its offsets mean nothing outside of here.
    """

    def __init__(self, text: str, begins: array[int], origins: array[int], num_chars: int) -> None:
        self.text = text
        # characters from begins[i] on come one to one from those at origins[i], or all from the few before origins[i+1]
        self._begins = begins
        self._origins = origins
        self._num_chars = num_chars

    def start_of(self, at: int) -> int:
        """Return the offset of the original character from which the one at `at` was made."""
        begin, origin, _, is_one_to_one = self._stretch(at)
        return origin + (at - begin if is_one_to_one else 0)

    def end_of(self, at: int) -> int:
        """Return the offset after the original characters from which those before `at` (1 or more) were made."""
        begin, origin, next_origin, is_one_to_one = self._stretch(at - 1)
        return origin + at - begin if is_one_to_one else next_origin

    def span_of(self, start: int, end: int) -> tuple[int, int]:
        """Return the span of the original text behind a span that is not empty."""
        return self.start_of(start), self.end_of(end)

    def _stretch(self, at: int) -> tuple[int, int, int, bool]:
        number = bisect_right(self._begins, at) - 1
        is_last = number + 1 == len(self._begins)
        next_begin = len(self.text) if is_last else self._begins[number + 1]
        next_origin = self._num_chars if is_last else self._origins[number + 1]
        begin, origin = self._begins[number], self._origins[number]
        return begin, origin, next_origin, next_begin - begin == next_origin - origin


def end_of_character(text: str, at: int) -> int:
    """Return the first offset from `at` on where no mark or letter of the syllable before it goes on."""
    while at < len(text) and continues(text[at]):
        at += 1
    return at


def fold(text: str) -> Folded:
    """Return a text as search compares it.

    Example:
        >>> folded = fold("an der Straße")
        >>> folded.text, folded.span_of(7, 14)
        ('an der strasse', (7, 13))
    """
    if text.isascii():
        return Folded(text.lower(), array("q", [0]), array("q", [0]), len(text))
    return _rewritten(text, _FOLDED)


def fold_for_index(text: str) -> Folded:
    """Return a text without the differences of spelling that the full-text index knows nothing of.

    The index folds the case of common scripts itself, so most texts stay as they are, and need not be kept twice.
    """
    return _rewritten(text, _INDEXED)


class _Growing:
    """A text that is written anew, with its stretches."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._begins, self._origins = array("q", [0]), array("q", [0])
        self._begin = self._origin = 0

    def add(self, piece: str, num_chars: int) -> None:
        """Add what so many characters became: as many of them one by one, or another number all together."""
        self._pieces.append(piece)
        is_one_to_one = len(piece) == num_chars
        if not is_one_to_one and self._begins[-1] != self._begin:
            self._begins.append(self._begin)
            self._origins.append(self._origin)
        self._begin += len(piece)
        self._origin += num_chars
        if not is_one_to_one:
            self._begins.append(self._begin)
            self._origins.append(self._origin)

    def add_each(self, characters: str, spelling: _Spelling) -> None:
        """Add characters none of which goes together with another."""
        rewritten = characters.translate(spelling)
        several = [each for each in set(characters) if len(spelling[ord(each)]) != 1]
        done = at = 0
        for found in re.finditer(f"[{re.escape(''.join(several))}]", characters) if several else ():
            num_before = found.start() - done
            piece = spelling[ord(found[0])]
            self.add(rewritten[at : at + num_before], num_before)
            self.add(piece, 1)
            done, at = found.end(), at + num_before + len(piece)
        self.add(rewritten[at:], len(characters) - done)

    def folded(self) -> Folded:
        """Return the text so far."""
        return Folded("".join(self._pieces), self._begins, self._origins, self._origin)


def _rewritten(text: str, spelling: _Spelling) -> Folded:
    """Rewrite a text as a whole if that can be; else its halves, down to the lines that go cluster by cluster."""
    growing = _Growing()
    waiting = [text]
    while waiting:
        lines = waiting.pop()
        if not any(map(continues, set(lines))):
            growing.add_each(lines, spelling)
        elif (composed := spelling.composed(lines)) is not None:
            growing.add(composed, len(lines))
        elif 0 < (middle := lines.rfind("\n", 0, len(lines) // 2) + 1 or lines.find("\n") + 1) < len(lines):
            waiting += [lines[middle:], lines[:middle]]
        else:
            for cluster in _clusters(lines):
                growing.add(spelling.cluster(cluster), len(cluster))
    return growing.folded()


def _clusters(line: str) -> Iterator[str]:
    """Yield the characters of a line, each with the marks and letters of a syllable that may be composed with it."""
    start = 0
    for at in range(1, len(line)):
        if continues(line[at]):
            continue
        yield line[start:at]
        start = at
    yield line[start:]


@lru_cache(maxsize=4_096)
def continues(character: str) -> bool:
    """Tell whether this may be composed with what stands before it: a mark, or a later letter of a Korean syllable."""
    is_syllable_part = "\u1160" <= character <= "\u11ff" or "\ud7b0" <= character <= "\ud7ff"
    is_vowel = "\u314f" <= character <= "\u3163" or "\uffc2" <= character <= "\uffdc"
    is_voiced_mark = character in "\uff9e\uff9f"
    return category(character)[0] == "M" or is_syllable_part or is_vowel or is_voiced_mark


def _folded(text: str) -> str:
    # by upper case, as scripts of a page can, too: their strings have no other way to make ss of ß
    lowered = normalize("NFKC", text).replace("ẞ", "ss").upper().lower().replace("ς", "σ")
    return normalize("NFKC", lowered).replace("i\u0307", "i")  # from İ


def _composed_and_folded(lines: str) -> str | None:
    if is_normalized("NFKC", lines) and len(lines.upper()) == len(lines) == len(folded := _folded(lines)):
        return folded
    return None


def _indexed(cluster: str) -> str:
    folded = _FOLDED.cluster(cluster)
    is_folded_there = len(cluster) == 1 and cluster < _SIMPLE_CASE_END and folded == cluster.lower()
    return cluster if is_folded_there or not any(map(str.isalnum, cluster)) else folded


def _composed_and_indexed(lines: str) -> str | None:
    is_same = is_normalized("NFKC", lines) and all(_INDEXED[ord(each)] == each for each in set(lines))
    return lines if is_same else None


class _Spelling(dict[int, str]):
    """A way to write characters, as a table that fills itself.

    Args:
        rewrite: a character with what is composed with it.
        composed: lines in which some characters are composed with others; None if not all go one to one.
    """

    def __init__(self, rewrite: Callable[[str], str], composed: Callable[[str], str | None]) -> None:
        self.composed = composed
        self._rewrite = rewrite
        self._rewrite_again = lru_cache(maxsize=4_096)(rewrite)

    def __missing__(self, point: int) -> str:
        self[point] = rewritten = self._rewrite(chr(point))
        return rewritten

    def cluster(self, characters: str) -> str:
        """Return a character with what is composed with it as it is to be written."""
        if len(characters) == 1:
            return self[ord(characters)]
        return (self._rewrite_again if len(characters) < _LONG_CLUSTER_CHARS else self._rewrite)(characters)


_FOLDED = _Spelling(_folded, _composed_and_folded)
_INDEXED = _Spelling(_indexed, _composed_and_indexed)
