"""What penalties look back on, over numpy."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from backends.repeats import repeat_lengths, repeat_penalties
from backends.requests import Sampling


class RecentTokens:
    """The distinct tokens among the last `window`, and how often each came; of all tokens if `window` is None."""

    def __init__(self, window: int | None, tokens: Iterable[int] = ()) -> None:
        self._window = window
        self._counts: Counter[int] = Counter()
        self._order: deque[int] = deque()
        for token in tokens:
            self.push(token)

    def push(self, token: int) -> None:
        """Take in one more token."""
        self._counts[token] += 1
        if self._window is None:
            return
        self._order.append(token)
        if len(self._order) > self._window:
            oldest = self._order.popleft()
            self._counts[oldest] -= 1
            if not self._counts[oldest]:
                del self._counts[oldest]

    def ids(self) -> npt.NDArray[np.int32]:
        """Return the distinct ids, in no order."""
        return np.fromiter(self._counts, dtype=np.int32, count=len(self._counts))

    def counts(self) -> npt.NDArray[np.float32]:
        """Return how often each of `ids` came, in their order."""
        return np.fromiter(self._counts.values(), dtype=np.float32, count=len(self._counts))


class RepeatedRuns:
    """How long a repeat each place in the last `dry_window` tokens ends, for DRY; see `models.token_history`.

    Args:
        breakers: tokens that end a repeat; they are never penalised.
    """

    def __init__(self, sampling: Sampling, breakers: Collection[int], tokens: Sequence[int]) -> None:
        window = sampling.dry_window
        past = tokens[-window:]
        self._breakers = frozenset(breakers)
        self._penalties = np.array(repeat_penalties(sampling), dtype=np.float32)
        self._ids = np.full(window, -1, dtype=np.int32)
        self._lengths = np.zeros(window, dtype=np.int64)
        self._ids[: len(past)] = past
        self._lengths[: len(past)] = repeat_lengths(past, self._breakers)
        self._place = len(past) % window

    def push(self, token: int) -> None:
        """Take in one more token."""
        goes_on = (self._ids == token) & (token not in self._breakers)
        self._lengths = np.where(goes_on, np.roll(self._lengths, 1) + 1, 0)
        self._lengths[self._place] = 0
        self._ids[self._place] = token
        self._place = (self._place + 1) % len(self._ids)

    def penalise(self, logits_V: npt.NDArray[np.float32]) -> None:
        """Take off each token what `backends.repeats.repeat_penalties` says of the longest repeat it would extend."""
        (places,) = self._lengths.nonzero()
        held = (places - self._place) % len(self._ids) + 1  # tokens of the window up to each place
        penalties = self._penalties[np.minimum(self._lengths[places], held)]
        longest: dict[int, np.float32] = {}
        for token, penalty in zip(self._ids[(places + 1) % len(self._ids)].tolist(), penalties, strict=True):
            longest[token] = max(longest.get(token, penalty), penalty)
        for token, penalty in longest.items():
            if token not in self._breakers:
                logits_V[token] -= penalty
