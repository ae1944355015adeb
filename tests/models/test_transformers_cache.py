"""`RingCache` in stock transformers models against the same models without a cache, on tiny random weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from models.transformers_cache import GrowingLayer, RingCache, RingLayer

WINDOW = 8
NUM_TOKENS = 40
BOTH_KINDS = ["sliding_attention", "full_attention", "sliding_attention"]
FAMILIES: dict[str, dict[str, Any]] = {
    "mistral": {},
    "ministral": {"layer_types": BOTH_KINDS},
    "gemma2": {"layer_types": BOTH_KINDS},
    "gemma3_text": {"layer_types": BOTH_KINDS},
    "gpt_oss": {"layer_types": BOTH_KINDS, "num_local_experts": 4, "num_experts_per_tok": 2},
    "cohere2": {"layer_types": BOTH_KINDS},
    "olmo3": {"layer_types": BOTH_KINDS},
    "exaone4": {"layer_types": BOTH_KINDS},
    "qwen3": {"layer_types": BOTH_KINDS, "use_sliding_window": True},
    "phi3": {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
    "starcoder2": {},
    "smollm3": {"layer_types": BOTH_KINDS, "use_sliding_window": True},
}


def tiny_model(family: str) -> Any:
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        family,
        vocab_size=97,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        sliding_window=WINDOW,
        max_position_embeddings=512,
        initializer_range=0.5,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        **FAMILIES[family],
    )
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()


def tokens(rows: int = 1) -> torch.Tensor:
    return torch.randint(3, 97, (rows, NUM_TOKENS), generator=torch.Generator().manual_seed(1))


def chunked_logits(model: Any, ids_BT: torch.Tensor, chunks: list[int], cache: RingCache) -> torch.Tensor:
    parts: tuple[torch.Tensor, ...] = torch.split(ids_BT, chunks, dim=1)
    logits = [model(part, cache=cache, use_cache=True).logits for part in parts]
    return torch.cat(logits, dim=1)


PARTITIONS = {
    "one piece": [40],
    "single steps": [1] * 40,
    "chunks of W": [8] * 5,
    "chunks of W+1": [9, 9, 9, 9, 4],
    "chunks of 2W": [16, 16, 8],
    "prefill then steps": [20] + [1] * 20,
    "uneven": [5, 11, 24],
}


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_any_chunking_gives_the_logits_of_a_forward_without_cache(family: str) -> None:
    model, ids = tiny_model(family), tokens()
    expected = model(ids, use_cache=False).logits
    for name, chunks in PARTITIONS.items():
        actual = chunked_logits(model, ids, chunks, RingCache(model.config))
        assert torch.allclose(actual, expected, atol=2e-4), f"{name}: {(actual - expected).abs().max()}"


@pytest.mark.parametrize("family", ["mistral", "gemma3_text", "gpt_oss"])
def test_generate_writes_what_it_writes_with_its_own_cache(family: str) -> None:
    model, ids = tiny_model(family), tokens()
    arguments = {"max_new_tokens": 4 * WINDOW, "do_sample": False, "eos_token_id": None}
    expected = model.generate(ids, **arguments)
    assert torch.equal(model.generate(ids, past_key_values=RingCache(model.config), **arguments), expected)


@pytest.mark.parametrize("family", ["mistral", "gemma3_text", "qwen3"])
@torch.inference_mode()
def test_left_padded_rows_equal_their_solo_runs_after_the_ring_has_wrapped(family: str) -> None:
    model, ids = tiny_model(family), tokens(rows=2)
    num_pads = 5
    mask = torch.ones_like(ids)
    mask[1, :num_pads] = 0
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    cache, steps = RingCache(model.config), []
    for end in range(1, NUM_TOKENS + 1):
        part = slice(end - 1, end)
        steps.append(
            model(ids[:, part], attention_mask=mask[:, :end], position_ids=positions[:, part], cache=cache).logits
        )
    actual = torch.cat(steps, dim=1)
    assert torch.allclose(actual[:1], model(ids[:1], use_cache=False).logits, atol=2e-4)
    assert torch.allclose(actual[1:, num_pads:], model(ids[1:, num_pads:], use_cache=False).logits, atol=2e-4)


@torch.inference_mode()
def test_bytes_follow_the_formula_after_prefill_and_after_ten_windows() -> None:
    model = tiny_model("gemma3_text")
    cache = RingCache(model.config)
    row_bytes = 2 * 2 * 8 * 4  # keys and values, kv heads, head_dim, float32
    model(tokens(), cache=cache)
    assert cache.held_bytes == row_bytes * (2 * WINDOW + NUM_TOKENS)
    rings = [layer for layer in cache.layers if isinstance(layer, RingLayer)]
    addresses = [ring.keys.data_ptr() for ring in rings]
    for token in range(10 * WINDOW):
        model(torch.tensor([[3 + token % 90]]), cache=cache)
    assert cache.held_bytes == row_bytes * (2 * WINDOW + NUM_TOKENS + 10 * WINDOW)
    assert all(ring.keys.untyped_storage().nbytes() == row_bytes // 2 * WINDOW for ring in rings)
    assert addresses == [ring.keys.data_ptr() for ring in rings]
    assert cache.allocated_bytes >= cache.held_bytes


@torch.inference_mode()
def test_length_is_tokens_fed_whichever_kind_the_first_layer_is() -> None:
    for family in ("mistral", "gemma3_text"):
        model = tiny_model(family)
        cache = RingCache(model.config)
        for count in range(1, 3 * WINDOW):
            model(torch.tensor([[5]]), cache=cache)
            assert cache.get_seq_length() == count


@torch.inference_mode()
def test_a_reset_cache_equals_a_new_one() -> None:
    model, ids = tiny_model("gemma3_text"), tokens()
    cache = RingCache(model.config)
    first = chunked_logits(model, ids, [20] + [1] * 20, cache)
    cache.reset()
    assert torch.equal(chunked_logits(model, ids, [20] + [1] * 20, cache), first)


def test_layer_types_decide_and_not_the_window_alone() -> None:
    kinds = [type(layer) for layer in RingCache(tiny_model("olmo3").config).layers]
    assert kinds == [RingLayer, GrowingLayer, RingLayer]
