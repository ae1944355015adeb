"""From a model's files to a backend: the cheap checks first, the weights last."""

from __future__ import annotations

import psutil
import torch

from backends.contract import LoadedModel, ReportProgress
from backends.errors import BadRequestError, OutOfMemoryError, UnsupportedModelError
from backends.events import LoadProgress
from backends.requests import LoadRequest
from backends.ring import memory
from backends.ring.devices import choose_device, device_name
from backends.ring.generation import FEWEST_PINNED_TOKENS, RingBackend
from backends.ring.prompting import Prompts
from backends.threads import default_num_threads, usable_cores
from models.backend_support import window_in_force
from models.chat_template import ChatTemplate
from models.compat_support import runs_through_transformers, why_not_compat
from models.config import ModelConfig
from models.decoder import Decoder
from models.estimate_warnings import warnings_for
from models.kv_codes import supports
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
    if runs_through_transformers(files):
        return _load_through_transformers(request, files, progress)
    config = files.config()
    device, device_notices = choose_device(request)
    _check_kv_type(request, device)
    precision = choose_precision(request.precision, files.weights.encodings, device, config.architecture)
    _check_memory(files, config, request, precision, device)
    progress(LoadProgress("Reading the tokenizer"))
    prompts = _prompts(request, files)
    with memory.tidy_heap():
        decoder, weights_bytes = _load_weights(
            files, config, precision, device, request.num_threads or usable_cores(num_cores), progress
        )
    info = LoadedModel(
        name=files.name,
        architecture=config.architecture,
        device=device_name(device),
        precision=precision.label,
        policy=request.policy,
        num_sliding_layers=config.num_sliding_layers,
        num_full_layers=config.num_full_layers,
        trained_window=config.trained_window,
        window=window_in_force(config, request),
        asked_window=request.window,
        sinks=_first_sinks(request),
        context_tokens=config.context_tokens,
        vocab_size=config.vocab_size,
        weights_bytes=weights_bytes,
        kv_bytes_per_token_full=kv_bytes_per_token(config, precision.dtype.itemsize, request.kv_type),
        has_chat_template=prompts.has_template,
        reasoning_opening=prompts.reasoning_opening,
        drafts_together=True,
        notices=(
            *warnings_for(config, request, 0, None, prompts.has_template),
            *device_notices,
            *precision.notices,
        ),
    )

    def new_cache(sinks: int, num_rows: int) -> KVCache:
        free_bytes = memory.free_bytes(device)
        memory.check_cache_fits(config, request, sinks, num_rows, precision.dtype.itemsize, free_bytes)
        return KVCache(
            config,
            request.policy,
            request.window,
            sinks,
            num_rows,
            dtype=precision.dtype,
            device=device,
            kv_type=request.kv_type,
        )

    pins = request.sinks is None
    identity = {"model": files.fingerprint(), "keys and values": f"{request.kv_type} {precision.dtype}"}
    return RingBackend(decoder, new_cache, device, pins, prompts, config.eos_token_ids, info, identity)


def _load_through_transformers(request: LoadRequest, files: ModelFiles, progress: ReportProgress) -> RingBackend:
    if reason := why_not_compat(files):
        raise UnsupportedModelError(reason)
    if request.kv_type != "auto":
        raise UnsupportedModelError(
            f"{files.name} runs through transformers, where keys and values are not kept in {request.kv_type}.",
            "Choose auto for keys and values.",
        )
    from backends.ring.compat_loading import load_compat  # imports transformers, which may not be installed

    progress(LoadProgress("Reading the tokenizer"))
    return load_compat(request, files, _prompts(request, files), progress)


def _prompts(request: LoadRequest, files: ModelFiles) -> Prompts:
    return Prompts(load_tokenizer(files), ChatTemplate.find(files, request.chat_template))


def _check_numbers(request: LoadRequest) -> None:
    for name, value, least in (("window", request.window, 1), ("number of sinks", request.sinks or 0, 0)):
        if value < least:
            raise BadRequestError(f"A {name} of {value:,} is below {least}.", f"Choose {least} or more.")
    if request.num_threads is not None and request.num_threads < 1:
        raise BadRequestError(f"{request.num_threads} threads are too few.", "Choose 1 or more, or leave it empty.")


def _check_kv_type(request: LoadRequest, device: torch.device) -> None:
    if request.kv_type != "auto" and not supports(request.kv_type, device):
        raise UnsupportedModelError(
            f"This build of PyTorch cannot keep keys and values in {request.kv_type} on {device_name(device)}.",
            "Choose int8 or auto.",
        )


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
    memory.check_weights_fit(files.name, weights_bytes, precision.label, free_bytes)
    sinks, element_bytes = _first_sinks(request), precision.dtype.itemsize
    memory.check_cache_fits(config, request, sinks, 1, element_bytes, free_bytes - weights_bytes)


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


def _first_sinks(request: LoadRequest) -> int:
    """Return S; a system prompt to be pinned is not known yet."""
    return FEWEST_PINNED_TOKENS if request.sinks is None else request.sinks
