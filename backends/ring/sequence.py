"""The text in a cache: which tokens were fed, and how much of a new prompt can be taken up from there exactly.

A ring that has wrapped cannot go back: what a token saw deep down reaches further than the window. So the cache is
taken up only where it stands, where nothing was overwritten yet, or from a snapshot of an earlier moment; otherwise the
prompt is read again from its start. A warm cache thus gives what a cold one gives.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from backends.shared_prefix import common_prefix
from models.text_model import Snapshot, TextCache


@dataclass(frozen=True)
class _Moment:
    """What a cache held after some tokens."""

    tokens: array[int]
    snapshot: Snapshot


class CachedText:
    """Keeps count of the tokens in a cache of one row.

    Args:
        cache: empty.
        budget_bytes: of snapshots, together; the oldest go first.

    Attributes:
        tokens: fed so far, four bytes each: a list of ints would show in the memory of a long run.
        logits_BV: what the model made of them, where that is known; so a text that ended can go on from its very end.
    """

    def __init__(self, cache: TextCache, budget_bytes: int) -> None:
        self.cache = cache
        self.tokens = array("i")
        self.logits_BV: Tensor | None = None
        self._budget_bytes = budget_bytes
        self._moments: list[_Moment] = []

    @property
    def snapshot_bytes(self) -> int:
        """Of all snapshots kept."""
        return sum(moment.snapshot.nbytes for moment in self._moments)

    def take_up(self, prompt: Sequence[int]) -> int:
        """Bring the cache to the longest prefix of the prompt that it can serve; return its length.

        That is the whole prompt only where `logits_BV` is known: otherwise a token must be left to feed.
        """
        wanted = array("i", prompt)
        length, moment = self._live_prefix(wanted), self._best_moment(wanted)
        if moment is not None and len(moment.tokens) > length:
            self.cache.restore(moment.snapshot)
            length = len(moment.tokens)
        elif length == 0:
            self.cache.reset(planned_length=len(prompt))
        elif length < len(self.tokens):
            self.cache.rewind(length)
        if length < len(prompt):
            self.logits_BV = None
        self.tokens = wanted[:length]
        return length

    def start_over(self, planned_length: int) -> int:
        """Empty the cache for a text of at least that many tokens; return how many of it are there now: 0."""
        self.cache.reset(planned_length=planned_length)
        self.tokens = array("i")
        self.logits_BV = None
        return 0

    def note_fed(self, tokens: Sequence[int]) -> None:
        """Count tokens that the decoder has put into the cache."""
        self.tokens.extend(tokens)
        self.logits_BV = None

    def remember(self) -> None:
        """Keep a snapshot of this moment, if it is of use and the budget allows."""
        is_known = any(moment.tokens == self.tokens for moment in self._moments)
        if is_known or not self.tokens or not self.cache.can_overwrite or self.cache.held_nbytes > self._budget_bytes:
            return
        self.recall(array("i", self.tokens), self.cache.snapshot("cpu"))

    def recall(self, tokens: array[int], snapshot: Snapshot) -> None:
        """Know of a moment of this cache or of one that was built like it, if the budget allows."""
        self._moments.append(_Moment(tokens, snapshot))
        while self.snapshot_bytes > self._budget_bytes:
            del self._moments[0]

    def _live_prefix(self, wanted: array[int]) -> int:
        """Return how much of the wanted text the cache can serve without a snapshot."""
        shared = common_prefix(self.tokens, wanted)
        if shared == len(self.tokens) and (shared < len(wanted) or self.logits_BV is not None):
            return shared
        return 0 if self.cache.has_overwritten else min(shared, len(wanted) - 1)

    def _best_moment(self, wanted: array[int]) -> _Moment | None:
        usable = [
            moment
            for moment in self._moments
            if len(moment.tokens) < len(wanted) and wanted[: len(moment.tokens)] == moment.tokens
        ]
        return max(usable, key=lambda moment: len(moment.tokens), default=None)
