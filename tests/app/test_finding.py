"""Finding words in a chat: every place, in any case, across line ends and the marks of Markdown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.finding import MAX_PLACES, Place, find


def places(text: str, query: str) -> list[str]:
    return [text[place.start : place.start + place.num_chars] for place in find([(1, text)], query)]


@pytest.mark.parametrize(
    ("text", "query", "expected"),
    [
        ("The ring. A RING.", "ring", ["ring", "RING"]),
        ("string", "ring", ["ring"]),
        ("a\n  b", "a b", ["a\n  b"]),
        ("holds **three** of them", "holds three of", ["holds **three** of"]),
        ("a.b axb", "a.b", ["a.b"]),
        ("👩‍👩‍👧 ring", "ring", ["ring"]),
        ("Ein Cafe\u0301 am Fluß", "CAFÉ", ["Cafe\u0301"]),
        ("Café", "cafe\u0301", ["Café"]),
        ("Cafe\u0301 Cafe", "cafe", ["Cafe"]),
        ("Straße, STRASSE", "strasse", ["Straße", "STRASSE"]),
        ("Straße", "s", ["S", "ß"]),
        ("ὁ λόγος ΛΟΓΟΣ λογος", "λογοσ", ["ΛΟΓΟΣ", "λογος"]),
        ("ＡＢＣ，abc", "abc", ["ＡＢＣ", "abc"]),
        ("ﾃﾞｰﾀとデータ", "データ", ["ﾃﾞｰﾀ", "データ"]),
        ("\u1112\u1161\u11ab\u1100\u116e\u11a8 한국", "한국", ["\u1112\u1161\u11ab\u1100\u116e\u11a8", "한국"]),
        ("\u1112\u1161\u11ab", "하", []),
        ("x\u0302 x", "x", ["x\u0302", "x"]),
        ("text", "   ", []),
        ("text", "", []),
    ],
)
def test_words_are_found_as_typed_in_any_case(text: str, query: str, expected: list[str]) -> None:
    assert places(text, query) == expected


@given(st.text(max_size=200), st.text(min_size=1, max_size=20))
def test_no_query_is_an_error_and_what_is_there_is_found(text: str, query: str) -> None:
    words = query.split()
    found = places(text + " ".join(words), query)
    assert bool(found) == bool(words)


def test_messages_are_told_apart_and_very_many_places_are_cut_off() -> None:
    assert find([(1, "a b"), (2, "b")], "b") == [Place(1, 2, 1), Place(2, 0, 1)]
    assert len(find([(1, "b " * (2 * MAX_PLACES))], "b")) == MAX_PLACES + 1
