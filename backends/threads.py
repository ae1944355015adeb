"""How many CPU threads a model takes when nobody says."""

from __future__ import annotations

import os


def usable_cores(num_physical_cores: int | None) -> int:
    """Return the cores this process may use: the physical ones, fewer where its affinity says so; at least 1."""
    physical = num_physical_cores or os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else physical
    return max(1, min(physical, allowed))


def default_num_threads(num_physical_cores: int | None) -> int:
    """Return all usable cores but one, which is left to the browser and the page's server; at least 1.

    A token is hundreds of short parallel steps, each as slow as its slowest thread. One other busy process on the last
    core costs far more than the core adds: on two cores beside other work, two threads wrote 0.4 tokens/s where one
    thread wrote 5.9, and on an idle machine 26.1 against 25.6 (Gemma 3 270M in the ring backend).
    """
    return max(1, usable_cores(num_physical_cores) - 1)
