"""What the doctor says: the checks in the order that fits the symptom, and the words for every fault."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from models.findings import Fault

Check = Literal["slides", "bounded", "exact", "flat", "sound"]
Status = Literal["good", "bad", "unsure"]


class Symptom(str, Enum):
    """What a person sees when something is wrong."""

    TEXT_DEGRADES = "text-degrades"
    MEMORY_RUNS_OUT = "memory-runs-out"
    NO_FASTER = "no-faster"


QUESTIONS: dict[Check, str] = {
    "slides": "Does the model slide at all?",
    "bounded": "Is the cache really bounded?",
    "exact": "Are mask and positions right?",
    "flat": "Is speed flat?",
    "sound": "Is the text still sound past the window?",
}

ORDERS: dict[Symptom | None, tuple[Check, ...]] = {
    None: ("slides", "bounded", "exact", "flat", "sound"),
    Symptom.TEXT_DEGRADES: ("sound", "exact", "slides", "bounded", "flat"),
    Symptom.MEMORY_RUNS_OUT: ("bounded", "slides", "exact", "flat", "sound"),
    Symptom.NO_FASTER: ("flat", "slides", "bounded", "exact", "sound"),
}
"""Where to start: with the check that sees the symptom, then those that explain it."""

REMEDIES: dict[Fault, str] = {
    "appends for ever": "The cache keeps every token. Write token n to slot n mod W instead of appending it.",
    "wrong size": "The cache has another number of slots than the policy says. Compare window and sinks with it.",
    "keeps the whole prompt": "A slice of the prompt's tensor keeps all of it alive. Copy the rows that stay visible.",
    "copies each step": "Every step copies the whole window (concatenation or roll). Write one slot in place.",
    "moves its storage": "Storage is made anew while writing. Allocate it once, or captured graphs read freed memory.",
    "mask by slot index": (
        "After the wrap slots are out of time order, and the mask hides them by their index. A full ring needs no mask."
    ),
    "sees beyond the window": "More keys are visible than the window holds; W counts the current token itself.",
    "misses part of the window": "Keys inside the window are hidden or overwritten too early.",
    "RoPE restarts at the wrap": "The ring's index is taken for the position. Count the tokens ever fed instead.",
    "wrong positions": "Keys or queries are turned by a position that is not theirs.",
    "chunks differ from steps": "A chunk must attend to the old window before it overwrites it.",
    "rows share a pointer": "The rows of a batch are written to one slot. Each row needs its own position.",
    "reuse differs from a fresh start": (
        "A cache was taken up behind a place it can no longer go back to: keys before it are gone. Read the text anew."
    ),
    "differs from no cache": "Mask or positions of the cached steps are not those the model itself uses.",
}


@dataclass(frozen=True)
class Verdict:
    """The answer to one check.

    Attributes:
        verdict: one sentence.
        evidence: the numbers it rests on, one sentence each.
        remedy: what to do; empty where nothing needs doing.
    """

    check: Check
    status: Status
    verdict: str
    evidence: tuple[str, ...] = ()
    remedy: str = ""

    @property
    def question(self) -> str:
        return QUESTIONS[self.check]
