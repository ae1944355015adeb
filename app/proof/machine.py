"""The machine and the software that figures were measured with, and what is free on it."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from app.proof.isolated import stream
from backends.errors import RingsideError
from backends.registry import BACKENDS

_RECORDED = ("ringside", "torch", "transformers", "llama-cpp-python", "numpy", "gguf", "gradio")


def describe() -> dict[str, str]:
    """Return hardware, system and versions by name, as every benchmark records them; what is absent is left out."""
    found = {
        "cpu": _cpu_name(),
        "cores": f"{psutil.cpu_count(logical=False) or '?'} physical, {os.cpu_count()} logical",
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release().partition('-')[0]} {platform.machine()}",
        "python": platform.python_version(),
    }
    gpu = gpu_name()
    if gpu:
        found["gpu"] = gpu
    for package in _RECORDED:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def free_bytes(on_gpu: bool) -> int | None:
    """Return the memory a model could take now: free VRAM of the first GPU, or available RAM."""
    if not on_gpu:
        return int(psutil.virtual_memory().available)
    memory = _gpu("memory")
    return None if memory is None else int(memory)


def gpu_name() -> str | None:
    """Return the first NVIDIA GPU's name; None without one, or without its driver's Python library."""
    name = _gpu("name")
    return None if name is None else str(name)


def has_cuda() -> bool:
    """Say whether PyTorch's device "cuda" may be here: an NVIDIA GPU, or an AMD one, which it calls so too.

    Where the driver's Python library is missing, the driver's own device file tells.
    """
    return gpu_name() is not None or any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/kfd"))


_runtime_bytes: dict[str, int | None] = {}


def runtime_bytes(backend: str, measure: bool = True) -> int | None:
    """Return the resident memory of a worker that has the backend's libraries loaded and no model, measured here.

    Takes a second or two, once. None where the libraries are missing, or it was not measured yet and is not to be.
    """
    if measure and backend not in _runtime_bytes:
        try:
            _runtime_bytes[backend] = int(next(stream(__name__, "resident_bytes_with", backend)))
        except (RingsideError, StopIteration):
            _runtime_bytes[backend] = None
    return _runtime_bytes.get(backend)


def resident_bytes_with(backend: str) -> Iterator[int]:
    """Import a backend and yield this process's resident memory; runs in a process of its own."""
    importlib.import_module(BACKENDS[backend].module)
    yield int(psutil.Process().memory_info().rss)


def read_bandwidth(num_threads: int, num_bytes: int = 2**28) -> float:
    """Return bytes per second that so many threads read from memory: the best of five passes over 256 MiB.

    A token must read every weight once, so weights over bandwidth is the least time it can take on a CPU.
    """
    parts = np.array_split(np.ones(num_bytes // 8, np.int64), num_threads)
    best_s = float("inf")
    with ThreadPoolExecutor(num_threads) as pool:
        for _ in range(5):
            started_s = time.perf_counter()
            list(pool.map(np.sum, parts))  # numpy lets go of the interpreter lock while it adds
            best_s = min(best_s, time.perf_counter() - started_s)
    return num_bytes / best_s


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _gpu(what: str) -> Any:
    """Ask the driver about the first GPU; None where there is none to ask."""
    try:
        pynvml = importlib.import_module("pynvml")
        pynvml.nvmlInit()
    except Exception:  # not installed, no driver, no device: each raises its own kind
        return None
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        return pynvml.nvmlDeviceGetMemoryInfo(handle).free if what == "memory" else pynvml.nvmlDeviceGetName(handle)
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()
