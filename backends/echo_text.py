"""What the echo backend says: a person's own words again, a given script, or an endless Markdown document.

Every text is a deterministic sequence of pieces ("tokens"), so that a reply can be taken up again at any piece.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice

from backends.draws import uniform

VOCAB_SIZE = 32_000

_PIECE = re.compile(r"\s*\w{1,7}|\s*[^\w\s]|\s+")
_WORDS = re.findall(
    r"\w+",
    "window ring cache token layer memory river lamp garden winter letter engine signal harbour stone quiet copper "
    "morning thread paper station bridge orchard mirror compass island lantern meadow pocket ribbon summit timber",
)

Draw = Callable[[int], int]
"""Return a number from 0 to n - 1."""


def pieces_of(text: str) -> list[str]:
    """Split text into words, word parts and marks; their concatenation is the text.

    >>> pieces_of("Once upon a time,")
    ['Once', ' upon', ' a', ' time', ',']
    """
    return _PIECE.findall(text)


def piece_id(piece: str) -> int:
    """Return a stable id for a piece, below `VOCAB_SIZE`; different pieces may share one."""
    return zlib.crc32(piece.encode("utf-8", "surrogatepass")) % VOCAB_SIZE


def repeated(pieces: Sequence[str], start: int, endless: bool) -> Iterator[str]:
    """Yield the pieces from index `start` on: once, or over and over."""
    if not endless:
        yield from pieces[start:]
        return
    for index in count(start):
        yield pieces[index % len(pieces)]


def document(seed: int, start: int) -> Iterator[str]:
    """Yield the pieces of an endless Markdown document from piece `start` on.

    Sections of headings, prose, lists, code, tables, quotes, formulas and text beyond ASCII take turns. A character
    outside the first plane takes two pieces, the first of them empty, as half a character does with a real tokenizer.
    """
    skipped = 0
    for section in count():
        pieces = list(_with_halves(pieces_of(_section(seed, section))))
        if skipped + len(pieces) > start:
            yield from islice(pieces, max(0, start - skipped), None)
        skipped += len(pieces)


def _with_halves(pieces: list[str]) -> Iterator[str]:
    for piece in pieces:
        if any(ord(character) > 0xFFFF for character in piece):
            yield ""
        yield piece


def _section(seed: int, number: int) -> str:
    draws = count()

    def draw(limit: int) -> int:
        return int(uniform(seed, number * 4096 + next(draws)) * limit)

    kind = _KINDS[number % len(_KINDS)]
    return f"## {number + 1}. {_words(draw, 2, 4).capitalize()}\n\n{_paragraph(draw)}\n\n{kind(draw)}\n\n"


def _words(draw: Draw, low: int, high: int) -> str:
    return " ".join(_WORDS[draw(len(_WORDS))] for _ in range(low + draw(high - low + 1)))


def _sentence(draw: Draw) -> str:
    return f"{_words(draw, 5, 12).capitalize()}."


def _paragraph(draw: Draw) -> str:
    marked = f"The **{_words(draw, 1, 2)}** kept `{_words(draw, 1, 1)}_{draw(100)}` and *{_words(draw, 1, 3)}*."
    return " ".join([_sentence(draw), marked, _sentence(draw), _sentence(draw)])


def _list(draw: Draw) -> str:
    return "\n".join(f"{'  ' * (index % 3 == 2)}- {_sentence(draw)}" for index in range(4 + draw(3)))


def _numbered(draw: Draw) -> str:
    return "\n".join(f"{index + 1}. {_sentence(draw)}" for index in range(3 + draw(4)))


def _code(draw: Draw) -> str:
    name, size = _words(draw, 1, 1), 2 + draw(900)
    return (
        f'```python\ndef {name}(step: int) -> int:\n    """{_sentence(draw)}"""\n'
        f"    if step < {size}:\n\t\treturn step  # {_words(draw, 2, 4)}\n    return {name}(step % {size})\n```"
    )


def _table(draw: Draw) -> str:
    rows = [f"| {_words(draw, 1, 2)} | {draw(10_000)} | {draw(1000) / 10} % |" for _ in range(3 + draw(4))]
    return "\n".join(["| name | count | share |", "|:-----|------:|:-----:|", *rows])


def _quote(draw: Draw) -> str:
    return f"> {_sentence(draw)}\n> {_sentence(draw)}\n\n---"


def _formulas(draw: Draw) -> str:
    size = 1 + draw(9)
    return (
        f"With $w_{{{size}}} = \\frac{{{draw(50)}}}{{n + {size}}}$ the sum stays flat:\n\n"
        f"$$\\sum_{{p=n-W+1}}^{{n}} \\alpha_p v_p \\le \\sqrt{{{size}}}\\, W$$\n\n{_sentence(draw)}"
    )


def _beyond_ascii(draw: Draw) -> str:
    return (
        f"Crème brûlée, Ελλάδα, Привет, 日本語のテキスト, ภาษาไทย, שלום, مرحبا: {_words(draw, 2, 3)} "
        f"🌊 👩‍👩‍👧 🇯🇵 {draw(100)}. {_sentence(draw)}"
    )


_KINDS = (_list, _code, _table, _formulas, _numbered, _quote, _beyond_ascii, _paragraph)
