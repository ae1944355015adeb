"""What ends a reply besides the model and its request: the time it may take."""

from __future__ import annotations

from app.worker_messages import Update
from backends.events import FinishReason


class Limits:
    """Limits of one reply.

    Args:
        max_minutes: of writing, the reading of the prompt included; None is no limit.
    """

    def __init__(self, max_minutes: float | None = None) -> None:
        self._max_s = None if max_minutes is None else 60.0 * max_minutes

    def reached(self, update: Update) -> FinishReason | None:
        """Return why the reply is to end here; None if it goes on. Told every report of the worker."""
        return "time" if self._max_s is not None and update.time_s >= self._max_s else None
