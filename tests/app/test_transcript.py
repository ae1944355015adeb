"""The view of a reply: the same blocks however the text arrived, nothing lost, nothing that runs, bounded work."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.transcript import HARD_LIMIT_CHARS, SOFT_LIMIT_CHARS, Transcript

FRAGMENTS = st.sampled_from(
    [
        *(
            "- ",
            "\n",
            "\n\n",
            "1. ",
            "```",
            "```py\n",
            "~~~\n",
            "a",
            "b c ",
            "    ",
            "|",
            "|--|--|\n",
            "# ",
            "> ",
            "*",
            "**",
        ),
        *("$", "$$", "\\[", "\\]", "\\(", "---\n", "===\n", "[a]: x\n", "\r\n", "\r", "\t", "é", "👩‍👩‍👧", "<b>", "~~"),
        *("[x](y)", "`", "<br>", "「", "」", "あ", "。", "_", "\ufe01", "。\ufe00", "$x", "x$", "$HOME", "\\$"),
    ]
)
TEXTS = st.lists(FRAGMENTS, max_size=80).map("".join)


def rendered(text: str, pieces: int | None = None) -> Transcript:
    transcript = Transcript()
    step = pieces or max(len(text), 1)
    for start in range(0, len(text), step):
        transcript.append(text[start : start + step])
        transcript.open_html()
    return transcript


def spans(transcript: Transcript) -> list[tuple[int, int]]:
    return [(block.start, block.end) for block in transcript.blocks]


def html_of(text: str) -> str:
    transcript = rendered(text)
    return "".join(block.html for block in transcript.blocks) + transcript.open_html()


@given(TEXTS, st.integers(1, 12))
@example("- - - \n- \r- ", 1)
def test_blocks_do_not_depend_on_how_the_text_arrived(text: str, pieces: int) -> None:
    whole, streamed = rendered(text), rendered(text, pieces)
    assert [(block.start, block.end) for block in streamed.blocks] == [
        (block.start, block.end) for block in whole.blocks
    ]
    assert streamed.open_html() == whole.open_html()


@given(TEXTS)
def test_finished_blocks_cover_the_text_without_gaps(text: str) -> None:
    transcript = rendered(text)
    ends = [0, *(block.end for block in transcript.blocks)]
    assert [block.start for block in transcript.blocks] == ends[:-1]
    assert ends[-1] <= transcript.num_chars == len(text)


LONG_TEXTS = {
    "unclosed fence": "```python\n" + "value = [1, 2, 3]  # numbers\n" * 2_000,
    "closed fence": "```python\n" + "value = [1, 2, 3]  # numbers\n" * 1_000 + "```\nafter\n",
    "one line": "word " * 20_000,
    "one word": "w" * 60_000,
    "table": "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 3_000,
    "list": "".join(f"{number}. item\n" for number in range(4_000)),
    "loose list": "- item\n\n" * 4_000,
    "paragraph": "some words on a line\n" * 3_000,
    "deep list": "".join("  " * level + "- x\n" for level in range(250)),
    "deep quote": "> " * 8_000 + "deep",
    "open brackets": "[" * 12_000,
}


@pytest.mark.parametrize("text", LONG_TEXTS.values(), ids=LONG_TEXTS.keys())
def test_an_endless_block_is_cut_so_that_an_update_stays_small(text: str) -> None:
    transcript = Transcript()
    for start in range(0, len(text), 200):
        transcript.append(text[start : start + 200])
        open_start = transcript.blocks[-1].end if transcript.blocks else 0
        assert transcript.num_chars - open_start <= HARD_LIMIT_CHARS + 200


ENDLESS = {
    "a line of a million": "0123456789" * 100_000,
    "emoji": "👩‍👩‍👧" * 4_000,
    "right to left": "\u202eabc \u05d0\u05d1\u05d2 " * 3_000,
    "ten thousand nested quotes": ">" * 10_000,
    "ten thousand nested lists": "1. " * 10_000,
    "a long formula": "$$\n" + "\\frac{1}{x} + " * 2_000 + "\n$$\n\n",
    "tags": "<script>" * 5_000,
}


@pytest.mark.parametrize("text", ENDLESS.values(), ids=ENDLESS.keys())
def test_endless_text_of_any_kind_is_shown_in_bounded_parts_and_what_follows_too(text: str) -> None:
    transcript = rendered(f"{text}\n\nneedle", 16_000)
    html = "".join(block.html for block in transcript.blocks) + transcript.open_html()
    assert re.search(r"needle</(p|div)>\n?$", html)
    assert all(end - start <= HARD_LIMIT_CHARS + SOFT_LIMIT_CHARS for start, end in spans(transcript))
    for part in ("0123456789", "👩‍👩‍👧", "\u202eabc"):  # what Markdown has no other use for is all there
        assert html.count(part) >= 0.99 * text.count(part)  # a cut may go through one of them
    assert "<script" not in html


@pytest.mark.parametrize("name", ["unclosed fence", "closed fence"])
def test_the_copy_button_gets_long_code_whole(name: str) -> None:
    text = LONG_TEXTS[name]
    code = text.removeprefix("```python\n").removesuffix("```\nafter\n")
    transcript = rendered(text, 500)
    assert len(code) > 3 * SOFT_LIMIT_CHARS
    assert transcript.code(0) == code


def test_code_is_given_back_exactly_and_by_number() -> None:
    transcript = rendered("```\na\tb\n\n  c\n```\n\ntext\n\n- x\n\n  ~~~py\n  y = 1\n  ~~~\n\n```\nopen")
    assert [transcript.code(number) for number in range(3)] == ["a\tb\n\n  c\n", "y = 1\n", "open"]
    with pytest.raises(IndexError):
        transcript.code(3)


def test_deep_nesting_shows_its_text_instead_of_dropping_it() -> None:
    assert "needle" in html_of("> " * 2_000 + "needle")


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        '<img src=x onerror="alert(1)">',
        "[x](javascript:alert(1))",
        "[x](JaVaScRiPt&#58;alert(1))",
        "[x](data:text/html,<script>alert(1)</script>)",
        "![x](https://example.org/pixel.png)",
        '[x](https://example.org/"onmouseover="alert(1))',
        "```html\n<script>alert(1)</script>\n```",
        '```x"><script>alert(1)</script>\ncode\n```',
        "$<script>alert(1)</script>$",
        "$$\n\\href{javascript:alert(1)}{x}\n$$",
        "| <svg onload=alert(1)> |\n|---|\n| <iframe> |",
    ],
)
def test_hostile_text_is_shown_and_does_nothing(text: str) -> None:
    tags = re.findall(r"<[^>]+>", html_of(text))
    assert not any(re.match(r"</?(script|img|iframe|svg|object|style)", tag, re.I) for tag in tags)
    assert not any(re.search(r"\son\w+\s*=|javascript:|data:text", tag, re.I) for tag in tags)


def test_angle_brackets_and_think_marks_do_not_vanish() -> None:
    assert "&lt;think&gt;hm&lt;/think&gt;" in html_of("<think>hm</think>")


def test_the_usual_constructs_become_html() -> None:
    html = html_of(
        "# T\n\n**b** ~~s~~ $x^2$ \\(y\\)\n\n| a |\n|--:|\n| 1 |\n\n"
        "$$\n\\frac{1}{2}\n- b\n$$\n\n```python\ndef f(): pass\n```\n"
    )
    for piece in ('<h1 dir="auto">T</h1>', "<strong>b</strong>", "<s>s</s>", "<msup>", "<mi>y</mi>", "<mfrac>", "hl-k"):
        assert piece in html
    assert '<td class="right" dir="auto">1</td>' in html


def test_prices_are_not_formulas() -> None:
    assert "<math" not in html_of("It costs $5 and then $6.")
