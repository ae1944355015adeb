"""What penalties look back on, over numpy."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt


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
