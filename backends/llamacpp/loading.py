"""From a GGUF file to a backend: checks first, since llama.cpp aborts the process on some damaged files."""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import dataclass, replace

import llama_cpp
import psutil

from backends.contract import LoadedModel, ReportProgress
from backends.errors import BadRequestError, ModelFileError, OutOfMemoryError, UnsupportedModelError
from backends.events import LoadProgress
from backends.llamacpp.context import BATCH_TOKENS, Context
from backends.llamacpp.file_checks import check_file
from backends.llamacpp.generation import FEWEST_PINNED_TOKENS, LlamaCppBackend
from backends.llamacpp.library import Model, gpu_offload_supported
from backends.llamacpp.notices import Facts, notices
from backends.llamacpp.overrides import find_overrides
from backends.llamacpp.plan import ContextPlan, plan_context
from backends.llamacpp.prompting import Prompts
from backends.requests import CachePolicy, LoadRequest
from backends.threads import default_num_threads
from models.chat_template import ChatTemplate
from models.config import ModelConfig
from models.gguf_reader import GgufFile
from models.model_files import ModelFiles

_MOST_CELLS = 2**31 - 1
"""Positions are 32-bit integers in llama.cpp."""
_DEVICE_LINE = re.compile(r"using device \S+ \((.+?)\)")


def load(request: LoadRequest, progress: ReportProgress) -> LlamaCppBackend:
    """Load a GGUF file; see `backends.contract.Leaf`.

    Raises:
        ModelFileError: the file is missing, truncated or not a GGUF file.
        UnsupportedModelError: llama.cpp does not run this model.
        BadRequestError: the window or the sinks are out of range, or keys and values are asked for in fp8.
        OutOfMemoryError: the cache does not fit.
    """
    _check_numbers(request)
    progress(LoadProgress("Checking the file"))
    files, gguf = _open(request.model)
    check_file(gguf)
    config = _known_config(files)
    template = ChatTemplate.find(files, request.chat_template)
    on_gpu = request.device != "cpu" and gpu_offload_supported()
    num_bytes = gguf.tensor_bytes
    with ExitStack() as undo:
        model = Model(
            gguf.path,
            on_gpu,
            lambda part: progress(LoadProgress("Reading weights", int(part * num_bytes), num_bytes)),
            find_overrides(gguf, config),
        )
        undo.callback(model.close)
        if not model.writes_text:
            raise UnsupportedModelError(f"{gguf.path} holds a {gguf.architecture} model, which does not write text.")
        progress(LoadProgress("Setting up the cache"))
        num_threads = request.num_threads or default_num_threads(psutil.cpu_count(logical=False))
        info = _describe(files, config, model, request, on_gpu, template is not None, num_threads)
        info = replace(info, reasoning_opening=template.reasoning_opening if template is not None else "")
        identity = {
            "model": files.fingerprint(),
            "keys and values": request.kv_type,
            "llama.cpp": llama_cpp.__version__,
            "device": info.device,
        }
        backend = LlamaCppBackend(model, request, Prompts(model, template), info, num_threads, identity)
        undo.pop_all()
    return backend


def _check_numbers(request: LoadRequest) -> None:
    for name, value, least in (("window", request.window, 1), ("number of sinks", request.sinks or 0, 0)):
        if not least <= value <= _MOST_CELLS // 4:
            raise BadRequestError(
                f"A {name} of {value:,} is outside {least} to {_MOST_CELLS // 4:,}.", "Choose another."
            )
    if request.policy is not CachePolicy.RING and not 1 <= request.growing_context_tokens <= _MOST_CELLS // 4:
        raise BadRequestError(
            f"A context of {request.growing_context_tokens:,} tokens is outside 1 to {_MOST_CELLS // 4:,}.",
            "Choose another.",
        )
    if request.kv_type == "fp8":
        raise BadRequestError("llama.cpp has no fp8 for keys and values.", "Choose int8, its q8_0, or auto.")


def _open(model: str) -> tuple[ModelFiles, GgufFile]:
    files = ModelFiles.open(model)
    if files.gguf is None:
        raise UnsupportedModelError(
            f"llama.cpp reads GGUF files, and {files.path} is a Hugging Face folder.",
            "Choose a GGUF file, or another backend.",
        )
    return files, files.gguf


def _describe(
    files: ModelFiles,
    config: ModelConfig | None,
    model: Model,
    request: LoadRequest,
    on_gpu: bool,
    has_chat_template: bool,
    num_threads: int,
) -> LoadedModel:
    sinks = FEWEST_PINNED_TOKENS if request.sinks is None else request.sinks
    plan = plan_context(request.policy, request.window, sinks, model.sliding_window, request.growing_context_tokens)
    sample = Context(model, plan_context(CachePolicy.RING, 1, 0, 0, 0), num_threads, request.kv_type)
    sample.close()  # its log has told what a token costs
    if not on_gpu:
        _check_memory(sample, model, plan)
    trained = _layers_as_trained(files, config, model, sample)
    facts = Facts(
        architecture=trained.architecture,
        sliding_window=model.sliding_window,
        trained_window=trained.window,
        num_full_layers=sample.num_layers - sample.num_sliding_layers,
        trained_context=model.trained_context,
        can_shift=model.can_shift,
        has_chat_template=has_chat_template,
        on_gpu=on_gpu,
    )
    return LoadedModel(
        name=files.name,
        architecture=trained.architecture,
        device=_device_name(model) if on_gpu else "cpu",
        precision=files.stored_as,
        policy=request.policy,
        num_sliding_layers=trained.num_sliding,
        num_full_layers=trained.num_full,
        trained_window=trained.window,
        window=_window_in_force(facts, request),
        asked_window=request.window,
        sinks=sinks,
        context_tokens=model.trained_context or None,
        vocab_size=model.vocab_size,
        weights_bytes=model.weights_bytes,
        kv_bytes_per_token_full=sample.bytes_per_token,
        has_chat_template=has_chat_template,
        notices=notices(facts, request, plan, sinks),
    )


def _window_in_force(facts: Facts, request: LoadRequest) -> int:
    """Return W of bounded full layers, or where there are none, the window that llama.cpp gives sliding layers."""
    if request.policy is CachePolicy.RING and facts.num_full_layers:
        return max(request.window, facts.sliding_window)
    return facts.sliding_window or request.window


@dataclass(frozen=True)
class _TrainedLayers:
    architecture: str
    window: int | None
    num_sliding: int
    num_full: int


def _layers_as_trained(files: ModelFiles, config: ModelConfig | None, model: Model, sample: Context) -> _TrainedLayers:
    """Return what the file says, or where only llama.cpp knows the architecture, how it runs it."""
    if config is None:
        sliding = sample.num_sliding_layers
        architecture = files.gguf.architecture if files.gguf else ""
        return _TrainedLayers(architecture, model.sliding_window or None, sliding, sample.num_layers - sliding)
    return _TrainedLayers(config.architecture, config.trained_window, config.num_sliding_layers, config.num_full_layers)


def _known_config(files: ModelFiles) -> ModelConfig | None:
    """Return the features of an architecture that the ring engine knows as well; None for others."""
    try:
        return files.config()
    except (UnsupportedModelError, ModelFileError):
        return None


def _device_name(model: Model) -> str:
    names = [match[1] for line in model.load_lines if (match := _DEVICE_LINE.search(line))]
    return ", ".join(dict.fromkeys(names)) or "gpu"


def _check_memory(sample: Context, model: Model, plan: ContextPlan) -> None:
    """Refuse a cache larger than the free memory: the system would grant it and then kill the process.

    Raises:
        OutOfMemoryError: with both numbers.
    """
    sliding_cells = (
        plan.num_cells if plan.keeps_everything else min(plan.num_cells, model.sliding_window + BATCH_TOKENS)
    )
    cells = (plan.num_cells, sliding_cells)
    needed = sum(num_cells * cache.bytes_per_token for num_cells, cache in zip(cells, sample.caches, strict=False))
    free = psutil.virtual_memory().available
    if needed > free:
        raise OutOfMemoryError(
            f"A context of {plan.num_cells:,} tokens takes {needed / 1e9:.1f} GB for keys and values, and "
            f"{free / 1e9:.1f} GB of memory are free.",
            "Choose a smaller window.",
        )
