"""Tokens per second: now, smoothed, and on average."""

from __future__ import annotations

import math

SMOOTHING_S = 3.0
"""Time constant of the smoothed rate."""
LEAST_S = 0.05
"""A rate is told from here on: two tokens that were reported at once say nothing of speed."""
LEAST_READ_TOKENS = 16
"""A prompt's rate is told from here on: the last token is read even where all are reused."""


class SmoothedRate:
    """Tokens per second between reports, and smoothed: decaying tokens over decaying seconds."""

    def __init__(self) -> None:
        self._tokens = 0.0
        self._seconds = 0.0
        self._last_s = 0.0

    def start(self, time_s: float) -> None:
        """Count from here: the moment of the first token."""
        self._last_s = time_s

    def advance(self, num_tokens: int, time_s: float) -> float | None:
        """Return the rate since the last report; None where no time has passed."""
        seconds = time_s - self._last_s
        if seconds <= 0:
            return None
        kept = math.exp(-seconds / SMOOTHING_S)
        self._tokens = self._tokens * kept + num_tokens
        self._seconds = self._seconds * kept + seconds
        self._last_s = time_s
        return num_tokens / seconds

    @property
    def smooth(self) -> float | None:
        """Smoothed over about `SMOOTHING_S`; None before `LEAST_S` were counted."""
        return self._tokens / self._seconds if self._seconds >= LEAST_S else None

    def now(self, time_s: float) -> float | None:
        """Return the smoothed rate, lower the longer the next token is overdue."""
        if not self.smooth:
            return self.smooth
        overdue_s = max(0.0, time_s - self._last_s - 1 / self.smooth)
        kept = math.exp(-overdue_s / SMOOTHING_S)
        return self._tokens * kept / (self._seconds * kept + overdue_s)


class AverageRate:
    """Tokens per second after the first token, over all stretches of a reply."""

    def __init__(self, tokens: float = 0.0, seconds: float = 0.0) -> None:
        self._tokens = tokens
        self._seconds = seconds
        self._last_s = 0.0

    @classmethod
    def of(cls, num_tokens: int, tokens_per_s: float | None) -> AverageRate:
        """Take up the average of an earlier stretch, weighted by its tokens."""
        return cls(num_tokens, num_tokens / tokens_per_s) if tokens_per_s else cls()

    def start(self, time_s: float) -> None:
        """Count from here: the moment of the first token."""
        self._last_s = time_s

    def advance(self, num_tokens: int, time_s: float) -> None:
        """Count tokens that came by `time_s`."""
        self._tokens += num_tokens
        self._seconds += time_s - self._last_s
        self._last_s = time_s

    @property
    def value(self) -> float | None:
        """Tokens per second; None before the second report."""
        return self._tokens / self._seconds if self._seconds > 0 else None
