from __future__ import annotations

import tracemalloc
from bisect import bisect_right
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.block_log import HELD_NUMBERS, Block, BlockLog, NumberLog, PieceLog
from app.transcript import Transcript

LARGE = "x" * 90_000


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.text(max_size=20), st.just(LARGE)), max_size=20), st.data())
def test_texts_come_back_as_they_were_added_in_memory_and_from_the_file(texts: list[str], data: st.DataObject) -> None:
    log = PieceLog()
    for number, text in enumerate(texts):
        log.append(text)
        assert log[data.draw(st.integers(0, number))] is not None
    assert [log[number] for number in range(len(log))] == texts


def test_numbers_come_back_as_they_were_added_in_memory_and_from_the_file() -> None:
    log, numbers = NumberLog(), [number * 3 - 5 for number in range(2 * HELD_NUMBERS + 10)]
    for number in numbers:
        log.append(number)
    assert [log[place] for place in range(len(log))] == numbers
    assert (bisect_right(log, -5), bisect_right(log, 0), bisect_right(log, numbers[-1])) == (1, 2, len(numbers))
    with pytest.raises(IndexError):
        log[len(numbers)]


def test_blocks_are_read_like_a_list() -> None:
    log, blocks = BlockLog(), [Block(n * 10, n * 10 + 10, f"<p>{n}</p>" + LARGE) for n in range(8)]
    for block in blocks:
        log.append(block)
    assert list(log) == blocks
    assert (log[2:5], log[-1], log[::3], log[9:]) == (blocks[2:5], blocks[-1], blocks[::3], [])
    assert (len(log), log.end, BlockLog().end) == (8, 80, 0)
    with pytest.raises(IndexError):
        log[8]


def test_where_no_file_can_be_had_texts_stay_in_memory(isolated_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (isolated_home / "in-the-way").write_text("")
    monkeypatch.setenv("RINGSIDE_HOME", str(isolated_home / "in-the-way"))
    log = PieceLog()
    for number in range(5):
        log.append(f"{number}{LARGE}")
    assert [log[number][0] for number in range(5)] == list("01234")


def test_a_long_transcript_takes_the_memory_of_a_short_one() -> None:
    transcript = Transcript()
    section = "## Heading\n\nA paragraph of *some* words.\n\n```python\ncode = 1\n```\n\n"
    tracemalloc.start()
    try:
        sizes = []
        for _ in range(2):
            for _ in range(6):
                transcript.append(section * 250)
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert len(transcript.blocks) > 8_000
    assert sizes[1] - sizes[0] < 400_000  # the HTML of the second half alone is twice that
    assert transcript.code(2_500) == "code = 1\n"
