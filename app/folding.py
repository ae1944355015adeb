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

_Rewrite = Callable[[str], tuple[str, set[str]] | None]
"""What a line becomes character by character and the characters that become several, or None if some go together."""


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
    return _rewritten(text, _folded_line, _folded_cluster)


def fold_for_index(text: str) -> Folded:
    """Return a text without the differences of spelling that the full-text index knows nothing of.

    The index folds the case of common scripts itself, so most texts stay as they are, and need not be kept twice.
    """
    return _rewritten(text, _indexed_line, _indexed_cluster)


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

    def folded(self) -> Folded:
        """Return the text so far."""
        return Folded("".join(self._pieces), self._begins, self._origins, self._origin)


def _rewritten(text: str, rewrite_line: _Rewrite, rewrite_cluster: Callable[[str], str]) -> Folded:
    growing = _Growing()
    for line in text.splitlines(keepends=True):
        rewritten = rewrite_line(line)
        if rewritten is None:
            for cluster in _clusters(line):
                growing.add(rewrite_cluster(cluster), len(cluster))
        elif not rewritten[1]:
            growing.add(rewritten[0], len(line))
        else:
            for part in re.split(f"([{re.escape(''.join(rewritten[1]))}])", line):
                growing.add(part.translate(_TABLE), len(part))
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


class _Table(dict[int, str]):
    def __missing__(self, point: int) -> str:
        self[point] = folded = _folded(chr(point))
        return folded


_TABLE = _Table()


def _folded_line(line: str) -> tuple[str, set[str]] | None:
    if line.isascii():
        return line.lower(), set()
    characters = set(line)
    if not any(map(continues, characters)):
        return line.translate(_TABLE), {each for each in characters if len(_TABLE[ord(each)]) != 1}
    if is_normalized("NFKC", line) and len(line.upper()) == len(line) == len(folded := _folded(line)):
        return folded, set()
    return None


@lru_cache(maxsize=4_096)
def _folded_short(cluster: str) -> str:
    return _folded(cluster)


def _folded_cluster(cluster: str) -> str:
    return _folded_short(cluster) if len(cluster) < _LONG_CLUSTER_CHARS else _folded(cluster)


def _indexed_line(line: str) -> tuple[str, set[str]] | None:
    characters = set(line)
    is_composed = is_normalized("NFKC", line) or not any(map(continues, characters))
    return (line, set()) if is_composed and all(map(_is_known_to_index, characters)) else None


@lru_cache(maxsize=4_096)
def _is_known_to_index(character: str) -> bool:
    folded = _TABLE[ord(character)]
    is_folded_there = character < _SIMPLE_CASE_END and folded == character.lower()
    return folded == character or is_folded_there or not character.isalnum()


def _indexed_cluster(cluster: str) -> str:
    if len(cluster) == 1:
        return cluster if _is_known_to_index(cluster) else _folded_cluster(cluster)
    return _folded_cluster(cluster) if any(map(str.isalnum, cluster)) else cluster
