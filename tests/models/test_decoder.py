"""The decoder against transformers on tiny random models: any chunking, any family, past several wraps of the ring."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from backends.requests import CachePolicy
from models.ring_cache import KVCache
from tests.models.reference_attention import reference_logits
from tests.models.tiny_models import FAMILIES, WINDOW, TinyModel, build, pieces, random_ids, tiny_model

NUM_TOKENS = 40
PARTITIONS = {
    "one piece": [40],
    "single steps": [1] * 40,
    "chunks of W - 1": [7] * 5 + [5],
    "chunks of W": [8] * 5,
    "chunks of W + 1": [9, 9, 9, 9, 4],
    "chunks of 2 W": [16, 16, 8],
    "halves": [20, 20],
    "prefill then steps": [20] + [1] * 20,
    "uneven": [5, 11, 24],
}


def new_cache(tiny: TinyModel, policy: CachePolicy = CachePolicy.AS_TRAINED, **arguments: Any) -> KVCache:
    """A cache whose empty slots hold NaN, so that reading one shows."""
    dtype = tiny.decoder.norm.weight.dtype
    return KVCache(
        tiny.config, policy, **{"window": WINDOW, "sinks": 0, "dtype": dtype, "fill": torch.nan, **arguments}
    )


@torch.inference_mode()
def logits(tiny: TinyModel, ids_BT: Tensor, chunks: list[int], cache: KVCache) -> Tensor:
    return torch.cat([tiny.decoder(piece, cache, logits="all") for piece in pieces(ids_BT, chunks)], dim=1)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("policy", [CachePolicy.AS_TRAINED, CachePolicy.FULL])
def test_any_chunking_gives_the_logits_of_transformers_without_a_cache(family: str, policy: CachePolicy) -> None:
    tiny, ids = tiny_model(family), random_ids(NUM_TOKENS)
    expected = tiny.expected(ids)
    for name, chunks in PARTITIONS.items():
        actual = logits(tiny, ids, chunks, new_cache(tiny, policy))
        difference = (actual - expected).abs().max()
        assert difference < 1e-4, f"{name}: {difference}"
        assert torch.equal(actual.argmax(-1), expected.argmax(-1)), name


@pytest.mark.parametrize(
    ("family", "sinks"), [*((family, 3) for family in FAMILIES), ("llama", 0), ("gemma3_text", 0), ("gpt_oss", 0)]
)
def test_bounded_full_layers_attend_to_sinks_and_window_at_in_cache_positions(family: str, sinks: int) -> None:
    tiny, ids = tiny_model(family).in_float64(), random_ids(NUM_TOKENS)
    expected = reference_logits(tiny.decoder, ids, new_cache(tiny, CachePolicy.RING, sinks=sinks))
    for name, chunks in PARTITIONS.items():
        actual = logits(tiny, ids, chunks, new_cache(tiny, CachePolicy.RING, sinks=sinks))
        difference = (actual - expected).abs().max()
        assert difference < 1e-9, f"{name}: {difference}"


def test_every_hybrid_family_is_tried_with_both_kinds_of_layer() -> None:
    for family, values in FAMILIES.items():
        if "layer_types" in values:
            windows = {layer.trained_window for layer in tiny_model(family).config.layers}
            assert windows == {None, WINDOW}, family
    layers = tiny_model("cohere2").config.layers
    assert {(layer.trained_window is None, layer.rope is None) for layer in layers} == {(True, True), (False, False)}


FAR_POSITIONS = [257, 4_095, 100_000, 1_000_000, 20_000_000]


@pytest.mark.parametrize("family", ["mistral", "gemma3_text", "cohere2", "glm", "gpt_oss"])
@pytest.mark.parametrize("policy", CachePolicy)
def test_far_positions_compute_what_near_ones_do(family: str, policy: CachePolicy) -> None:
    tiny, ids = tiny_model(family), random_ids(NUM_TOKENS)
    near = logits(tiny, ids, [20] + [1] * 20, new_cache(tiny, policy, sinks=2))
    for position in FAR_POSITIONS:
        cache = new_cache(tiny, policy, sinks=2, first_position=position)
        far = logits(tiny, ids, [20] + [1] * 20, cache)
        assert (far - near).abs().max() < 1e-4, position
        assert cache.position == position + NUM_TOKENS


@pytest.mark.parametrize(("position", "tolerance"), [(257, 1e-3), (4_095, 0.05)])  # of its float32 phases, not ours
def test_query_scales_follow_the_position_as_in_transformers(position: int, tolerance: float) -> None:
    tiny, ids = tiny_model("ministral3"), random_ids(NUM_TOKENS)
    expected = tiny.expected(ids, position)
    assert (logits(tiny, ids, [7, 33], new_cache(tiny, first_position=position)) - expected).abs().max() < tolerance
    assert (logits(tiny, ids, [7, 33], new_cache(tiny)) - expected).abs().max() > 1.0


@pytest.mark.parametrize(
    "ropes",
    [
        {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
        {"rope_type": "default", "rope_theta": 1e4},
    ],
    ids=["linear on full layers alone", "unscaled"],
)
def test_gemma_3_scales_full_layers_alone_at_positions_where_it_shows(ropes: dict[str, Any]) -> None:
    layers = {"full_attention": ropes, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    tiny = build("gemma3_text", rope_parameters=layers)
    ids = random_ids(250)
    actual = logits(tiny, ids, [100, 150], new_cache(tiny))
    assert (actual - tiny.expected(ids))[:, 150:].abs().max() < 1e-4


@pytest.mark.parametrize("caps", [(None, None), (5.0, None), (None, 3.0), (30.0, 50.0)], ids=str)
def test_soft_caps_are_applied_once_or_not_at_all(caps: tuple[float | None, float | None]) -> None:
    tiny = build("gemma2", attn_logit_softcapping=caps[0], final_logit_softcapping=caps[1])
    tiny.stock.model.norm.weight.data.fill_(30.0)
    tiny.decoder.norm.weight.data.fill_(30.0)
    ids = random_ids(NUM_TOKENS)
    expected, cap = tiny.expected(ids), caps[1]
    assert expected.abs().max() > (100.0 if cap is None else 0.9 * cap)
    for chunks in ([40], [1] * 40):
        actual = logits(tiny, ids, chunks, new_cache(tiny))
        assert (actual - expected).abs().max() < 1e-4 * max(1.0, float(expected.abs().max()))
    if cap is not None:
        twice = cap * torch.tanh(expected / cap)
        assert (twice - expected).abs().max() > 0.1


@pytest.mark.parametrize(
    ("family", "values"),
    [
        ("llama", {"head_dim": 16}),
        ("llama", {"head_dim": None}),
        ("llama", {"num_key_value_heads": None}),
        ("llama", {"num_key_value_heads": 1}),
        ("llama", {"attention_bias": True, "mlp_bias": True}),
        ("llama", {"tie_word_embeddings": True}),
        ("qwen3_moe", {"norm_topk_prob": False}),
        ("phi3", {"head_dim": 16, "rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.75}}),
        ("gemma3_text", {"num_attention_heads": 8, "head_dim": 8}),
        ("gpt_oss", {"attention_bias": False, "swiglu_limit": 1.5}),
    ],
    ids=str,
)
def test_head_sizes_biases_and_ties_come_from_the_config(family: str, values: dict[str, Any]) -> None:
    tiny, ids = build(family, **values), random_ids(NUM_TOKENS)
    assert (logits(tiny, ids, [9, 31], new_cache(tiny)) - tiny.expected(ids)).abs().max() < 1e-4


LONGROPE = {
    "rope_type": "longrope",
    "partial_rotary_factor": 0.75,
    "short_factor": [1.0, 1.1, 1.2],
    "long_factor": [2.0, 4.0, 8.0],
    "original_max_position_embeddings": 32,
}


def test_longrope_equals_a_full_recompute_at_every_step_across_its_switch() -> None:
    tiny = build("phi3", rope_parameters=LONGROPE, original_max_position_embeddings=32)
    ids, cache = random_ids(36), new_cache(tiny)
    logits(tiny, ids[:, :30], [30], cache)
    before = cache.snapshot()
    cache.reset()
    for length in range(1, 37):
        must_start_over = tiny.decoder.must_start_over(cache, 1)
        assert must_start_over == (length == 33)
        if must_start_over:
            with pytest.raises(ValueError, match="reset the cache"):
                logits(tiny, ids[:, 32:33], [1], cache)
            generation = cache.generation
            cache.reset(planned_length=33)
            logits(tiny, ids[:, :32], [20, 12], cache)
            assert cache.generation > generation  # graphs recorded with the short list are void
        actual = logits(tiny, ids[:, length - 1 : length], [1], cache)
        assert (actual[:, -1] - tiny.expected(ids[:, :length])[:, -1]).abs().max() < 1e-4
    cache.restore(before)
    assert (logits(tiny, ids[:, 30:32], [2], cache) - tiny.expected(ids[:, :32])[:, 30:]).abs().max() < 1e-4


def test_dynamic_frequencies_are_those_of_the_whole_prompt() -> None:
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
    tiny, ids = build("llama", rope_parameters=rope, max_position_embeddings=16), random_ids(NUM_TOKENS)
    expected = tiny.expected(ids)
    for chunks in ([40], [9, 31], [16, 24]):
        actual = logits(tiny, ids, chunks, new_cache(tiny, planned_length=NUM_TOKENS))
        assert (actual - expected).abs().max() < 1e-4
    assert not tiny.decoder.can_be_captured(new_cache(tiny))
    assert tiny.decoder.can_be_captured(new_cache(tiny, CachePolicy.RING, sinks=4))


@pytest.mark.parametrize("family", ["mistral", "gemma3_text", "cohere2", "gpt_oss", "ministral3"])
@pytest.mark.parametrize("policy", CachePolicy)
@pytest.mark.parametrize("rows", [1, 3])
def test_the_steps_a_graph_records_equal_the_eager_ones(family: str, policy: CachePolicy, rows: int) -> None:
    tiny, ids = tiny_model(family), random_ids(4 * WINDOW, rows=rows)
    eager, static = (new_cache(tiny, policy, sinks=2, batch_size=rows, fill=0.0) for _ in range(2))
    for index in range(ids.shape[1]):
        static.reserve(index + 1)
        expected = tiny.decoder.decode_step(ids[:, index], eager)
        actual = tiny.decoder.decode_step(ids[:, index], static, static=True)
        static.count_replayed(1)
        assert torch.allclose(actual, expected, atol=1e-4)
        assert static.lengths == static.lengths_B.tolist() == eager.lengths


def test_a_static_step_asks_the_host_for_nothing_but_whether_the_rings_are_full() -> None:
    tiny, ids = tiny_model("gemma3_text"), random_ids(2)
    told, untold = (new_cache(tiny, CachePolicy.RING, sinks=2, fill=0.0) for _ in range(2))
    for cache in (told, untold):
        logits(tiny, random_ids(30), [30], cache)
    for index in range(2):
        expected = tiny.decoder.decode_step(ids[:, index], told, static=True)
        told.count_replayed(1)
        assert torch.equal(tiny.decoder.decode_step(ids[:, index], untold, static=True), expected)


def test_a_call_too_large_for_its_attention_scores_is_cut_at_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny, ids = tiny_model("gemma3_text"), random_ids(NUM_TOKENS)
    expected = [reference_logits(tiny.decoder, ids, new_cache(tiny, policy, sinks=3)) for policy in CachePolicy]
    monkeypatch.setattr("models.decoder._ATTENTION_CELLS", 4 * NUM_TOKENS * 7)
    for policy, uncut in zip(CachePolicy, expected, strict=True):
        assert (logits(tiny, ids, [40], new_cache(tiny, policy, sinks=3)) - uncut).abs().max() < 1e-4


def test_only_the_logits_asked_for_are_computed() -> None:
    tiny, ids = tiny_model("mistral"), random_ids(10, rows=2)
    all_of_them = tiny.decoder(ids, new_cache(tiny, batch_size=2), logits="all")
    last = tiny.decoder(ids, new_cache(tiny, batch_size=2))
    assert last.shape == (2, 1, 97)
    assert torch.allclose(last, all_of_them[:, -1:], atol=1e-5)
    assert tiny.decoder(ids, new_cache(tiny, batch_size=2), logits="none").shape == (2, 0, 97)


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "gpt_oss", "cohere2"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_as_close_to_float32_as_transformers_own(family: str, dtype: torch.dtype) -> None:
    tiny, ids = tiny_model(family), random_ids(NUM_TOKENS)
    exact = tiny.expected(ids)
    half = TinyModel(copy.deepcopy(tiny.stock).to(dtype), copy.deepcopy(tiny.decoder).to(dtype))
    stock_error = (half.expected(ids).float() - exact).abs().mean()
    for chunks in ([40], [1] * 40):
        error = (logits(half, ids, chunks, new_cache(half)).float() - exact).abs().mean()
        assert error < 1.5 * stock_error, f"{error} against {stock_error}"
