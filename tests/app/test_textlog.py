from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.textlog import TextLog


@settings(max_examples=80, deadline=None)
@given(st.lists(st.text(max_size=12), max_size=40), st.integers(0, 500))
def test_text_from_any_offset_is_the_rest_of_what_was_appended(pieces: list[str], offset: int) -> None:
    log = TextLog()
    for piece in pieces:
        log.append(piece)
    text = "".join(pieces)
    assert log.num_chars == len(text)
    assert log.text_from(offset) == text[offset:]
    assert log.text_from(0) == text


def test_text_stays_whole_across_joined_blocks() -> None:
    log, pieces = TextLog("earlier "), ["earlier "]
    for number in range(60_000):
        piece = f"word {number} "
        log.append(piece)
        pieces.append(piece)
    text = "".join(pieces)
    assert log.text_from(0) == text
    for offset in (0, 65_535, 65_536, 65_537, len(text) // 2, len(text) - 1, len(text), len(text) + 5):
        assert log.text_from(offset) == text[offset:]


def test_small_pieces_are_joined_so_that_a_long_text_has_few() -> None:
    log = TextLog()
    for _ in range(400_000):
        log.append("abcdef ")
    assert len(log._pieces) <= 400_000 * 7 // 16_384 + 16_384 // 7 + 1


def test_a_negative_offset_is_refused() -> None:
    with pytest.raises(ValueError, match="offset -1 is negative"):
        TextLog("a").text_from(-1)


def test_a_beginning_that_was_let_go_is_no_longer_held() -> None:
    log = TextLog(num_chars=10)
    for number in range(20_000):
        log.append(f"word {number} ")
    log.let_go(100_000)
    assert 10 < log.start <= 100_000
    assert log.text_from(100_000)[:4] == "".join(f"word {n} " for n in range(20_000))[99_990:99_994]
    with pytest.raises(ValueError, match="lies before"):
        log.text_from(log.start - 1)
    log.let_go(10**9)
    assert log.text_from(log.num_chars - 5) == "9999 "
