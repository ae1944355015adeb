"""What the minimal experiment reports: plain values, without torch, so that the app can read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Strategy = Literal["concatenate", "shift", "ring", "preallocate"]
STRATEGIES: tuple[Strategy, ...] = ("concatenate", "shift", "ring", "preallocate")


@dataclass(frozen=True)
class StepCost:
    """What one more token costs once `tokens` are in.

    Attributes:
        held_bytes: storage of keys and values between steps.
        allocated_bytes: newly allocated while adding one token, attention not counted.
        append_s, attend_s: median seconds to add a token and to attend.
        low_s, high_s: quartiles of the sum of both.
        num_steps: steps the medians are over.
    """

    strategy: Strategy
    window: int
    tokens: int
    held_bytes: int
    allocated_bytes: int
    append_s: float
    attend_s: float
    low_s: float
    high_s: float
    num_steps: int

    @property
    def step_s(self) -> float:
        return self.append_s + self.attend_s
