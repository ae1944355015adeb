"""First messages to click: beginnings of stories for models that continue text, requests for those that answer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Opening:
    """A first message and what its button says."""

    title: str
    text: str


_BEGINNINGS = (
    Opening(
        "The lighthouse",
        "The lighthouse had been dark for eleven years when the letter arrived. Mara read it twice, standing at the "
        "kitchen window with the sea behind the glass, and then she",
    ),
    Opening(
        "The last train",
        "Chapter One\n\nNobody ever got off at Halden Cross. The last train stopped there all the same, every night at "
        "ten past eleven, and on the fourth of November",
    ),
    Opening(
        "A history of glass",
        "# A Short History of Glass\n\nThe first glass that people used was not made by people at all. Long before",
    ),
    Opening(
        "Field notes",
        "Day 1. We reached the edge of the forest before noon. The guides say that the path we follow is older than "
        "the village, and",
    ),
)

_REQUESTS = (
    Opening(
        "A long story",
        "Write a long story about a lighthouse keeper who finds a letter. Take your time with every scene.",
    ),
    Opening("Explain tides", "Explain how tides work, from the very beginning, in many short sections with headings."),
    Opening(
        "A small program",
        "Write a small Python program that plays tic-tac-toe in the terminal, and explain every part.",
    ),
    Opening(
        "A walking tour", "Describe a walking tour through an old harbour town, house by house, as slowly as you can."
    ),
)


def openings_for(continues_text: bool) -> tuple[Opening, ...]:
    """Return first messages that fit a base model, or one that answers."""
    return _BEGINNINGS if continues_text else _REQUESTS
