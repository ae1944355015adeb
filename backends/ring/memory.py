"""Bytes: what a run takes on the device and on the host, and what is free before it starts."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator
from typing import Any

import psutil
import torch

from backends.errors import OutOfMemoryError

_M_MMAP_THRESHOLD = -3  # malloc.h
_LOADING_THRESHOLD_BYTES = 2**20
_RUNNING_THRESHOLD_BYTES = 4 * 2**20


def free_bytes(device: torch.device) -> int:
    """Return the memory a new allocation could take."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)


def check_weights_fit(name: str, weights_bytes: int, precision: str, free: int) -> None:
    """Refuse weights larger than the free memory; the system would grant it and kill the process half-way.

    Raises:
        OutOfMemoryError: with both numbers.
    """
    if weights_bytes > free:
        raise OutOfMemoryError(
            f"{name} takes {weights_bytes / 1e9:.1f} GB in {precision}, and {free / 1e9:.1f} GB of memory are free.",
            "Choose a smaller model or fewer bits, or close other programs.",
        )


def allocated_bytes(device: torch.device) -> int | None:
    """Return what torch has handed out on a GPU; None on a CPU."""
    return int(torch.cuda.memory_allocated(device)) if device.type == "cuda" else None


class DeviceProcessMemory:
    """VRAM of this process as the driver counts it, contexts and libraries included."""

    def __init__(self, device: torch.device) -> None:
        self._nvml: Any = None
        if device.type == "cuda":
            with contextlib.suppress(Exception):  # no driver library, no permission: the figure is simply not shown
                import pynvml

                pynvml.nvmlInit()
                uuid = str(torch.cuda.get_device_properties(device).uuid)
                self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")
                self._nvml = pynvml

    def value(self) -> int | None:
        """Return the bytes; None on a CPU, or where the driver does not tell."""
        if self._nvml is None:
            return None
        with contextlib.suppress(self._nvml.NVMLError):
            for process in self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle):
                if process.pid == os.getpid() and process.usedGpuMemory is not None:
                    return int(process.usedGpuMemory)
        return None


@contextlib.contextmanager
def tidy_heap() -> Iterator[None]:
    """While loading, let freed buffers go back to the system at once, and give back the rest at the end.

    glibc keeps freed blocks of up to 32 MB for later; while a model loads, that adds up to as much as its weights.
    """
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    has_mallopt = libc is not None and hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim")
    if libc is not None and has_mallopt:
        libc.mallopt(_M_MMAP_THRESHOLD, _LOADING_THRESHOLD_BYTES)
    try:
        yield
    finally:
        if libc is not None and has_mallopt:
            libc.mallopt(_M_MMAP_THRESHOLD, _RUNNING_THRESHOLD_BYTES)
            libc.malloc_trim(0)


def as_out_of_memory(error: BaseException) -> OutOfMemoryError | None:
    """Return what to tell the person if an error means that memory ran out; None if it means something else."""
    said = str(error)
    on_host = isinstance(error, MemoryError) or "can't allocate memory" in said or "not enough memory" in said
    if not on_host and not isinstance(error, torch.OutOfMemoryError):
        return None
    where = "The computer's memory" if on_host else "The GPU's memory"
    return OutOfMemoryError(
        f"{where} ran out while the model was working.",
        "The text so far is kept; choose a smaller window or model, or close other programs.",
    )
