"""Stock transformers models for the ring backend: the way for families our own decoder does not know.

The modeling code is transformers' own; the cache is `models.transformers_cache.RingCache`, whose sliding layers are
rings. Full layers grow. Weights come from safetensors files only, and no code of the model's folder is ever run.
Importing this module imports transformers, so ask `models.compat_support` first.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

from backends.errors import BadRequestError, ModelFileError, UnsupportedModelError
from models.model_files import ModelFiles
from models.text_model import Logits
from models.transformers_cache import RingCache

_POSITION_TABLES = ("wpe", "position_embedding", "embed_positions", "embed_position", "pos_embedding")
_CHECKED_PIECES = [1, 3, 1, 1]
_TOLERANCES = {torch.float32: 0.01}  # of the logits' spread, for one logit; 16 bits differ by more from rounding alone
_TOLERANCE_IN_16_BITS = 0.2
_FAILURES = (ImportError, ValueError, TypeError, LookupError, AttributeError, RuntimeError, OSError, AssertionError)


class StockCache:
    """Keys and values of one text in a stock model; see `models.text_model.TextCache`.

    Attributes:
        position: tokens ever fed.
        keys_values: what the model's layers read and write.
    """

    def __init__(self, config: Any, bounded: bool, device: torch.device) -> None:
        self.position = 0
        self._config = config
        self._bounded = bounded
        self._device = device
        self.keys_values = RingCache(config, bounded=bounded)

    @property
    def device(self) -> torch.device:
        return self._device

    @property
    def nbytes(self) -> int:
        return self.keys_values.allocated_bytes

    @property
    def held_nbytes(self) -> int:
        return self.keys_values.held_bytes

    @property
    def capacity_tokens(self) -> int:
        return max((ring.window for ring in self.keys_values.rings), default=0)

    @property
    def can_overwrite(self) -> bool:
        return len(self.keys_values.growing) < len(self.keys_values.layers)

    @property
    def has_overwritten(self) -> bool:
        return not self.keys_values.can_rewind

    def reset(self, *, planned_length: int = 0) -> None:
        self.position = 0
        self.keys_values = RingCache(self._config, bounded=self._bounded)

    def rewind(self, length: int) -> None:
        self.keys_values.rewind(length)
        self.position = length

    def snapshot(self, device: torch.device | str | None = None) -> StockSnapshot:
        """Copy everything, on the device it is on."""
        return StockSnapshot(self.position, copy.deepcopy(self.keys_values))

    def restore(self, snapshot: StockSnapshot) -> None:
        """Return to the very state of a snapshot, as often as wanted."""
        self.position = snapshot.position
        self.keys_values = copy.deepcopy(snapshot.keys_values)


class StockSnapshot:
    """Exact copy of a `StockCache` at one moment."""

    def __init__(self, position: int, keys_values: RingCache) -> None:
        self.position = position
        self.keys_values = keys_values

    @property
    def nbytes(self) -> int:
        return self.keys_values.allocated_bytes


class StockModel:
    """A transformers model with its weights; see `models.text_model.TextModel`.

    Args:
        model: that continues text, on its device.

    Attributes:
        max_tokens: of a text, where positions are a table; None without end.
    """

    def __init__(self, model: Any) -> None:
        self.max_tokens = _table_length(model)
        self._model = model
        self._arguments = _forward_arguments(type(model))
        self._cache_name = "cache" if "cache" in self._arguments else "past_key_values"

    @property
    def config(self) -> Any:
        """Of the text part."""
        return self._model.config.get_text_config(decoder=True)

    @property
    def vocab_size(self) -> int:
        return int(self.config.vocab_size)

    @property
    def device(self) -> torch.device:
        return torch.device(self._model.device)

    @property
    def dtype(self) -> torch.dtype:
        """Of weights and activations."""
        found: torch.dtype = self._model.dtype
        return found

    @property
    def num_bytes(self) -> int:
        """Of the weights as held, shared ones once."""
        return sum(parameter.nbytes for parameter in self._model.parameters())

    @property
    def frequencies_change_at(self) -> int | None:
        """Length of a text from which on its rotary frequencies are others (longrope, dynamic); None if never."""
        given = getattr(self.config, "rope_parameters", None) or {}
        ropes = [given, *(value for value in given.values() if isinstance(value, dict))]
        if not any(rope.get("rope_type") in ("longrope", "dynamic") for rope in ropes):
            return None
        named = [
            rope["original_max_position_embeddings"] for rope in ropes if "original_max_position_embeddings" in rope
        ]
        return int(next(iter(named), self.config.max_position_embeddings))

    def new_cache(self, bounded: bool = True) -> StockCache:
        """Return an empty cache of one row; not bounded, sliding layers keep everything too."""
        return StockCache(self._model.config, bounded, self.device)

    @torch.inference_mode()
    def __call__(self, tokens_BT: Tensor, cache: StockCache, logits: Logits = "last") -> Tensor:
        """Feed T tokens of the one row; any way of cutting a text into calls gives the same logits.

        Raises:
            BadRequestError: the text gets longer than the model's table of positions.
        """
        end = cache.position + tokens_BT.shape[1]
        if self.max_tokens is not None and end > self.max_tokens:
            raise BadRequestError(
                f"This model has positions for {self.max_tokens:,} tokens, and the text has reached them.",
                "Start a new chat, or choose a model with rotary positions.",
            )
        arguments: dict[str, Any] = {self._cache_name: cache.keys_values, "use_cache": True}
        if "position_ids" in self._arguments:
            arguments["position_ids"] = torch.arange(cache.position, end, device=tokens_BT.device).unsqueeze(0)
        if "logits_to_keep" in self._arguments and logits != "all":
            arguments["logits_to_keep"] = 1
        found_BTV: Tensor = self._model(tokens_BT, **arguments).logits
        cache.position = end
        return found_BTV if logits == "all" else found_BTV[:, -1:] if logits == "last" else found_BTV[:, :0]

    def decode_step(self, tokens_B: Tensor, cache: StockCache, static: bool = False) -> Tensor:
        """Feed one token; return its logits [1, V]."""
        assert not static, "stock models are not captured"
        return self(tokens_B.unsqueeze(1), cache).squeeze(1)

    def can_be_captured(self, cache: StockCache) -> bool:
        return False

    def must_start_over(self, cache: StockCache, num_tokens: int) -> bool:
        return False

    @torch.inference_mode()
    def uncached(self, tokens_BT: Tensor) -> Tensor:
        """Return the logits of all tokens, computed without any cache."""
        found_BTV: Tensor = self._model(tokens_BT, use_cache=False).logits
        return found_BTV

    @torch.inference_mode()
    def check(self, name: str) -> int:
        """Compare a few tokens fed in pieces with the same without a cache; return the bytes of a token in the cache.

        Raises:
            UnsupportedModelError: they differ, or the model does not run at all.
        """
        ids_1T = torch.arange(3, 3 + sum(_CHECKED_PIECES), device=self.device).unsqueeze(0) % self.vocab_size
        cache = self.new_cache()
        with _reported(name, "does not run"):
            expected = self.uncached(ids_1T).float()
            pieces = torch.split(ids_1T, _CHECKED_PIECES, dim=1)
            actual = torch.cat([self(piece, cache, logits="all") for piece in pieces], dim=1).float()
        tolerance = _TOLERANCES.get(self.dtype, _TOLERANCE_IN_16_BITS)
        if not (actual - expected).abs().max() <= tolerance * expected.std():
            raise UnsupportedModelError(
                f"{name} computes something else when its text is fed in pieces: it attends in both directions, or "
                "keeps a state that cannot be fed so.",
                "Ringside cannot run it.",
            )
        return cache.keys_values.bytes_per_token


def stock_config(files: ModelFiles) -> Any:
    """Return transformers' config of a folder.

    Raises:
        UnsupportedModelError: transformers does not take it, or the model keeps no keys and values.
    """
    with _reported(files.name, "is refused by transformers"):
        config = AutoConfig.from_pretrained(files.path, trust_remote_code=False, local_files_only=True)
        model_class = AutoModelForCausalLM._model_mapping[type(config)]
        trained = RingCache(config)
    if not trained.layers or not {"cache", "past_key_values"} & _forward_arguments(model_class):
        raise UnsupportedModelError(
            f"{files.name}: {model_class.__name__} keeps no keys and values, so there is nothing to bound.",
            "Ringside cannot run it.",
        )
    return config


def narrow(config: Any, window: int) -> None:
    """Make sliding layers look no further than `window` tokens; one wider than they were trained with is ignored."""
    text = config.get_text_config(decoder=True)
    with contextlib.suppress(AttributeError, ValueError):  # a few configs say it layer by layer
        if isinstance(text.sliding_window, int) and window < text.sliding_window:
            text.sliding_window = window


def load_stock_model(files: ModelFiles, config: Any, dtype: torch.dtype, device: torch.device) -> StockModel:
    """Load the weights of a folder.

    Args:
        config: from `stock_config`.

    Raises:
        ModelFileError: weights are missing, too many, or of another shape.
        UnsupportedModelError: transformers does not load them.
    """
    with _reported(files.name, "does not load in transformers"), _quiet():
        model, found = AutoModelForCausalLM.from_pretrained(
            files.path,
            config=config,
            dtype=dtype,
            trust_remote_code=False,
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
        )
    wrong = [name for kind in ("missing_keys", "mismatched_keys") for name in sorted(map(str, found[kind]))]
    if wrong:
        raise ModelFileError(
            f"{files.path} has no weights that fit {wrong[0]}, one of {len(wrong)} such.", "Download it again."
        )
    return StockModel(model.to(device).eval().requires_grad_(False))


def _forward_arguments(model_class: Any) -> set[str]:
    return set(inspect.signature(model_class.forward).parameters)


def _table_length(model: Any) -> int | None:
    """Tokens that a learned table of positions has room for; the config's own limit where that is less."""
    lengths = [
        module.num_embeddings
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Embedding) and name.rpartition(".")[2].startswith(_POSITION_TABLES)
    ]
    limit = getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None)
    if not lengths:
        return None
    return min([*lengths, limit] if isinstance(limit, int) else lengths)


@contextlib.contextmanager
def _reported(name: str, what: str) -> Iterator[None]:
    """Turn whatever transformers raises into one sentence."""
    try:
        yield
    except _FAILURES as error:
        if isinstance(error, RuntimeError) and "memory" in str(error):  # that is for the backend to say
            raise
        said = str(error).strip().splitlines()
        raise UnsupportedModelError(f"{name} {what}: {said[0] if said else type(error).__name__}") from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers' progress bars off the worker's output."""
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.enable_progress_bar()
