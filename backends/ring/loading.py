"""From a model's files to a backend: the cheap checks first, the weights last."""

from __future__ import annotations

import psutil
import torch

from backends.contract import LoadedModel, ReportProgress
from backends.errors import BadRequestError, OutOfMemoryError
from backends.events import LoadProgress
from backends.requests import CachePolicy, LoadRequest
from backends.ring import memory
from backends.ring.generation import FEWEST_PINNED_TOKENS, RingBackend, check_cache_fits
from backends.ring.prompting import Prompts
from backends.threads import default_num_threads, usable_cores
from models.chat_template import ChatTemplate
from models.config import ModelConfig
from models.decoder import Decoder
from models.estimate_warnings import warnings_for
from models.model_files import ModelFiles
from models.precision import WeightPrecision, choose_precision
from models.ring_cache import KVCache
from models.sizing import kv_bytes_per_token
from models.tokenizer import load_tokenizer
from models.weights import load_decoder


def load(request: LoadRequest, progress: ReportProgress) -> RingBackend:
    """Load a GGUF file or a Hugging Face folder; see `backends.contract.Leaf`.

    Raises:
        ModelFileError: a file is missing, truncated, or not what its name says.
        UnsupportedModelError: the architecture, an encoding or the precision is one this backend cannot run.
        BadRequestError: window or sinks are out of range, or the cache does not fit in memory.
        OutOfMemoryError: the weights do not.
    """
    _check_numbers(request)
    num_cores = psutil.cpu_count(logical=False)
    torch.set_num_threads(request.num_threads or default_num_threads(num_cores))
    progress(LoadProgress("Checking the files"))
    files = ModelFiles.open(request.model)
    config = files.config()
    device, device_notices = _choose_device(request)
    precision = choose_precision(request.precision, files.weights.encodings, device)
    _check_memory(files, config, request, precision, device)
    progress(LoadProgress("Reading the tokenizer"))
    prompts = Prompts(load_tokenizer(files), ChatTemplate.find(files, request.chat_template))
    with memory.tidy_heap():
        decoder, weights_bytes = _load_weights(
            files, config, precision, device, request.num_threads or usable_cores(num_cores), progress
        )
    info = LoadedModel(
        name=files.name,
        architecture=config.architecture,
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        precision=precision.label,
        policy=request.policy,
        num_sliding_layers=config.num_sliding_layers,
        num_full_layers=config.num_full_layers,
        trained_window=config.trained_window,
        window=_window_in_force(config, request),
        sinks=_first_sinks(request),
        context_tokens=config.context_tokens,
        vocab_size=config.vocab_size,
        weights_bytes=weights_bytes,
        kv_bytes_per_token_full=kv_bytes_per_token(config, precision.dtype.itemsize),
        has_chat_template=prompts.has_template,
        notices=(
            *warnings_for(config, request, 0, None, prompts.has_template),
            *device_notices,
            *precision.notices,
        ),
    )

    def new_cache(sinks: int) -> KVCache:
        check_cache_fits(config, request, sinks, precision.dtype.itemsize, memory.free_bytes(device))
        return KVCache(config, request.policy, request.window, sinks, dtype=precision.dtype, device=device)

    pins = request.sinks is None
    return RingBackend(decoder, new_cache, device, pins, prompts, config.eos_token_ids, info)


def _check_numbers(request: LoadRequest) -> None:
    for name, value, least in (("window", request.window, 1), ("number of sinks", request.sinks or 0, 0)):
        if value < least:
            raise BadRequestError(f"A {name} of {value:,} is below {least}.", f"Choose {least} or more.")
    if request.num_threads is not None and request.num_threads < 1:
        raise BadRequestError(f"{request.num_threads} threads are too few.", "Choose 1 or more, or leave it empty.")


def _choose_device(request: LoadRequest) -> tuple[torch.device, tuple[str, ...]]:
    if request.device != "cpu" and torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device()), ()
    if request.device == "cuda":
        return torch.device("cpu"), ("PyTorch finds no GPU here: the model runs on the CPU.",)
    return torch.device("cpu"), ()


def _check_memory(
    files: ModelFiles, config: ModelConfig, request: LoadRequest, precision: WeightPrecision, device: torch.device
) -> None:
    """Refuse what will not fit before anything large is read; the system would kill the process half-way.

    Raises:
        OutOfMemoryError: the weights are larger than the free memory.
        BadRequestError: the cache is larger than what they leave.
    """
    weights_bytes = files.weights.num_elements * (1 if precision.is_int8 else precision.dtype.itemsize)
    free_bytes = memory.free_bytes(device)
    if weights_bytes > free_bytes:
        raise OutOfMemoryError(
            f"{files.name} takes {weights_bytes / 1e9:.1f} GB in {precision.label}, and {free_bytes / 1e9:.1f} GB of "
            "memory are free.",
            "Choose a smaller model or fewer bits, or close other programs.",
        )
    sinks, element_bytes = _first_sinks(request), precision.dtype.itemsize
    check_cache_fits(config, request, sinks, element_bytes, free_bytes - weights_bytes)


def _load_weights(
    files: ModelFiles,
    config: ModelConfig,
    precision: WeightPrecision,
    device: torch.device,
    num_threads: int,
    progress: ReportProgress,
) -> tuple[Decoder, int]:
    def report(done: int, total: int) -> None:
        progress(LoadProgress("Reading weights", done, total))

    failure: OutOfMemoryError | None = None
    try:
        return load_decoder(files, config, precision, device, num_threads, report)
    except (MemoryError, RuntimeError) as error:
        failure = memory.as_out_of_memory(error)
        if failure is None:
            raise
    raise failure


def _window_in_force(config: ModelConfig, request: LoadRequest) -> int:
    """Return W; no wider than what the layers can use where all of them slide."""
    if request.policy is CachePolicy.FULL or config.num_full_layers or config.trained_window is None:
        return request.window
    return min(request.window, config.trained_window)


def _first_sinks(request: LoadRequest) -> int:
    """Return S; a system prompt to be pinned is not known yet."""
    return FEWEST_PINNED_TOKENS if request.sinks is None else request.sinks
