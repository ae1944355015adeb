"""What ends a reply besides the model and its request: the time it may take, and going round in circles."""

from __future__ import annotations

from typing import Literal

from app.worker_messages import Update
from backends.events import FinishReason

OnLoop = Literal["ignore", "notice", "stop"]
"""What is done about a reply that repeats itself over and over."""


class Limits:
    """Limits of one reply.

    Args:
        max_minutes: of writing, the reading of the prompt included; None is no limit.
        on_loop: see `OnLoop`.
    """

    def __init__(self, max_minutes: float | None = None, on_loop: OnLoop = "notice") -> None:
        self._max_s = None if max_minutes is None else 60.0 * max_minutes
        self._on_loop = on_loop

    def reached(self, update: Update, loop_tokens: int | None = None) -> FinishReason | None:
        """Return why the reply is to end here; None if it goes on. Told every report of the worker.

        Args:
            loop_tokens: length of what the reply repeats over and over; None while it does not.
        """
        if self._max_s is not None and update.time_s >= self._max_s:
            return "time"
        return "loop" if loop_tokens is not None and self._on_loop == "stop" else None

    def warning(self, loop_tokens: int | None) -> str:
        """Return what a person is told of a loop; empty if there is none or they do not want to know."""
        if loop_tokens is None or self._on_loop == "ignore":
            return ""
        return f"The text repeats itself: the same {loop_tokens} tokens over and over."
