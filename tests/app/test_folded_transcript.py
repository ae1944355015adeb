from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.folded_transcript import FoldedTranscript
from app.transcript import Transcript


def shown(text: str, opening: str = "", sizes: tuple[int, ...] = ()) -> list[str]:
    """Return the blocks of a text that came in pieces of these sizes (the rest at once), the open end last."""
    transcript = FoldedTranscript(lambda: opening)
    at = 0
    for size in (*sizes, len(text)):
        transcript.append(text[at : at + size])
        at += size
    return [*(block.html for block in transcript.blocks), transcript.open_html()]


def answer_alone(text: str) -> list[str]:
    transcript = Transcript()
    transcript.append(text)
    return [*(block.html for block in transcript.blocks), transcript.open_html()]


def test_a_reply_without_reasoning_is_shown_as_ever() -> None:
    for text in ("# A\n\nb\n\n```py\ncode\n```\n\nthe </think> end", "", "<", " \n", "a <think>b</think>"):
        assert shown(text) == answer_alone(text) or answer_alone(text)[-1] in ("", '<p dir="auto">&lt;</p>\n'), text
    assert "&lt;" in shown("<")[-1]


@pytest.mark.parametrize(
    ("text", "opening"),
    [("<think>\nr *r*\n\n- s\n</think>\n\na *b*", ""), ("r *r*\n\n- s\n</think>\n\na *b*", "<think>")],
)
def test_reasoning_is_marked_off_and_counted_and_the_answer_is_as_ever(text: str, opening: str) -> None:
    reasoning, answer = shown(text, opening)
    assert reasoning.startswith('<div class="thinking-bar"><button class="fold"')
    assert reasoning.endswith(
        '<div class="thinking"><p dir="auto">r <em>r</em></p>\n<ul>\n<li dir="auto">s</li>\n</ul>\n</div>'
    )
    assert answer == '<div class="thinking-end">4 words of reasoning</div>' + answer_alone("a *b*")[-1]


def test_reasoning_that_never_ended_is_all_there_is() -> None:
    assert shown("<think>so far") == [
        '<div class="thinking-bar"><button class="fold" type="button" aria-expanded="false">Reasoning</button></div>'
        '<div class="thinking"><p dir="auto">so far</p>\n</div>'
    ]
    assert shown("</think>a", "<think>") == answer_alone("a")


def test_a_fence_left_open_in_the_reasoning_does_not_swallow_the_answer() -> None:
    *_, answer = shown("<think>```\ncode\n</think>a *b*")
    assert answer.endswith(answer_alone("a *b*")[-1])


def test_code_is_numbered_through_both_parts() -> None:
    text = "<think>```\none\n```\n</think>\n```\ntwo\n```\n"
    transcript = FoldedTranscript()
    transcript.append(text)
    assert [transcript.code(0), transcript.code(1)] == ["one\n", "two\n"]
    numbers = re.findall(r'data-code="(\d+)"', "".join(shown(text)))
    assert numbers == ["0", "1"]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["<think>", "</think>", "word ", "\n\n", "- x\n", "```\n", "*a*", "<"]), max_size=25).map(
        "".join
    ),
    st.sampled_from(["", "<think>"]),
    st.lists(st.integers(1, 9), max_size=12).map(tuple),
)
def test_blocks_depend_on_the_text_alone_and_only_grow(text: str, opening: str, sizes: tuple[int, ...]) -> None:
    assert shown(text, opening, sizes) == shown(text, opening)
    transcript = FoldedTranscript(lambda: opening)
    seen: list[str] = []
    for character in text:
        transcript.append(character)
        blocks = [block.html for block in transcript.blocks]
        assert blocks[: len(seen)] == seen
        seen = blocks
    assert transcript.num_chars == len(text)


def test_every_character_leads_to_the_block_that_shows_it() -> None:
    reasoning = [f"thought{number}" for number in range(40)]
    answer = [f"word{number}" for number in range(40)]
    text = f"<think>\n\n{chr(10).join(word + chr(10) for word in reasoning)}</think>\n\n\n" + "\n\n".join(answer)
    transcript = FoldedTranscript()
    transcript.append(text)
    blocks = [*(block.html for block in transcript.blocks), transcript.open_html()]
    for word in (*reasoning, *answer):
        place = re.search(rf"{word}\b", text)
        assert place is not None
        for offset in (place.start(), place.end() - 1):
            assert re.search(rf"{word}\b", blocks[transcript.block_at(offset)]), word
    assert transcript.block_at(0) == 0
    assert transcript.block_at(len(text) + 9) == len(transcript.blocks)
