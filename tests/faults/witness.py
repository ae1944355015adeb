"""Whoever looks on while a reply is written and remembers what it saw when: the measure of what may be lost."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right

from app.run_views import RunView
from app.running import RemoteRun
from app.running_instance import RunningInstance
from backends.errors import RingsideError


class Witness:
    """Follows one run in a thread of its own until it ends or the application is gone.

    Attributes:
        end: the last state of the run; None if the application went down before.
    """

    def __init__(self, instance: RunningInstance, run_id: str) -> None:
        self.end: RunView | None = None
        self._run = RemoteRun(instance, run_id)
        self._texts: list[str] = []
        self._times_s: list[float] = []
        self._num_chars: list[int] = []
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until there is nothing more to see."""
        self._thread.join()

    @property
    def text(self) -> str:
        """Everything seen."""
        return "".join(self._texts)

    def num_chars_at(self, time_s: float) -> int:
        """Return how much of the text was there at a moment."""
        at = bisect_right(self._times_s, time_s)
        return self._num_chars[at - 1] if at else 0

    def age_s(self, num_chars: int, time_s: float) -> float:
        """Return how long before a moment the first character behind `num_chars` was seen; 0 if it was not."""
        at = bisect_right(self._num_chars, num_chars)
        return max(0.0, time_s - self._times_s[at]) if at < len(self._times_s) else 0.0

    def _follow(self) -> None:
        try:
            view = self._run.first_view()
            while True:
                self._remember(view)
                if view.status == "finished":
                    self.end = view
                    return
                view = self._run.next_view(view)
        except RingsideError:
            return

    def _remember(self, view: RunView) -> None:
        if view.text:
            self._texts.append(view.text)
            self._times_s.append(time.monotonic())
            self._num_chars.append(view.offset + len(view.text))
