from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.passages import PASSAGE_CHARS, index_query, indexable, passages, unmarked

TEXTS = st.text(alphabet="ab é\n河\x02\x03\x1f\0", max_size=60).flatmap(
    lambda seed: st.integers(0, 9_000).map(lambda length: (seed * (length // max(len(seed), 1) + 1))[:length])
)


@given(TEXTS)
def test_passages_cover_a_text_without_a_gap_and_none_is_too_long(text: str) -> None:
    covered = 0
    for start, passage in passages(text):
        assert text[start : start + len(passage)] == passage
        assert start <= covered
        assert len(passage) <= PASSAGE_CHARS
        covered = start + len(passage)
    assert covered == len(text)


@given(TEXTS, st.integers(0, 9_000))
def test_a_text_that_grew_has_the_passages_it_would_have_had_at_once(text: str, cut: int) -> None:
    before = list(passages(text[:cut]))
    assert [*before[:-1], *passages(text, before[-1][0])] == list(passages(text))


def test_passages_begin_and_end_between_words() -> None:
    text = "wonderful " * 1_000
    for start, passage in passages(text):
        assert start % 10 == 0
        assert passage.endswith(" ")


@given(TEXTS)
def test_a_text_comes_back_from_the_index_character_by_character(text: str) -> None:
    plain, hits = unmarked(indexable(text))
    assert hits == []
    assert plain == text.translate({ord(control): " " for control in "\0\x02\x03\x1f"})


def test_hits_are_where_they_were_in_the_text_and_not_in_the_index() -> None:
    marked = indexable("a 河流 b").replace("\x1f河\x1f\x1f流\x1f", "\x02\x1f河\x1f\x1f流\x1f\x03")
    assert unmarked(marked) == ("a 河流 b", [(2, 4)])


def test_a_query_is_its_words_the_last_perhaps_unfinished() -> None:
    assert index_query("old riv") == '"old" "riv"*'
    assert index_query("old river ") == '"old" "river"'
    assert index_query('"old river" bank') == '"old river" "bank"*'
    assert index_query('"old riv') == '"old riv"*'
    assert index_query('say "no"') == '"say" "no"'


def test_nothing_typed_means_anything_else() -> None:
    assert index_query("a AND (b OR c*) ^d") == '"a" "AND" "(b" "OR" "c*)" "^d"*'
    assert index_query(' "" != - ') == ""
    assert index_query("") == ""
