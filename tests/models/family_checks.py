"""What each family is held to, as numbers: for the tests, and for the table that `tests.models.family_table` prints."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from backends.requests import CachePolicy
from models.model_files import ModelFiles
from models.precision import WeightPrecision
from models.ring_cache import KVCache
from models.stock_model import StockModel, load_stock_model, stock_config
from models.weights import load_decoder
from tests.models.converted_models import Kind, convert, is_quantised, rounded_to_q8_0, tiny_model_for_gguf
from tests.models.stock_folders import save_stock_folder, stock_model
from tests.models.test_decoder import PARTITIONS, logits, new_cache
from tests.models.tiny_models import WINDOW, TinyModel, pieces, random_ids, save_folder, tiny_model

NUM_TOKENS = 40
"""Five windows: the ring wraps four times."""
NUM_HALF_TOKENS = 120
_HALF_PARTITIONS = ([70, 50], [40] + [1] * 80)
NUM_FAR_TOKENS = 220
"""Far enough for every scaling of positions to show."""


@dataclass(frozen=True)
class FullPrecision:
    """Our decoder against transformers without a cache, float32, the worst over every way to cut the text.

    Attributes:
        error: largest difference of any logit.
        same_top: share of positions with the same most likely token.
    """

    error: float
    same_top: float


def full_precision(family: str) -> FullPrecision:
    """Measure one family, with sliding layers bounded and with everything kept."""
    tiny, ids = tiny_model(family), random_ids(NUM_TOKENS)
    expected = tiny.expected(ids)
    ours = [
        logits(tiny, ids, chunks, new_cache(tiny, policy))
        for policy in (CachePolicy.AS_TRAINED, CachePolicy.FULL)
        for chunks in PARTITIONS.values()
    ]
    return FullPrecision(
        error=max(_difference(actual, expected) for actual in ours),
        same_top=min(_same_top(actual, expected) for actual in ours),
    )


@dataclass(frozen=True)
class HalfPrecision:
    """Weights, activations and cache in 16 bits against float32.

    Attributes:
        error: mean difference of a logit, over the spread of the float32 logits.
        stock_error: the same of transformers in that precision, without a cache.
        same_top: share of positions whose most likely token is that of float32.
        stock_same_top: the same of transformers.
    """

    error: float
    stock_error: float
    same_top: float
    stock_same_top: float


def half_precision(family: str, dtype: torch.dtype) -> HalfPrecision:
    """Measure one family in prefill and in single steps; the worse of the two counts."""
    tiny, ids = tiny_model(family), random_ids(NUM_HALF_TOKENS)
    exact = tiny.expected(ids)
    half = TinyModel(copy.deepcopy(tiny.stock).to(dtype), copy.deepcopy(tiny.decoder).to(dtype))
    ours = [logits(half, ids, chunks, new_cache(half)).float() for chunks in _HALF_PARTITIONS]
    stock = half.expected(ids).float()
    return HalfPrecision(
        error=max(_mean_error(actual, exact) for actual in ours),
        stock_error=_mean_error(stock, exact),
        same_top=min(_same_top(actual, exact) for actual in ours),
        stock_same_top=_same_top(stock, exact),
    )


def gguf_error(family: str, kind: Kind = "F32") -> float:
    """Largest difference of any logit between a GGUF file and a safetensors folder of the same weights, both read by
    the loader that people's files go through.
    """
    tiny = tiny_model_for_gguf(family)
    with TemporaryDirectory() as name:
        folder = Path(name)
        if kind == "Q8_0":
            tiny = _rounded(tiny)
        tensors = save_folder(tiny.stock, folder)
        (folder / "tokenizer.json").write_text("{}")
        path = convert(family, tiny, tensors, folder / "model.gguf", kind)
        return _difference(_loaded_logits(path), _loaded_logits(folder))


def _loaded_logits(path: Path) -> Tensor:
    files = ModelFiles.open(path)
    config = files.config()
    decoder, _ = load_decoder(files, config, WeightPrecision(torch.float32), torch.device("cpu"))
    found: Tensor = decoder(
        random_ids(NUM_FAR_TOKENS), KVCache(config, CachePolicy.AS_TRAINED, WINDOW, 0), logits="all"
    )
    return found


def _rounded(tiny: TinyModel) -> TinyModel:
    """The model with numbers that Q8_0 can tell."""
    stock = copy.deepcopy(tiny.stock)
    for name, parameter in stock.named_parameters():
        if is_quantised(name, tuple(parameter.shape)):
            parameter.data.copy_(rounded_to_q8_0(parameter.data))
    return TinyModel(stock, tiny.decoder)


def _difference(actual: Tensor, expected: Tensor) -> float:
    difference = float((actual - expected).abs().max())
    return difference if difference == difference else float("inf")  # NaN would pass for the smaller one


def _mean_error(actual: Tensor, exact: Tensor) -> float:
    return float((actual - exact).abs().mean() / exact.std())


def _same_top(actual: Tensor, exact: Tensor) -> float:
    return float((actual.argmax(-1) == exact.argmax(-1)).float().mean())


def compat_error(family: str) -> float:
    """Largest difference of any logit between a stock model on our cache, loaded as people's folders are, and the same
    model without a cache, float32, over every way to cut the text.
    """
    stock, model, ids = stock_model(family), loaded_stock_model(family), random_ids(NUM_TOKENS)
    with torch.inference_mode():
        expected = stock(ids, use_cache=False).logits
    return max(
        _difference(_stock_logits(model, ids, chunks, bounded), expected)
        for bounded in (True, False)
        for chunks in PARTITIONS.values()
    )


def loaded_stock_model(family: str) -> StockModel:
    """One of `STOCK_FAMILIES`, by way of a folder."""
    with TemporaryDirectory() as name:
        files = ModelFiles.open(save_stock_folder(stock_model(family), Path(name)))
        return load_stock_model(files, stock_config(files), torch.float32, torch.device("cpu"))


def _stock_logits(model: StockModel, ids_BT: Tensor, chunks: list[int], bounded: bool) -> Tensor:
    cache = model.new_cache(bounded)
    return torch.cat([model(piece, cache, logits="all") for piece in pieces(ids_BT, chunks)], dim=1)
