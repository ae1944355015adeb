"""What the C library does with freed memory, set so that the page's process stays as small as what it holds."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # glibc's malloc.h
_LARGE_BYTES = 256 * 2**10
_NUM_ARENAS = 2


def give_freed_memory_back() -> None:
    """Have large blocks returned to the system when they are freed, and let threads share few heaps.

    Left to itself, glibc learns from the first freed large block (the text of a long reply, say) to keep such blocks
    for later, and gives each of the web server's threads a heap of its own that never shrinks. Call it before threads
    are started; where there is no glibc, nothing happens.
    """
    mallopt = _from_glibc("mallopt")
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_M_ARENA_MAX, _NUM_ARENAS)


def trim() -> None:
    """Give back what is free between blocks in use: some milliseconds, worth it after much was held for a moment."""
    malloc_trim = _from_glibc("malloc_trim")
    if malloc_trim is not None:
        malloc_trim(0)


def _from_glibc(name: str) -> Any:
    return getattr(ctypes.CDLL(None), name, None) if sys.platform.startswith("linux") else None
