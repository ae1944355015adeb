"""Sections and headings: they cover the blocks, stay as they are while the reply grows, and are bounded."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from app.folded_transcript import FoldedTranscript
from app.outline import SECTION_BLOCKS, SECTION_CHARS, Heading, Outline
from app.transcript import HARD_LIMIT_CHARS
from app.transcripts import OutlineSlice, Transcripts
from tests.app.test_transcript import TEXTS

BLOCKS = st.lists(
    st.tuples(st.integers(1, HARD_LIMIT_CHARS), st.sampled_from(["<p>a</p>", "<h2>b</h2>"])), max_size=200
)


@given(BLOCKS)
def test_sections_cover_all_blocks_in_order_and_are_bounded(blocks: list[tuple[int, str]]) -> None:
    outline = Outline()
    for num_chars, html in blocks:
        outline.add(num_chars, html)
    sections = list(outline.sections())
    firsts = [section.first for section in sections]
    assert firsts == sorted(set(firsts))
    assert firsts[:1] == [0] * bool(blocks)
    assert sum(section.num_chars for section in sections) == sum(num_chars for num_chars, _ in blocks)
    assert all(end - first <= SECTION_BLOCKS for first, end in pairwise([*firsts, len(blocks)]))
    assert all(section.num_chars < SECTION_CHARS + HARD_LIMIT_CHARS for section in sections)
    assert [heading.block for heading in outline.headings] == [
        number for number, (_, html) in enumerate(blocks) if html.startswith("<h")
    ]


def test_headings_are_plain_text_with_their_level() -> None:
    transcript = FoldedTranscript()
    transcript.append("# A *b* `<c>` & d\n\ntext\n\n### 😀\n\nmore\n\n")
    assert list(transcript.outline.headings) == [Heading(0, 1, "A b <c> & d"), Heading(2, 3, "😀")]


LONG_TEXT = "".join(f"## Part {number}\n\nText of **part** {number}.\n\n" for number in range(300))


def outlines(text: str, max_new_chars: int) -> list[OutlineSlice]:
    """Return what a page gets that asks until there is no more."""
    transcripts = Transcripts()
    answers: list[OutlineSlice] = []
    while not answers or answers[-1].open_html is None:
        known = sum(len(answer.sections) for answer in answers)
        answers.append(transcripts.outline(1, lambda offset: text[offset:], known, max_new_chars))
    return answers


def test_a_text_rendered_in_steps_gives_the_sections_of_one_rendered_at_once() -> None:
    steps, (whole,) = outlines(LONG_TEXT, 1_000), outlines(LONG_TEXT, len(LONG_TEXT))
    assert len(steps) > 5
    assert [section for step in steps for section in step.sections] == whole.sections
    assert (steps[-1].num_blocks, steps[-1].open_html) == (whole.num_blocks, whole.open_html)
    assert all(step.num_chars == len(LONG_TEXT) for step in steps)


def test_finished_blocks_are_given_without_reading_the_text_again() -> None:
    transcripts = Transcripts()
    known = transcripts.slice(1, lambda offset: LONG_TEXT[offset:])

    def unread(offset: int) -> str:
        raise AssertionError("the text was read")

    assert transcripts.slice(1, unread, 100, max_blocks=40).blocks == known.blocks[100:140]


@given(TEXTS, st.sampled_from(["", "<think>\nhm, so\n\nthat</think>\n\n"]))
def test_the_text_of_all_blocks_is_the_text(text: str, reasoning: str) -> None:
    transcript = FoldedTranscript()
    transcript.append(reasoning + text)
    spans = [transcript.text_span(number, 1) for number in range(len(transcript.blocks) + 1)]
    pieces = [(reasoning + text)[start:end] for start, end in spans]
    assert "".join(pieces) == reasoning + text
