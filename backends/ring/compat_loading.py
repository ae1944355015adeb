"""From a folder of a family our decoder does not know to a backend: the model is transformers' own, the cache is ours.

Sliding layers are rings, exactly as with our decoder. Full layers cannot be bounded here: that takes sinks at in-cache
positions, which the modeling code of transformers has no place for.
"""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass
from typing import Any

import torch

from backends.contract import LoadedModel, ReportProgress
from backends.errors import BadRequestError, OutOfMemoryError
from backends.events import LoadProgress
from backends.requests import CachePolicy, LoadRequest
from backends.ring import memory
from backends.ring.devices import choose_device, device_name
from backends.ring.generation import RingBackend
from backends.ring.prompting import Prompts
from models.compat_support import architecture_of
from models.model_files import ModelFiles
from models.precision import WeightPrecision, choose_precision
from models.stock_model import StockCache, StockModel, load_stock_model, narrow, stock_config
from models.transformers_cache import RingCache

_NO_INT8 = "Weights are held in bfloat16: int8 is for models that run in Ringside's own decoder."


@dataclass(frozen=True)
class _Layers:
    """How the layers of a model were trained."""

    num_sliding: int
    num_full: int
    trained_window: int | None

    @classmethod
    def of(cls, config: Any) -> _Layers:
        cache = RingCache(config)
        windows = [ring.window for ring in cache.rings]
        return cls(len(windows), len(cache.growing), max(windows, default=None))


def load_compat(request: LoadRequest, files: ModelFiles, prompts: Prompts, progress: ReportProgress) -> RingBackend:
    """Load a folder that `models.compat_support` takes to transformers.

    Raises:
        ModelFileError: weights are missing or do not fit.
        UnsupportedModelError: transformers does not load it, or it does not compute with a cache what it does without.
        BadRequestError: the window does not fit in memory.
        OutOfMemoryError: the weights do not.
    """
    progress(LoadProgress("Starting transformers"))
    config = stock_config(files)
    layers = _Layers.of(config)
    device, device_notices = choose_device(request)
    precision = _precision(request, files, device)
    memory.check_weights_fit(
        files.name, files.weights.num_elements * precision.dtype.itemsize, precision.label, memory.free_bytes(device)
    )
    if request.policy is not CachePolicy.FULL:
        narrow(config, request.window)
    progress(LoadProgress("Reading weights through transformers"))
    model = _load_weights(files, config, precision, device)
    token_bytes = model.check(files.name)
    policy = _policy_in_force(request, layers)
    info = LoadedModel(
        name=files.name,
        architecture=architecture_of(files.json("config.json") or {}),
        device=device_name(device),
        precision=precision.label,
        policy=policy,
        num_sliding_layers=layers.num_sliding,
        num_full_layers=layers.num_full,
        trained_window=layers.trained_window,
        window=min(request.window, layers.trained_window or request.window),
        asked_window=request.window,
        sinks=0,
        context_tokens=getattr(model.config, "max_position_embeddings", None),
        vocab_size=model.vocab_size,
        weights_bytes=model.num_bytes,
        kv_bytes_per_token_full=token_bytes,
        has_chat_template=prompts.has_template,
        reasoning_opening=prompts.reasoning_opening,
        notices=(
            *_notices(request, files, layers, model, prompts.has_template),
            *device_notices,
            *precision.notices,
        ),
    )

    def new_cache(sinks: int, num_rows: int) -> StockCache:
        assert num_rows == 1, "variants are not drafted together here"
        cache = model.new_cache(bounded=policy is not CachePolicy.FULL)
        _check_cache_fits(cache, token_bytes, memory.free_bytes(device))
        return cache

    return RingBackend(model, new_cache, device, False, prompts, (), info)


def _precision(request: LoadRequest, files: ModelFiles, device: torch.device) -> WeightPrecision:
    if request.precision == "int8" and device.type == "cpu":
        return WeightPrecision(torch.bfloat16, notices=(_NO_INT8,))
    return choose_precision(request.precision, files.weights.encodings, device)


def _load_weights(files: ModelFiles, config: Any, precision: WeightPrecision, device: torch.device) -> StockModel:
    failure: OutOfMemoryError | None = None
    try:
        return load_stock_model(files, config, precision.dtype, device)
    except (MemoryError, RuntimeError) as error:
        failure = memory.as_out_of_memory(error)
        if failure is None:
            raise
    raise failure


def _policy_in_force(request: LoadRequest, layers: _Layers) -> CachePolicy:
    """Return "ring" only where that bounds every layer."""
    if request.policy is CachePolicy.RING and layers.num_full:
        return CachePolicy.AS_TRAINED
    return request.policy


def _check_cache_fits(cache: StockCache, token_bytes: int, free_bytes: int) -> None:
    num_layers = max(1, len(cache.keys_values.layers))
    needed = sum(ring.window for ring in cache.keys_values.rings) * token_bytes // num_layers
    if needed > free_bytes:
        raise BadRequestError(
            f"A window of {cache.capacity_tokens:,} tokens takes about {needed / 1e9:.1f} GB for keys and values, and "
            f"{free_bytes / 1e9:.1f} GB of memory are free.",
            "Choose a smaller window.",
        )


def _notices(
    request: LoadRequest, files: ModelFiles, layers: _Layers, model: StockModel, has_template: bool
) -> tuple[str, ...]:
    architecture = architecture_of(files.json("config.json") or {})
    sentences = [
        f"Runs through transformers {importlib.metadata.version('transformers')}, because Ringside's own decoder does "
        f"not know {architecture}: slower, with positions in float32, and no sinks."
    ]
    if request.policy is CachePolicy.RING and layers.num_full:
        which = f"{layers.num_full} of {layers.num_full + layers.num_sliding} layers were trained with full attention"
        sentences.append(f"{which} and keep everything: memory grows with the text, as under “as trained”.")
    if request.policy is not CachePolicy.FULL and layers.trained_window and request.window < layers.trained_window:
        sentences.append(
            f"The window of {request.window:,} is below the {layers.trained_window:,} tokens the sliding layers were "
            "trained with, so the model remembers less than it could."
        )
    if model.max_tokens is not None:
        sentences.append(f"A text ends at {model.max_tokens:,} tokens: the model has no positions beyond.")
    if (length := model.frequencies_change_at) is not None:
        sentences.append(
            f"Its rotary frequencies change at {length:,} tokens; across that length the text is an approximation, as "
            "in transformers itself."
        )
    if not has_template:
        sentences.append(
            "This model has no chat template: it continues your text instead of answering it, and control tokens "
            "spelled in it count as such."
        )
    return tuple(sentences)
