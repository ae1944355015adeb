"""What other processes use: the peak of one's memory, and the processor time of a whole family of them."""

from __future__ import annotations

import contextlib
import resource
import sys
from collections.abc import Iterable
from pathlib import Path

import psutil


def forget_peak(pid: int) -> None:
    """Start the kernel's high-water mark of a process anew, where it can be (Linux)."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    return int(psutil.Process(pid).memory_info().rss)


def peak_bytes(pid: int) -> int:
    """Return the largest resident memory of a process since `forget_peak`; elsewhere than on Linux, this one's ever."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def family(pid: int) -> list[psutil.Process]:
    """Return a process and everything it started that still runs."""
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def cpu_seconds(processes: Iterable[psutil.Process]) -> float:
    """Return the processor time that processes have used so far, in user and system mode; the gone count nothing."""
    total_s = 0.0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total_s += times.user + times.system
    return total_s
