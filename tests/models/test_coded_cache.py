"""Keys and values in 8 bits: bounds of a code's error, exact sinks, bytes to the formula, and any cutting of a text."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from backends.requests import CachePolicy
from models.kv_codes import CodedType, decode, encode, supports
from models.kv_fidelity import compare_logits
from models.ring_cache import KVCache
from models.sizing import kv_bytes, kv_held_bytes
from tests.models.test_ring_cache import addresses, feed, storage_bytes
from tests.models.tiny_models import WINDOW, TinyModel, pieces, random_ids, tiny_model

HYBRID, SINKS = "gemma3_text", 3
RING = CachePolicy.RING
TYPES: tuple[CodedType, ...] = ("int8", "fp8")
both_types = pytest.mark.parametrize("kv_type", TYPES)


def cache_of(tiny: TinyModel, kv_type: str, policy: CachePolicy = RING, **arguments: Any) -> KVCache:
    return KVCache(
        tiny.config, policy, **{"window": WINDOW, "sinks": SINKS, "fill": torch.nan, "kv_type": kv_type, **arguments}
    )


def samples(dtype: torch.dtype = torch.float32) -> Tensor:
    """Heads of very different sizes, some with one number far larger than the rest."""
    generator = torch.Generator().manual_seed(3)
    values = torch.randn(400, 64, generator=generator) * torch.logspace(-6, 4, 400).unsqueeze(1)
    values[::3, 5] *= 50
    return values.to(dtype)


# Codes


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_int8_is_off_by_half_a_step_of_its_own_head_and_token(dtype: torch.dtype) -> None:
    values = samples(dtype)
    error = (decode(*encode(values, "int8"), "int8", torch.float32) - values.float()).abs()
    assert (error <= 0.51 * values.float().abs().amax(-1, keepdim=True) / 127).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fp8_is_off_by_a_sixteenth_or_less(dtype: torch.dtype) -> None:
    values = samples(dtype).float()
    error = (decode(*encode(samples(dtype), "fp8"), "fp8", torch.float32) - values).abs()
    smallest_step = values.abs().amax(-1, keepdim=True) / 448 * 2**-10 * 1.01
    assert (error <= torch.maximum(values.abs() / 16, smallest_step)).all()


def test_fp8_codes_decode_as_torch_itself_decodes_them() -> None:
    codes = torch.arange(-128, 128, dtype=torch.int16).to(torch.int8)
    expected = codes.view(torch.float8_e4m3fn).float()
    actual = decode(codes.unsqueeze(1), torch.ones(256, 1, dtype=torch.bfloat16), "fp8", torch.float32).squeeze(1)
    assert torch.equal(actual[~expected.isnan()], expected[~expected.isnan()])


@both_types
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_zeros_stay_zeros_and_what_is_no_number_shows(kv_type: CodedType, dtype: torch.dtype) -> None:
    values = torch.zeros(2, 16, dtype=dtype)
    values[1, 3] = torch.nan
    decoded = decode(*encode(values, kv_type), kv_type, dtype)
    assert decoded.dtype == dtype
    assert torch.equal(decoded[0], values[0])
    assert decoded[1].isnan().all()


def test_this_torch_has_both_types() -> None:
    assert all(supports(kv_type, "cpu") for kv_type in TYPES)


# Storage


@both_types
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("sinks", [0, 3])
def test_bytes_are_those_of_the_formula_at_addresses_that_stay(
    kv_type: CodedType, dtype: torch.dtype, sinks: int
) -> None:
    tiny = tiny_model(HYBRID)
    cache = cache_of(tiny, kv_type, dtype=dtype, sinks=sinks)
    formula = kv_bytes(tiny.config, RING, WINDOW, sinks, 0, dtype.itemsize, kv_type)
    assert formula == 2 * 2 * (3 * WINDOW * (16 + 2) + sinks * 16 * dtype.itemsize)
    where = addresses(cache)
    for ids, chunk in ((random_ids(40), 40), (random_ids(40, seed=2), 1), (random_ids(30, seed=3), 3)):
        feed(tiny, cache, ids, chunk)
        assert storage_bytes(cache) == cache.nbytes == formula
        assert addresses(cache) == where


@both_types
@pytest.mark.parametrize("policy", CachePolicy)
@pytest.mark.parametrize("num_tokens", [1, 2, 7, 12, 30])
def test_held_bytes_are_those_of_the_formula(kv_type: CodedType, policy: CachePolicy, num_tokens: int) -> None:
    tiny = tiny_model(HYBRID)
    cache = cache_of(tiny, kv_type, policy)
    feed(tiny, cache, random_ids(num_tokens), chunk=num_tokens)
    assert cache.held_nbytes == kv_held_bytes(tiny.config, policy, WINDOW, SINKS, num_tokens, 4, kv_type)
    assert cache.snapshot().nbytes == cache.held_nbytes


@both_types
@pytest.mark.parametrize("chunks", [[40], [1] * 40, [2, 38], [7] * 5 + [5]], ids=["piece", "steps", "split", "sevens"])
def test_sinks_are_kept_exactly_and_the_rest_within_the_bound_of_its_codes(
    kv_type: CodedType, chunks: list[int]
) -> None:
    tiny, ids = tiny_model("llama", num_hidden_layers=1), random_ids(40)
    plain, coded = (cache_of(tiny, each) for each in ("auto", kv_type))
    for cache in (plain, coded):
        for piece in pieces(ids, chunks):
            tiny.decoder(piece, cache, logits="none")
    slots = slice(0, WINDOW + SINKS)
    for exact, stored in zip(plain.layers[0].read(slots), coded.layers[0].read(slots), strict=True):
        assert torch.equal(exact[:, :, :SINKS], stored[:, :, :SINKS])
        assert torch.equal(decode(*encode(exact, kv_type), kv_type, torch.float32)[:, :, SINKS:], stored[:, :, SINKS:])
        assert not torch.equal(exact[:, :, SINKS:], stored[:, :, SINKS:])


# Texts, in float64: a number half-way between two codes falls to either side by a rounding error.


@both_types
@pytest.mark.parametrize("family", [HYBRID, "llama", "gpt_oss", "gemma2"])
@pytest.mark.parametrize("policy", CachePolicy)
def test_any_chunking_gives_the_same_logits(kv_type: CodedType, family: str, policy: CachePolicy) -> None:
    tiny, ids = tiny_model(family).in_float64(), random_ids(40)

    def fed(chunk: int) -> Tensor:
        return feed(tiny, cache_of(tiny, kv_type, policy, dtype=torch.float64), ids, chunk)

    expected = fed(1)
    for chunk in (2, WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW, 40):
        assert (fed(chunk) - expected).abs().max() < 1e-6


@both_types
@pytest.mark.parametrize("policy", CachePolicy)
def test_a_restored_cache_goes_on_as_if_nothing_had_happened(kv_type: CodedType, policy: CachePolicy) -> None:
    tiny, ids = tiny_model(HYBRID), random_ids(40)
    for cut in (1, 5, WINDOW + 3, 25):
        cache = cache_of(tiny, kv_type, policy)
        feed(tiny, cache, ids[:, :cut])
        snapshot = cache.snapshot()
        expected = feed(tiny, cache, ids[:, cut:])
        cache.restore(snapshot)
        assert torch.equal(feed(tiny, cache, ids[:, cut:]), expected)
        cache.reset()
        assert cache.held_nbytes == 0
        assert torch.equal(feed(tiny, cache, ids)[:, cut:], expected)


@both_types
def test_going_back_before_a_wrap_forgets_exactly_the_rest(kv_type: CodedType) -> None:
    tiny, ids = tiny_model(HYBRID), random_ids(30)
    cache = cache_of(tiny, kv_type)
    feed(tiny, cache, ids[:, :7])
    cache.rewind(2)
    assert torch.equal(feed(tiny, cache, ids[:, 2:]), feed(tiny, cache_of(tiny, kv_type), ids)[:, 2:])


@both_types
@pytest.mark.parametrize("chunk", [1, 3])
@pytest.mark.parametrize("lengths", [[0, 30], [2, 6], [WINDOW, 1, 40]], ids=str)
def test_rows_of_different_lengths_equal_their_solo_runs(kv_type: CodedType, chunk: int, lengths: list[int]) -> None:
    tiny, ids = tiny_model(HYBRID).in_float64(), random_ids(20, rows=len(lengths), seed=9)
    together = cache_of(tiny, kv_type, fill=0.0, batch_size=len(lengths), dtype=torch.float64)
    solos = [cache_of(tiny, kv_type, dtype=torch.float64) for _ in lengths]
    for row, (solo, length) in enumerate(zip(solos, lengths, strict=True)):
        if length:
            feed(tiny, solo, random_ids(length, seed=row), chunk=length)
        together.set_row(row, solo.snapshot())
    actual = feed(tiny, together, ids, chunk)
    for row, solo in enumerate(solos):
        assert (actual[row] - feed(tiny, solo, ids[row : row + 1], chunk)[0]).abs().max() < 1e-6


@both_types
def test_the_step_that_a_graph_captures_gives_the_same_logits(kv_type: CodedType) -> None:
    tiny, ids = tiny_model(HYBRID).in_float64(), random_ids(3 * WINDOW)
    usual, static = (cache_of(tiny, kv_type, fill=0.0, dtype=torch.float64) for _ in range(2))
    for index in range(ids.shape[1]):
        expected = tiny.decoder.decode_step(ids[:, index], usual)
        actual = tiny.decoder.decode_step(ids[:, index], static, static=True)
        static.count_replayed(1)
        assert (actual - expected).abs().max() < 1e-6


@both_types
def test_logits_stay_close_to_those_of_the_plain_cache(kv_type: CodedType) -> None:
    tiny, ids = tiny_model(HYBRID), random_ids(200)
    plain, coded = (feed(tiny, cache_of(tiny, each), ids, chunk=16)[0] for each in ("auto", kv_type))
    fidelity = compare_logits(plain, coded)
    assert 0 < fidelity.mean_kl < {"int8": 0.002, "fp8": 0.02}[kv_type]
    assert fidelity.same_top1 > {"int8": 0.95, "fp8": 0.9}[kv_type]
