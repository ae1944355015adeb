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

from backends.contract import LoadedModel
from backends.errors import BadRequestError, OutOfMemoryError
from backends.events import MemoryFigures
from backends.requests import LoadRequest
from backends.ring.drafts import Drafts
from backends.ring.sequence import CachedText
from models.config import ModelConfig
from models.sizing import kv_bytes

_GPU_RESERVE_BYTES = 10**9
_M_MMAP_THRESHOLD = -3  # malloc.h
_DEVICE_IS_FULL = ("CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
_LOADING_THRESHOLD_BYTES = 2**20
_RUNNING_THRESHOLD_BYTES = 4 * 2**20


def free_bytes(device: torch.device) -> int:
    """Return the memory a new allocation could take: of a GPU, what the driver has and what torch holds back unused.

    A gigabyte stays for the context, libraries' workspaces, the masks of a prompt and recorded steps. A GPU that shares
    the computer's memory has what the system has: its driver counts cached files as taken.
    """
    if device.type != "cuda" or torch.cuda.get_device_properties(device).is_integrated:
        return int(psutil.virtual_memory().available)
    held_back = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return max(0, int(torch.cuda.mem_get_info(device)[0]) + held_back - _GPU_RESERVE_BYTES)


def give_back(device: torch.device) -> None:
    """Return what torch holds back unused on a GPU to the driver, after something large was dropped."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


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


def check_cache_fits(
    config: ModelConfig, request: LoadRequest, sinks: int, num_rows: int, element_bytes: int, free_bytes: int
) -> None:
    """Refuse a cache larger than the free memory: the system would grant it and then kill the process.

    Raises:
        BadRequestError: with both numbers.
    """
    row_bytes = kv_bytes(config, request.policy, request.window, sinks, 1, element_bytes, request.kv_type)
    if (needed := num_rows * row_bytes) > free_bytes:
        for_whom = "" if num_rows == 1 else f" of {num_rows} variants"
        raise BadRequestError(
            f"A window of {request.window:,} tokens takes {needed / 1e9:.1f} GB for keys and values{for_whom}, and "
            f"{free_bytes / 1e9:.1f} GB of memory are free.",
            "Choose a smaller window." if num_rows == 1 else "Choose fewer variants or a smaller window.",
        )


def figures(
    info: LoadedModel,
    text: CachedText | None,
    drafts: Drafts | None,
    device: torch.device,
    device_process: DeviceProcessMemory,
) -> MemoryFigures:
    """Return what is held for a text, or for drafts that go on from it, now."""
    cache = None if text is None else text.cache
    writing = cache if drafts is None else drafts.cache
    num_rows = 1 if drafts is None else drafts.num_rows
    position = 0 if writing is None else writing.position
    capacity = 0 if writing is None else writing.capacity_tokens
    held_bytes = 0 if writing is None else writing.held_nbytes
    text_bytes = 0 if cache is None else cache.nbytes  # still there beside the drafts
    return MemoryFigures(
        kv_held_bytes=held_bytes,
        kv_allocated_bytes=text_bytes if drafts is None else text_bytes + drafts.cache.nbytes,
        # Sinks kept plain beside codes outweigh, for some tokens, what not having a window would cost.
        kv_full_bytes=max(held_bytes, num_rows * position * info.kv_bytes_per_token_full),
        position_tokens=position,
        window_filled_tokens=min(position, capacity),
        window_tokens=capacity,
        weights_bytes=info.weights_bytes,
        device_allocated_bytes=allocated_bytes(device),
        device_process_bytes=device_process.value(),
        snapshot_bytes=0 if text is None else text.snapshot_bytes,
        num_rows=num_rows,
        window=info.window if capacity else 0,
        asked_window=info.asked_window,
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
    causes = list(_chain(error))
    said = " ".join(map(str, causes))
    on_host = "can't allocate memory" in said or "not enough memory" in said
    on_host = on_host or any(isinstance(cause, MemoryError) for cause in causes)
    on_device = any(isinstance(cause, torch.OutOfMemoryError) for cause in causes)
    if not on_host and not on_device and not any(words in said for words in _DEVICE_IS_FULL):
        return None
    where = "The computer's memory" if on_host else "The GPU's memory"
    return OutOfMemoryError(
        f"{where} ran out while the model was working.",
        "The text so far is kept; choose a smaller window or model, or close other programs.",
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those it came up in: what fails while a step is recorded is told only by the innermost."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
