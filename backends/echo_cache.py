"""The echo backend's cache: two layers of real rows, so that memory figures can be checked against them."""

from __future__ import annotations

from backends.events import MemoryFigures
from backends.requests import CachePolicy

ROW_BYTES = 512
"""Bytes that one token takes in one of the two layers."""


class EchoCache:
    """Two layers of rows, kept as the policy says: real bytes, so that the figures can be checked against them.

    Row n of a bounded layer lies in slot n mod W; sinks have slots of their own and are never overwritten.
    """

    def __init__(self, policy: CachePolicy, window: int, sinks: int) -> None:
        self.sinks = sinks
        self._policy = policy
        self._window = window
        self._position = 0
        sliding_slots = None if policy is CachePolicy.FULL else window
        full_slots = sinks + window if policy is CachePolicy.RING else None
        self._layers = [_Layer(sliding_slots, 0), _Layer(full_slots, sinks)]

    def append(self, piece: str) -> None:
        """Keep one token."""
        row = piece.encode("utf-8", "surrogatepass")[:ROW_BYTES].ljust(ROW_BYTES, b"\0")
        for layer in self._layers:
            layer.write(self._position, row)
        self._position += 1

    def figures(self) -> MemoryFigures:
        """Return the figures, counted from the buffers."""
        bounded = {CachePolicy.RING: self.sinks + self._window, CachePolicy.AS_TRAINED: self._window}
        window_tokens = bounded.get(self._policy, 0)
        return MemoryFigures(
            kv_held_bytes=sum(layer.num_held(self._position) * ROW_BYTES for layer in self._layers),
            kv_allocated_bytes=sum(len(layer.rows) for layer in self._layers),
            kv_full_bytes=len(self._layers) * self._position * ROW_BYTES,
            position_tokens=self._position,
            window_filled_tokens=min(self._position, window_tokens),
            window_tokens=window_tokens,
            weights_bytes=0,
            window=self._window if window_tokens else 0,
            asked_window=self._window,
        )


class _Layer:
    """Rows of one layer: a ring of `num_slots` behind pinned sinks, or all rows if there is no limit."""

    def __init__(self, num_slots: int | None, sinks: int) -> None:
        self._num_slots = num_slots
        self._sinks = sinks
        self.rows = bytearray((num_slots or 0) * ROW_BYTES)

    def write(self, position: int, row: bytes) -> None:
        if self._num_slots is None:
            self.rows += row
            return
        slot = position
        if position >= self._sinks:
            slot = self._sinks + (position - self._sinks) % (self._num_slots - self._sinks)
        self.rows[slot * ROW_BYTES : (slot + 1) * ROW_BYTES] = row

    def num_held(self, position: int) -> int:
        return position if self._num_slots is None else min(position, self._num_slots)
