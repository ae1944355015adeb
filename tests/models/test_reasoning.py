"""The table of ways to mark reasoning, each row cut in every way."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.reasoning import PAIRS, ReasoningSplitter, Split, opening_of, split

HARMONY = "<|channel|>analysis<|message|>r"
FINAL = "<|start|>assistant<|channel|>final<|message|>a"

# (how the prompt ended, what came, reasoning, answer, still open)
TABLE = [
    ("<|im_start|>assistant\n<think>\n", "r</think>a", "r", "a", False),
    ("<|im_start|>assistant\n<think>\n", "r\n</think>\n\na", "r", "a", False),
    ("<|im_start|>assistant\n<think>\n", "\nr r\n\nr", "r r\n\nr", "", True),
    ("<|im_start|>assistant\n<think>\n", "<think>\nr</think>a", "r", "a", False),
    ("<|im_start|>assistant\n<think>\n", "</think>a", "", "a", False),
    ("<|im_start|>assistant\n<think>\n", "r</thi", "r</thi", "", True),
    ("<|im_start|>assistant\n<think>\n", "if a < b </ c </think>a", "if a < b </ c", "a", False),
    ("<|im_start|>assistant\n<think>\n\n</think>\n\n", "a", "", "a", False),
    ("<|im_start|>assistant\n", "<think>r</think>a", "r", "a", False),
    ("<|im_start|>assistant\n", "\n <think>\n r \n</think>\n\n a \n", "r", "a \n", False),
    ("<|im_start|>assistant\n", "<think>r", "r", "", True),
    ("<|im_start|>assistant\n", "<think>", "", "", True),
    ("<|im_start|>assistant\n", "<think></think>a", "", "a", False),
    (
        "<|im_start|>assistant\n",
        "<think>r</think>use `</think>` and <think>x</think>",
        "r",
        "use `</think>` and <think>x</think>",
        False,
    ),
    ("<|im_start|>assistant\n", "```\n</think>\n```", "", "```\n</think>\n```", False),
    ("<|im_start|>assistant\n", "a <think>no</think>", "", "a <think>no</think>", False),
    ("<|im_start|>assistant\n", "  a\n\n", "", "  a\n\n", False),
    ("<|im_start|>assistant\n", "<thin", "", "<thin", False),
    ("<|im_start|>assistant\n", "<thinner> a", "", "<thinner> a", False),
    ("<|im_start|>assistant\n", " \n", "", " \n", False),
    ("<|im_start|>assistant\n", "", "", "", False),
    ("<|im_start|>assistant\n<think>\n\n</think>\n\n", "</think>\n\na", "", "a", False),
    ("<|im_start|>assistant\n", "\n</think>\n", "", "", False),
    ("<|turn>model\n", "<|channel>thought\nr\n<channel|>a", "r", "a", False),
    ("<|turn>model\n", "<|channel>thought\n\n<channel|>a", "", "a", False),
    ("<|turn>model\n", "<|channel>thou", "", "<|channel>thou", False),
    ("<|turn>model\n<|channel>thought\n", "r\n<channel|>a", "r", "a", False),
    ("", "[THINK]r[/THINK]a", "r", "a", False),
    ("", "<|START_THINKING|>r<|END_THINKING|>a", "r", "a", False),
    ("", "<thinking>r</think> r</thinking>a", "r</think> r", "a", False),
    ("<|start|>assistant", HARMONY + "<|end|>" + FINAL, "r", "a", False),
    ("<|start|>assistant", HARMONY + FINAL, "r", "a", False),
    (
        "<|start|>assistant",
        HARMONY + "<|end|><|start|>assistant<|channel|>commentary to=x <|constrain|>json<|message|>c<|end|>" + FINAL,
        "r\n\nc",
        "a",
        False,
    ),
    ("<|start|>assistant", "<|channel|>final<|message|>a<|channel|>b", "", "a<|channel|>b", False),
    ("<|start|>assistant", HARMONY + "<|end|><|start|>assistant<|message|>a", "r", "a", False),
    ("<|start|>assistant", HARMONY + "<|end|><|start|>assi", "r", "", True),
    ("<|start|>assistant", "<|channel|>anal", "", "", True),
    ("<|start|>assistant", "<|channel|>commentary<|message|>c<|end|>" + FINAL, "c", "a", False),
    ("<|start|>assistant", " to=functions.f<|channel|>commentary json<|message|>{}", "{}", "", True),
    ("<|start|>assistant", " to=functions.f<|channel|>commentary<|message|>c<|end|>" + FINAL, "c", "a", False),
    ("<|start|>assistant", "to=functions.f is what", "", "to=functions.f is what", False),
    ("<|start|>assistant", "to", "", "to", False),
    ("", FINAL, "", "a", False),
    ("", "<|start|>assistant" + HARMONY + FINAL, "r", "a", False),
    ("<|start|>assistant", "<|channel|>final <|constrain|>json<|message|>{}", "", "{}", False),
    ("<|start|>assistant", "<|channel|>final<|constrain|>json<|message|>{}", "", "{}", False),
    ("<|start|>assistant", HARMONY, "r", "", True),
]


def streamed(pieces: list[str], opening: str) -> Split:
    splitter = ReasoningSplitter(opening)
    found = [each for piece in pieces for each in splitter.push(piece)] + splitter.pending()
    text = "".join(pieces)
    for each in found:
        assert each.text == "\n\n" or text.startswith(each.text, each.start), "pieces are where they say"
    reasoning, answer = ("".join(each.text for each in found if each.is_reasoning is kind) for kind in (True, False))
    return Split(reasoning, answer, splitter.is_reasoning)


def cuts(text: str) -> list[list[str]]:
    """Return the text whole, character by character, and cut at every one and every pair of places near each other."""
    places = [(at,) for at in range(len(text) + 1)] + [
        pair for pair in combinations(range(len(text) + 1), 2) if pair[1] - pair[0] <= 8
    ]
    pieces = [[text[a:b] for a, b in zip((0, *cut), (*cut, len(text)), strict=True)] for cut in places]
    return [[text], list(text), *pieces]


@pytest.mark.parametrize(("prompt", "text", "reasoning", "answer", "is_open"), TABLE)
def test_however_a_reply_is_cut_reasoning_and_answer_come_apart(
    prompt: str, text: str, reasoning: str, answer: str, is_open: bool
) -> None:
    opening = opening_of(prompt)
    assert split(text, opening) == Split(reasoning, answer, is_open)
    for pieces in cuts(text):
        assert streamed(pieces, opening) == Split(reasoning, answer, is_open), pieces


ALPHABET = st.sampled_from(
    [
        "<",
        "think>",
        "</",
        "<think>",
        "</think>",
        "a",
        " ",
        "\n",
        "<|channel|>",
        "<|message|>",
        "final",
        "<|end|>",
        "<|start|>",
        "to=",
        "<|channel>thought",
    ]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(ALPHABET, max_size=15).map("".join), st.data(), st.sampled_from(["", *PAIRS]))
def test_any_text_cut_anywhere_comes_out_as_it_does_whole(text: str, data: st.DataObject, opening: str) -> None:
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
    assert streamed(pieces, opening) == split(text, opening)


@settings(deadline=None)
@given(st.text(max_size=80))
def test_a_text_without_marks_is_all_answer_to_the_byte(text: str) -> None:
    if not any(text.lstrip().startswith(mark) for mark in (*PAIRS, *PAIRS.values(), "<|channel|>", "<|start|>", "to=")):
        assert split(text) == Split("", text, False)


def test_what_is_surely_text_is_not_held_back() -> None:
    splitter = ReasoningSplitter("<think>")
    assert [piece.text for piece in splitter.push("long reasoning <")] == ["long reasoning"]
    assert [piece.text for piece in splitter.push("b")] == [" <b"]
    splitter.push("</think>")
    assert [piece.text for piece in splitter.push("\n\nanswer \n")] == ["answer \n"]


def test_endless_white_space_is_neither_held_for_ever_nor_read_again_and_again() -> None:
    splitter = ReasoningSplitter("<think>")
    splitter.push("r")
    pieces = [piece for _ in range(3_000) for piece in splitter.push(" \n" * 10)]
    assert sum(len(piece.text) for piece in pieces) == 60_000 - 1_000
    assert split("r" + " \n" * 30_000 + "</think>a", "<think>").reasoning == "r" + " \n" * 29_500
    assert split(" " * 1_001 + "<think>r").answer == " " * 1_001 + "<think>r"


@pytest.mark.parametrize(
    ("prompt", "opening"),
    [
        ("<|im_start|>assistant\n<think>\n", "<think>"),
        ("<|im_start|>assistant\n", ""),
        ("<think>\n\n</think>\n\n", ""),
        ("[THINK]", "[THINK]"),
        ("what does <think> mean?", ""),
        ("", ""),
    ],
)
def test_a_prompt_that_ends_with_a_mark_has_opened_the_reasoning(prompt: str, opening: str) -> None:
    assert opening_of(prompt) == opening
