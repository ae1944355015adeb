"""A reply whose reasoning nothing opened is told by its closing mark; one about such marks is not."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.lone_closing import LoneClosing, missing_opening
from models.reasoning import PAIRS, split

LONE = [
    "r\n</think>\n\na",
    "r</think>\n\na",
    "r.</think>a",
    "r\n</think>",
    "```\nx\n```\nr\n</think>\na",
    "\n r\n </think> \na",
]
ABOUT_MARKS = [
    "the </think> end",
    "```\n</think>\n```",
    "~~~\n</think>\nr\n</think>",
    "a <think>no</think>",
    "first `<think>`, then\n</think>",
    "write `x\n</think>` there",
    "<think>r</think>a\n</think>",
    "<|channel|>final<|message|>a\n</think>\n",
    "a\n</thinks>\n",
    "",
]


@pytest.mark.parametrize("text", LONE)
def test_a_closing_mark_that_stands_out_closes_what_nothing_opened(text: str) -> None:
    assert missing_opening(text) == "<think>"
    parts = split(text, missing_opening(text))
    assert parts.reasoning.endswith(("r", "r."))
    assert parts.answer in ("a", "")


@pytest.mark.parametrize(("opening", "closing"), PAIRS.items())
def test_every_pair_is_known(opening: str, closing: str) -> None:
    assert missing_opening(f"r\n{closing}\na") == opening


@pytest.mark.parametrize("text", ABOUT_MARKS)
def test_a_reply_about_marks_lacks_none(text: str) -> None:
    assert missing_opening(text) == ""


@given(st.sampled_from(LONE + ABOUT_MARKS), st.lists(st.integers(0, 40), max_size=5))
def test_it_is_found_however_the_text_comes(text: str, cuts: list[int]) -> None:
    places = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    looking = LoneClosing()
    found = [looking.push(text[start:end]) for start, end in pairwise(places)]
    assert "".join([*found, looking.flush()]) == missing_opening(text)


def test_a_line_without_end_is_not_held() -> None:
    looking = LoneClosing()
    for _ in range(40):
        looking.push("word " * 200)
    assert len(looking._line) <= 8_192 + 1_000
    assert looking.push("</think>\n") == "<think>"
