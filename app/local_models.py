"""Models on this machine and what one would take, for page and command line; never imports an engine library."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import psutil

from backends.registry import BACKENDS
from backends.requests import LoadRequest
from models.backend_support import config_for
from models.catalog import ModelEntry, find_models
from models.chat_template import find_source
from models.demo import DEMOS
from models.hub import hub_cache_folder
from models.model_files import ModelFiles
from models.sizing import Estimate, estimate, held_weights_bytes


def local_models(data_folder: Path, model_folders: Sequence[Path]) -> list[ModelEntry]:
    """Return the models below Ringside's own folder, the person's folders and the Hugging Face cache."""
    return find_models([data_folder / "models", *model_folders], hub_cache_folder())


def why_not(entry: ModelEntry, backend: str) -> str:
    """Return why a backend cannot run a model here, as one sentence; empty if it can."""
    known = BACKENDS[backend]
    if missing := known.missing_libraries():
        return f"{known.title} needs {', '.join(missing)}. Run: {known.install_command}"
    return entry.why_not(backend)


def estimate_load(request: LoadRequest, data_folder: Path) -> Estimate | None:
    """Estimate memory before loading; None where the model is not on this machine yet, or has no figures (echo).

    Raises:
        RingsideError: the model's files are damaged or incomplete.
    """
    path = _local_path(request.model, data_folder)
    if request.backend == "echo" or path is None:
        return None
    files = ModelFiles.open(path)
    on_gpu, free_bytes = _where_it_goes(request)
    return estimate(
        config_for(files, request.backend),
        held_weights_bytes(files, request, on_gpu),
        request,
        has_chat_template=find_source(files, request.chat_template) is not None,
        free_bytes=free_bytes,
        on_gpu=on_gpu,
        encodings=files.weights.encodings,
    )


def _local_path(model: str, data_folder: Path) -> Path | None:
    path = DEMOS[model].path(data_folder) if model in DEMOS else Path(model).expanduser()
    return path if path.exists() else None


def _where_it_goes(request: LoadRequest) -> tuple[bool, int]:
    """Return whether the model would go to a GPU, and the free bytes there."""
    gpu_bytes = _free_gpu_bytes() if request.device != "cpu" and request.backend == "ring" else None
    if gpu_bytes is not None:
        return True, gpu_bytes
    return False, psutil.virtual_memory().available


def _free_gpu_bytes() -> int | None:
    """Return the free bytes of the first NVIDIA GPU; None where there is none or its library is not installed."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).free)
    except pynvml.NVMLError:
        return None
