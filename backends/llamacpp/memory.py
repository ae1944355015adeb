"""Bytes of the key/value cache: set aside (from llama.cpp's log), and held now (measured).

llama.cpp allocates and zeroes all cells at start and offers no call that tells their size, hence the log. Since the
memory of the process is flat by construction, the live measure is the one that shows what the policy does.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_CACHE_LINE = re.compile(r"^llama_kv_cache: size = +([\d.]+) MiB \( *(\d+) cells, +(\d+) layers")
_BUFFER_LINE = re.compile(r"^\w+: +(\S+) +(?:\w+ )?(?:model|KV|compute|output|RS) buffer size = +([\d.]+) MiB")
_MIB = 2**20
_BYTES_STEP = 32
"""Bytes per cell and layer are a multiple of this (8 elements of keys and as many of values, 16 bits each)."""
_Q8_0_BYTES_STEP = 68
"""The same in q8_0: one block of 32 elements and their scale in 34 bytes, of keys and of values."""


@dataclass(frozen=True)
class CacheSize:
    """One of a context's caches.

    Attributes:
        num_cells: tokens it has room for.
        num_layers: that store their keys and values in it.
        bytes_per_token: over all its layers.
    """

    num_cells: int
    num_layers: int
    bytes_per_token: int

    @property
    def num_bytes(self) -> int:
        return self.num_cells * self.bytes_per_token


def cache_sizes(log_lines: Sequence[str], is_q8_0: bool = False) -> tuple[CacheSize, ...]:
    """Return the caches that a context's log names: the full layers' first, then, if any layer slides, theirs.

    The log rounds to 0.01 MiB; rounding bytes per token to whole elements per layer undoes that.
    """
    sizes = []
    for line in log_lines:
        if match := _CACHE_LINE.match(line):
            mebibytes, cells, layers = float(match[1]), int(match[2]), int(match[3])
            step = (_Q8_0_BYTES_STEP if is_q8_0 else _BYTES_STEP) * max(1, layers)
            sizes.append(CacheSize(cells, layers, round(mebibytes * _MIB / max(1, cells) / step) * step))
    return tuple(sizes)


def device_bytes(log_lines: Sequence[str]) -> int:
    """Return the bytes of all buffers that the log places on a device other than the CPU."""
    matches = (_BUFFER_LINE.match(line) for line in log_lines)
    return sum(round(float(m[2]) * _MIB) for m in matches if m and not m[1].startswith("CPU"))


class ThrottledMeasure:
    """A measurement taken at most every `interval_s`, because it takes time that grows with the context.

    Args:
        measure: returns bytes; called from the thread that calls `value`.
        clock: in seconds.
    """

    def __init__(
        self, measure: Callable[[], int], interval_s: float = 0.25, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._measure = measure
        self._interval_s = interval_s
        self._clock = clock
        self._taken_s = -float("inf")
        self._value = 0

    def value(self, fresh: bool = False) -> int:
        """Return the last measurement, or a new one if it is due or `fresh` is asked for."""
        now_s = self._clock()
        if fresh or now_s - self._taken_s >= self._interval_s:
            self._value, self._taken_s = self._measure(), now_s
        return self._value
