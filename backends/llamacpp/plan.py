"""How policy, window and sinks become a llama.cpp context, and what of it the person should know. Pure arithmetic.

llama.cpp has no ring for layers trained with full attention. Its context of `n_ctx` cells becomes one if a block of the
oldest cells behind the sinks is dropped each time it is full: such layers then see a little less to all of `n_ctx`.
Sliding layers have a cache of their own, a little over their trained window, that needs no help.
"""

from __future__ import annotations

from dataclasses import dataclass

from backends.requests import CachePolicy

_CELLS_STEP = 256
"""llama.cpp rounds every context up to this."""
_MIN_DISCARD_TOKENS = 64
"""Dropping a block costs about two tokens' time, whatever its size; at 64 that is three per cent."""
_DISCARD_FRACTION = 4


@dataclass(frozen=True)
class ContextPlan:
    """A context's size and how it makes room.

    Attributes:
        num_cells: `n_ctx`, a multiple of 256.
        retained_tokens: newest tokens that stay when room is made, at least.
        keeps_everything: whether sliding layers hold the whole context too (`swa_full`).
    """

    num_cells: int
    retained_tokens: int
    keeps_everything: bool

    def discard_tokens(self, sinks: int) -> int:
        """Return how many of the oldest tokens behind the sinks to drop when the context is full.

        A quarter of what is not pinned, or less where that would cut into `retained_tokens`. Example: 768 cells, 4
        sinks and 512 to retain drop min(764 // 4, 764 - 512) = 191.
        """
        movable = self.num_cells - sinks
        return min(movable // _DISCARD_FRACTION, movable - self.retained_tokens)

    def holds(self, sinks: int) -> bool:
        """Say whether that many sinks leave room for the retained tokens and a useful block to drop."""
        return self.num_cells - sinks - self.retained_tokens >= _MIN_DISCARD_TOKENS


def plan_context(
    policy: CachePolicy, window: int, sinks: int, sliding_window: int, growing_context_tokens: int
) -> ContextPlan:
    """Return the smallest context that serves the policy.

    Args:
        window: W.
        sinks: S.
        sliding_window: of the sliding layers as llama.cpp runs them, 0 for none; what is dropped must lie outside it.
        growing_context_tokens: context of the policies that grow.
    """
    retained = max(window, sliding_window) if policy is CachePolicy.RING else max(1, sliding_window)
    smallest = _round_up(sinks + retained + _MIN_DISCARD_TOKENS)
    growing = 0 if policy is CachePolicy.RING else _round_up(growing_context_tokens)
    return ContextPlan(max(smallest, growing), retained, keeps_everything=policy is CachePolicy.FULL)


def _round_up(num_cells: int) -> int:
    return -(-num_cells // _CELLS_STEP) * _CELLS_STEP
