"""Which backends exist, whether their libraries are here, and how to add them. Imports a leaf only to load it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from dataclasses import dataclass

from backends.contract import Backend, ReportProgress
from backends.errors import BackendUnavailableError
from backends.requests import LoadRequest


@dataclass(frozen=True)
class BackendEntry:
    """A leaf by name: the module to import, the libraries it needs, and the packages that bring them."""

    name: str
    title: str
    module: str
    libraries: tuple[str, ...]
    packages: tuple[str, ...]

    @property
    def install_command(self) -> str:
        """Return what adds the libraries to the environment that runs this, wherever it is typed."""
        return f"{sys.executable} -m pip install {' '.join(self.packages)}" if self.packages else ""

    def missing_libraries(self) -> tuple[str, ...]:
        """Return the libraries that cannot be found, without importing any."""
        return tuple(name for name in self.libraries if importlib.util.find_spec(name) is None)


BACKENDS: dict[str, BackendEntry] = {
    entry.name: entry
    for entry in (
        BackendEntry(
            "ring",
            "Ring cache (PyTorch)",
            "backends.ring",
            ("torch", "safetensors", "tokenizers", "gguf"),
            ("torch==2.13.0", "safetensors", "tokenizers", "gguf", "nvidia-ml-py"),
        ),
        BackendEntry(
            "llamacpp",
            "llama.cpp",
            "backends.llamacpp",
            ("llama_cpp",),
            ("llama-cpp-python==0.3.36",),
        ),
        BackendEntry("echo", "Echo (no model)", "backends.echo", (), ()),
    )
}


def load(request: LoadRequest, progress: ReportProgress) -> Backend:
    """Import the leaf and load the model; call it in the worker process only.

    Raises:
        RingsideError: the backend is unknown or its library missing, or loading failed.
    """
    entry = BACKENDS.get(request.backend)
    if entry is None:
        raise BackendUnavailableError(
            f"There is no backend {request.backend!r}.", f"Choose one of {', '.join(BACKENDS)}."
        )
    if missing := entry.missing_libraries():
        raise BackendUnavailableError(f"{entry.title} needs {', '.join(missing)}.", f"Run: {entry.install_command}")
    try:
        leaf = importlib.import_module(entry.module)
    except (ImportError, OSError, RuntimeError) as error:  # a library that is there and does not load
        raise BackendUnavailableError(
            f"{entry.title} does not start: {error}.", f"Run: {entry.install_command}"
        ) from error
    backend: Backend = leaf.load(request, progress)
    return backend
