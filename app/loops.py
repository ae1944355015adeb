"""Whether a reply has begun to go round in circles, told from its token ids alone, in bounded memory and time.

Two figures, both over a sliding window. The share of distinct 4-grams falls as a text becomes repetitive, a good table
as much as a bad loop: it is for the eye. The repeated run counts how long the text has been saying what it said one
period before; a loop is found when that run is long and holds many periods. Tables, lists and code repeat their form
but vary inside each row, which sets the run back; what repeats without variation (a matrix of zeros, an empty form)
says little in each period and is given much more room.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

MAX_PERIOD = 1024
"""Longest stretch that is recognised when it repeats, in tokens."""

WINDOW_TOKENS = 512
GRAM_TOKENS = 4

MIN_RUN_TOKENS = 512
MIN_PERIODS = 5
MONOTONOUS_TOKENS = 8
MIN_MONOTONOUS_RUN_TOKENS = 4096
"""What periods of so few different tokens have to reach: rows of zeros are no loop yet."""

_SETBACK_TOKENS = 64
"""What one token out of step takes off a run: a loop with a rare slip stays one, rows that differ never become one."""


class LoopDetector:
    """Follows one reply. A token costs some microseconds, whatever came before."""

    def __init__(self) -> None:
        self._ids: npt.NDArray[np.int64] = np.full(2 * MAX_PERIOD, -1, np.int64)
        self._end = MAX_PERIOD
        self._runs: npt.NDArray[np.int64] = np.zeros(MAX_PERIOD, np.int64)  # by period, the longest first
        self._needed = np.maximum(MIN_RUN_TOKENS, MIN_PERIODS * np.arange(MAX_PERIOD, 0, -1))
        self._grams: deque[tuple[int, ...]] = deque(maxlen=WINDOW_TOKENS)
        self._counts: Counter[tuple[int, ...]] = Counter()
        self._gram: deque[int] = deque(maxlen=GRAM_TOKENS)

    def push(self, token_ids: Iterable[int]) -> None:
        """Take the tokens that came next."""
        for token_id in token_ids:
            self._compare(token_id)
            self._count(token_id)

    @property
    def distinct_share(self) -> float | None:
        """Different 4-grams among the last 512, from nearly 0 to 1; None before there are any."""
        return len(self._counts) / len(self._grams) if self._grams else None

    @property
    def run_tokens(self) -> int:
        """How many tokens the text has been repeating what it said one period before; slips count against it."""
        return int(self._runs.max())

    @property
    def period_tokens(self) -> int | None:
        """The length of what is being repeated, once that is a loop; None otherwise."""
        found = np.flatnonzero(self._runs >= self._needed)
        if not found.size:
            return None
        period = MAX_PERIOD - int(found[-1])
        is_monotonous = len(set(self._ids[self._end - period : self._end].tolist())) <= MONOTONOUS_TOKENS
        return None if is_monotonous and self.run_tokens < MIN_MONOTONOUS_RUN_TOKENS else period

    def _compare(self, token_id: int) -> None:
        before: npt.NDArray[Any] = self._ids[self._end - MAX_PERIOD : self._end]
        self._runs = np.where(before == token_id, self._runs + 1, np.maximum(self._runs - _SETBACK_TOKENS, 0))
        if self._end == self._ids.size:
            self._ids[:MAX_PERIOD] = self._ids[MAX_PERIOD:]
            self._end = MAX_PERIOD
        self._ids[self._end] = token_id
        self._end += 1

    def _count(self, token_id: int) -> None:
        self._gram.append(token_id)
        if len(self._gram) < GRAM_TOKENS:
            return
        if len(self._grams) == WINDOW_TOKENS:
            oldest = self._grams[0]
            self._counts[oldest] -= 1
            if not self._counts[oldest]:
                del self._counts[oldest]
        gram = tuple(self._gram)
        self._grams.append(gram)
        self._counts[gram] += 1
