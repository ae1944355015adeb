"""Keys and values of the past, kept in storage that is allocated once and never moves.

A bounded layer is a ring: position p lives in slot p until the slots are used up, then overwrites the oldest position
that is not a sink. A growing layer keeps position p in slot p for ever and takes storage in blocks. Positions are
Python ints, one a row, and are never derived from how full a buffer is.

This module stores and says what lies where; `models.attention` reads it, `models.decoder` drives both.

Shape letters: B rows of the batch, H key/value heads, S slots, T tokens of a chunk, K keys attended to, D head_dim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from backends.requests import CachePolicy
from models.config import ModelConfig

GROWTH_BLOCK_SLOTS = 1024


@dataclass(frozen=True)
class LayerLimits:
    """How far one layer looks and how much it keeps.

    Attributes:
        window: keys a query sees, itself included, sinks apart; None sees everything.
        sinks: first positions that stay visible for ever; 0 unless the layer is bounded though trained on everything.
        slots: positions the layer has room for; None grows.
    """

    window: int | None
    sinks: int
    slots: int | None


def layer_limits(config: ModelConfig, policy: CachePolicy, window: int, sinks: int) -> tuple[LayerLimits, ...]:
    """Limits of every layer under a policy; the bytes they cost are `models.sizing.kv_bytes`."""
    raise NotImplementedError


@dataclass(frozen=True)
class CacheSnapshot:
    """Exact copy of a cache at one moment: the positions and every slot then filled.

    Attributes:
        positions: tokens fed, one a row.
        nbytes: of the copies.
    """

    positions: tuple[int, ...]
    nbytes: int


class KVCache:
    """Keys and values of every layer of one model, for a batch of rows with independent positions.

    Args:
        config: the model.
        policy, window, sinks: see `backends.requests`; `sinks` is the resolved number here.
        batch_size: rows B.
        dtype: of the stored keys and values.
        device: where they live.
        fill: what an empty slot holds. NaN makes any read of one visible; leave 0 for `decode_step(static=True)`,
            which multiplies empty slots by a zero weight while the rings are filling.

    Raises:
        ValueError: a window below 1, negative sinks, or no rows.
    """

    def __init__(
        self,
        config: ModelConfig,
        policy: CachePolicy,
        window: int,
        sinks: int,
        batch_size: int = 1,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        fill: float = 0.0,
    ) -> None:
        self.positions: list[int] = [0] * batch_size
        """Tokens ever fed, one a row: also the position of the next token."""

    @property
    def position(self) -> int:
        """Tokens ever fed to a cache of one row (or whose rows agree)."""
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        """Bytes allocated: for bounded layers equal to `models.sizing.kv_bytes` from the first token on."""
        raise NotImplementedError

    @property
    def held_nbytes(self) -> int:
        """Bytes of the slots that hold a position now."""
        raise NotImplementedError

    @property
    def is_saturated(self) -> bool:
        """Whether every slot of every row is filled, so that a decode step needs no mask and its addresses are final."""
        raise NotImplementedError

    @property
    def generation(self) -> int:
        """Counts the times storage moved (growing layers only); a captured graph is valid for one generation."""
        raise NotImplementedError

    def reset(self) -> None:
        """Forget everything; storage stays where it is."""
        raise NotImplementedError

    def set_position(self, position: int) -> None:
        """Pretend `position` tokens went before, none of them kept: to test far positions. Only on an empty cache."""
        raise NotImplementedError

    def advance(self, num_tokens: int) -> None:
        """Count tokens as fed. The decoder does this itself, except for a replayed graph, whose caller does."""
        raise NotImplementedError

    def snapshot(self, device: torch.device | str | None = None) -> CacheSnapshot:
        """Copy positions and filled slots, to `device` if given."""
        raise NotImplementedError

    def restore(self, snapshot: CacheSnapshot) -> None:
        """Put the cache back to the very state of `snapshot`; a snapshot can be restored any number of times."""
        raise NotImplementedError

    def copy_row(self, source: int, targets: Sequence[int]) -> None:
        """Make rows `targets` equal to row `source`, position included: one prefill, several drafts."""
        raise NotImplementedError
