"""Stop strings: the stream is the text cut at the earliest stop, for any text, any split and any stops."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backends.stop_strings import StopMatcher

few_letters = st.text(alphabet="aab\n", max_size=24)


def stream(pieces: list[str], stops: list[str]) -> tuple[list[str], bool]:
    matcher = StopMatcher(stops)
    emitted: list[str] = []
    for piece in pieces:
        emitted.append(matcher.push(piece))
        if matcher.matched:
            break
    emitted.append(matcher.flush())
    return emitted, matcher.matched


def cut_at_earliest_stop(text: str, stops: list[str]) -> str:
    return text[: min((text.find(stop) for stop in stops if stop and stop in text), default=len(text))]


def split(text: str, cuts: list[int]) -> list[str]:
    bounds = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[start:end] for start, end in pairwise(bounds)]


@given(text=few_letters, cuts=st.lists(st.integers(0, 100), max_size=8), stops=st.lists(few_letters, max_size=4))
@example(text="abcd", cuts=[1, 2, 3], stops=["bc", "abcd"])
@example(text="abcx", cuts=[1, 2, 3], stops=["bc", "abcd"])
@example(text="aab", cuts=[2], stops=["aab"])
def test_the_stream_is_the_text_cut_at_the_earliest_stop(text: str, cuts: list[int], stops: list[str]) -> None:
    emitted, matched = stream(split(text, cuts), stops)
    assert "".join(emitted) == cut_at_earliest_stop(text, stops)
    assert matched == any(stop and stop in text for stop in stops)


@given(text=few_letters, stops=st.lists(few_letters, max_size=4))
def test_less_than_the_longest_stop_is_ever_held_back(text: str, stops: list[str]) -> None:
    matcher = StopMatcher(stops)
    num_emitted = 0
    for index, character in enumerate(text):
        num_emitted += len(matcher.push(character))
        if matcher.matched:
            break
        assert index + 1 - num_emitted < max((len(stop) for stop in stops), default=0) or index + 1 == num_emitted


@pytest.mark.parametrize(
    ("pieces", "stops", "emitted", "matched"),
    [
        (["DEF", "G", "HI", "J"], ["DEFGHIJ"], ["", "", "", "", ""], True),
        (["Hi", "\nUser", ":"], ["\nUser:"], ["Hi", "", "", ""], True),
        (["ab", "cx"], ["bcd"], ["a", "bcx", ""], False),
        (["aa", "ab"], ["aab"], ["", "a", ""], True),
        (["xa", "b"], ["ab", "abc"], ["x", "", ""], True),
        (["to b", "e"], ["be or not"], ["to ", "", "be"], False),
    ],
)
def test_no_part_of_a_stop_leaks_and_a_disproved_part_is_released(
    pieces: list[str], stops: list[str], emitted: list[str], matched: bool
) -> None:
    assert stream(pieces, stops) == (emitted, matched)


def test_text_after_the_match_is_dropped() -> None:
    matcher = StopMatcher(["STOP"])
    assert matcher.push("one STOP two") == "one "
    assert matcher.matched
    assert matcher.push("three") == ""
    assert matcher.flush() == ""


def test_without_stops_text_passes_through_at_once() -> None:
    matcher = StopMatcher([""])
    assert [matcher.push("a"), matcher.push(""), matcher.push("b"), matcher.flush()] == ["a", "", "b", ""]
