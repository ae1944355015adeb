"""What the doctor finds about a cache: plain values, without torch, so that the app can read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Fault = Literal[
    "appends for ever",
    "wrong size",
    "keeps the whole prompt",
    "copies each step",
    "moves its storage",
    "mask by slot index",
    "sees beyond the window",
    "misses part of the window",
    "RoPE restarts at the wrap",
    "wrong positions",
    "chunks differ from steps",
    "rows share a pointer",
    "reuse differs from a fresh start",
    "differs from no cache",
]
"""Ways in which a cache is known to break, each told from the others by what it does."""

Topic = Literal["bounded", "exact"]


@dataclass(frozen=True)
class Finding:
    """The outcome of one probe.

    Attributes:
        topic: the check it belongs to.
        probe: what was looked at, in words.
        evidence: one sentence with the numbers seen.
        fault: what is broken; None if the probe passed.
    """

    topic: Topic
    probe: str
    evidence: str
    fault: Fault | None = None
