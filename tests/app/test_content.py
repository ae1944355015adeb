from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.content import Content, Note, Span, edited, pack_layout, unpack_layout

PIECES = ["Once", " upon", "", " a 👩", "\n", " time", " 日本"]


def ids(*values: int) -> array[int]:
    return array("i", values)


def drawn(pieces: list[str]) -> Content:
    """A reply kept piece by piece; piece n has the single id n, wherever it stands."""
    content = Content()
    for piece in pieces:
        content = content.plus(Content(piece, ids(PIECES.index(piece)), (Span(len(piece), 1),)))
    return content


def shown(content: Content) -> str:
    """What the model reads, with ids spelled out."""
    return "".join(
        piece if isinstance(piece, str) else "".join(PIECES[token] for token in piece) for piece in content.pieces()
    )


contents = st.lists(st.sampled_from(PIECES), max_size=12).map(drawn)


@given(contents, st.data())
def test_an_edit_gives_the_text_asked_for_and_the_model_reads_just_that(content: Content, data: st.DataObject) -> None:
    end = data.draw(st.integers(0, len(content.text)))
    start = data.draw(st.integers(0, end))
    typed = data.draw(st.sampled_from(["", "x", "typed words"]))
    new = content.spliced(start, end, typed)
    assert new.text == content.text[:start] + typed + content.text[end:]
    assert shown(new) == new.text == new.text_for_model()
    assert sum(span.num_tokens for span in new.stretches if isinstance(span, Span)) == len(new.token_ids)
    assert edited(content, new.text).text == new.text


@given(contents, st.data())
def test_head_and_tail_are_the_whole(content: Content, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(content.text)))
    parts = content.head(at), content.tail(at)
    assert (parts[0].text, parts[1].text) == (content.text[:at], content.text[at:])
    assert parts[0].plus(parts[1]).text == content.text


def test_stretches_away_from_the_edit_keep_their_ids_and_its_neighbours_do_not() -> None:
    content = drawn(["Once", " upon", " time", "\n", "Once"])
    new = content.spliced(5, 6, "X")
    assert list(new.pieces()) == [ids(0), " Xpon", ids(5, 4, 0)]
    at_a_border = content.spliced(4, 4, "X")
    assert list(at_a_border.pieces()) == ["OnceX upon", ids(5, 4, 0)]


def test_half_a_character_goes_with_the_character() -> None:
    content = Content("ab🌊", ids(1, 2, 3), (Span(2, 1), Span(0, 1), Span(1, 1)))
    assert list(content.head(2).pieces()) == ["ab"]
    assert list(content.pieces()) == [ids(1, 2, 3)]


def test_an_unchanged_text_changes_nothing() -> None:
    content = drawn(["Once", " upon"])
    assert edited(content, content.text) is content


def test_a_note_is_read_by_the_model_and_not_part_of_the_text() -> None:
    content = Content("ab", ids(1, 2), (Span(1, 1), Note("be brief"), Span(1, 1)))
    assert list(content.pieces()) == [ids(1), "\n[Author's note: be brief]\n", ids(2)]
    assert content.text_for_model() == "a\n[Author's note: be brief]\nb"
    assert not content.is_plain
    assert Note("be brief") not in content.spliced(0, 2, "new").layout
    assert Note("be brief") in content.head(1).layout
    assert Note("be brief") not in content.tail(1).layout


@pytest.mark.parametrize("layout", [(), (Span(2, 0), Span(3, 2), Note('say "é"')), (Note("x"),)])
def test_layouts_come_back_as_they_were_kept(layout: tuple[Span | Note, ...]) -> None:
    assert unpack_layout(pack_layout(layout)) == layout


def test_a_range_outside_the_text_is_refused() -> None:
    with pytest.raises(ValueError, match="characters 1 to 9 are not inside a text of 4"):
        Content("four").spliced(1, 9, "")
