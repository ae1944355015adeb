"""The ring cache: who sees whom, exact bytes, addresses that stay, snapshots and rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from backends.requests import CachePolicy
from models.cache_plan import LayerLimits, indices_in, is_visible, layer_limits, slots_of
from models.config import LayerConfig, ModelConfig
from models.ring_cache import GROWTH_BLOCK_SLOTS, KVCache
from models.sizing import kv_bytes, kv_held_bytes, layer_slots
from tests.models.reference_attention import reference_logits
from tests.models.tiny_models import WINDOW, TinyModel, pieces, random_ids, tiny_model

LIMITS = [LayerLimits(window=4), LayerLimits(window=4, sinks=1), LayerLimits(window=3, sinks=5), LayerLimits(window=1)]
HYBRID = "gemma3_text"


def cache_of(tiny: TinyModel, policy: CachePolicy = CachePolicy.RING, **arguments: Any) -> KVCache:
    return KVCache(tiny.config, policy, **{"window": WINDOW, "sinks": 3, "fill": torch.nan, **arguments})


@torch.inference_mode()
def feed(tiny: TinyModel, cache: KVCache, ids_BT: Tensor, chunk: int = 1) -> Tensor:
    """Logits [B, T, V] of every token fed."""
    parts: tuple[Tensor, ...] = torch.split(ids_BT, chunk, dim=1)
    return torch.cat([tiny.decoder(part, cache, logits="all") for part in parts], dim=1)


def storage_bytes(cache: KVCache) -> int:
    """Bytes the storages really take, whatever views say."""
    tensors = [tensor for layer in cache.layers for tensor in layer.tensors]
    return sum({tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}.values())


def addresses(cache: KVCache) -> list[int]:
    return [tensor.data_ptr() for layer in cache.layers for tensor in layer.tensors]


# Slots


@pytest.mark.parametrize("limits", LIMITS, ids=str)
def test_each_slot_holds_the_last_token_that_was_put_there(limits: LayerLimits) -> None:
    assert limits.slots is not None
    held = [-1] * limits.slots
    for index in range(40):
        held[int(slots_of(torch.tensor(index), limits))] = index
        told = indices_in(torch.arange(limits.slots), torch.tensor([[index + 1]]), limits)
        assert told.tolist() == [held]


@pytest.mark.parametrize("limits", LIMITS, ids=str)
def test_the_slots_hold_exactly_what_the_newest_query_may_see(limits: LayerLimits) -> None:
    for index in range(40):
        held = indices_in(torch.arange(limits.slots or 0), torch.tensor([[index + 1]]), limits)
        visible = is_visible(torch.tensor([[index]]), torch.arange(index + 1).unsqueeze(0), limits)[0, 0]
        assert sorted(held[held >= 0].tolist()) == visible.nonzero().flatten().tolist()


def test_a_window_of_w_is_w_keys_with_the_querys_own() -> None:
    for window in (1, 2, 129, 513, 2047):
        keys = torch.arange(3 * window).unsqueeze(0)
        visible = is_visible(keys[:, -1:], keys, LayerLimits(window=window))[0, 0]
        assert visible.sum() == window
        assert visible[-window:].all()


# Influence: one layer, so that what moves a logit is what its query saw.


def influence(tiny: TinyModel, num_tokens: int, chunk: int, **arguments: Any) -> set[int]:
    """Tokens whose change moves the logits of the last one."""
    ids = random_ids(num_tokens)
    base = feed(tiny, cache_of(tiny, **arguments), ids, chunk)[0, -1]
    moved = set()
    for index in range(num_tokens):
        changed = ids.clone()
        changed[0, index] = (changed[0, index] + 1) % 90 + 3
        if (feed(tiny, cache_of(tiny, **arguments), changed, chunk)[0, -1] - base).abs().max() > 1e-4:
            moved.add(index)
    return moved


@pytest.mark.parametrize("family", ["mistral", "gemma2", "gemma3_text", "gpt_oss", "phi3"])
@pytest.mark.parametrize("chunk", [1, 3, 12], ids=["decode", "chunks", "one piece"])
def test_a_query_is_moved_by_exactly_w_tokens(family: str, chunk: int) -> None:
    kinds = {"layer_types": ("sliding_attention",)} if family in ("gemma2", "gemma3_text", "gpt_oss") else {}
    tiny = tiny_model(family, num_hidden_layers=1, sliding_window=4, **kinds)
    for num_tokens in (3, 4, 5, 12):
        expected = set(range(max(0, num_tokens - 4), num_tokens))
        assert influence(tiny, num_tokens, chunk, policy=CachePolicy.AS_TRAINED) == expected


@pytest.mark.parametrize("chunk", [1, 7, 40], ids=["decode", "chunks", "one piece"])
def test_sinks_are_seen_in_prefill_as_in_decode(chunk: int) -> None:
    tiny = tiny_model("llama", num_hidden_layers=1)
    assert influence(tiny, 40, chunk, window=12, sinks=4) == {0, 1, 2, 3, *range(28, 40)}


@pytest.mark.parametrize("num_tokens", [5, 15, 16, 17, 18, 100])
def test_a_bounded_layer_equals_full_attention_over_the_kept_tokens_at_positions_0_to_n_minus_1(
    num_tokens: int,
) -> None:
    tiny, ids = tiny_model("llama", num_hidden_layers=1), random_ids(num_tokens)
    kept = ids if num_tokens <= 16 else torch.cat((ids[:, :4], ids[:, -12:]), dim=1)
    expected = tiny.expected(kept)[0, -1]
    for chunk in (1, 16, 100):
        actual = feed(tiny, cache_of(tiny, window=12, sinks=4), ids, chunk)[0, -1]
        assert torch.allclose(actual, expected, atol=2e-5)


def test_sinks_longer_than_the_prompt_or_the_window_are_right_too() -> None:
    tiny, ids = tiny_model("llama", num_hidden_layers=1), random_ids(60)
    expected = tiny.expected(torch.cat((ids[:, :30], ids[:, -2:]), dim=1))[0, -1]
    for chunks in ([5, 55], [1] * 60, [30, 30], [29, 2, 29], [60]):
        cache = cache_of(tiny, window=2, sinks=30)
        actual = torch.cat([feed(tiny, cache, piece, piece.shape[1]) for piece in pieces(ids, chunks)], dim=1)[0, -1]
        assert torch.allclose(actual, expected, atol=2e-5)


@pytest.mark.parametrize("family", ["mistral", "gemma3_text", "cohere2", "gpt_oss", "ministral3", "phi3"])
def test_sliding_layers_cut_below_their_trained_window_see_sinks_at_in_cache_positions(family: str) -> None:
    tiny, ids = tiny_model(family).in_float64(), random_ids(40)
    arguments: dict[str, Any] = {"window": WINDOW - 4, "sinks": 2, "dtype": torch.float64}
    expected = reference_logits(tiny.decoder, ids, cache_of(tiny, **arguments))
    assert cache_of(tiny, **arguments).layers[0].limits == LayerLimits(window=WINDOW - 4, sinks=2)
    for chunk in (1, 3, WINDOW, 40):
        assert (feed(tiny, cache_of(tiny, **arguments), ids, chunk) - expected).abs().max() < 1e-6


# Bytes and addresses


@pytest.mark.parametrize("policy", CachePolicy)
@pytest.mark.parametrize(("window", "sinks"), [(8, 3), (5, 0), (20, 4)])
def test_limits_agree_with_the_sizing_formula(policy: CachePolicy, window: int, sinks: int) -> None:
    config = tiny_model(HYBRID).config
    tokens = 1000
    expected = tuple(
        tokens if limit.slots is None else limit.slots for limit in layer_limits(config, policy, window, sinks)
    )
    assert layer_slots(config, policy, window, sinks, tokens) == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bytes_are_those_of_the_formula_from_the_start_to_ten_windows(dtype: torch.dtype) -> None:
    tiny, cache = tiny_model(HYBRID), cache_of(tiny_model(HYBRID), dtype=dtype)
    formula = kv_bytes(tiny.config, CachePolicy.RING, WINDOW, 3, 10 * WINDOW, dtype.itemsize)
    assert formula == 2 * 2 * 16 * (WINDOW + WINDOW + 3 + WINDOW) * dtype.itemsize
    where = addresses(cache)
    for ids, chunk in ((random_ids(40), 40), (random_ids(40, seed=2), 1), (random_ids(30, seed=3), 3)):
        feed(tiny, cache, ids, chunk)
        assert storage_bytes(cache) == cache.nbytes == formula
        assert addresses(cache) == where


def test_appends_of_several_tokens_never_grow_a_full_ring() -> None:
    tiny, cache = tiny_model("mistral"), cache_of(tiny_model("mistral"))
    ids = random_ids(WINDOW + 30)
    logits = [feed(tiny, cache, ids[:, :WINDOW]), feed(tiny, cache, ids[:, WINDOW:], chunk=3)]
    assert cache.held_nbytes == cache.nbytes == storage_bytes(cache)
    assert torch.allclose(torch.cat(logits, dim=1), tiny.expected(ids), atol=1e-4)


@pytest.mark.parametrize("num_tokens", [1, 7, 8, 9, 30])
@pytest.mark.parametrize("policy", CachePolicy)
def test_held_bytes_are_those_of_the_formula(policy: CachePolicy, num_tokens: int) -> None:
    tiny, cache = tiny_model(HYBRID), cache_of(tiny_model(HYBRID), policy)
    feed(tiny, cache, random_ids(num_tokens), chunk=num_tokens)
    assert cache.held_nbytes == kv_held_bytes(tiny.config, policy, WINDOW, 3, num_tokens, 4)


def test_growing_layers_take_storage_in_blocks_and_keep_what_they_hold() -> None:
    tiny, cache = tiny_model(HYBRID), cache_of(tiny_model(HYBRID), CachePolicy.AS_TRAINED)
    ids = random_ids(GROWTH_BLOCK_SLOTS + 4)
    assert cache.layers[1].num_slots == 0
    before = feed(tiny, cache, ids[:, :-4], chunk=GROWTH_BLOCK_SLOTS)
    assert (cache.layers[1].num_slots, cache.generation) == (GROWTH_BLOCK_SLOTS, 1)
    after = feed(tiny, cache, ids[:, -4:])
    assert (cache.layers[1].num_slots, cache.generation) == (2 * GROWTH_BLOCK_SLOTS, 2)
    assert torch.allclose(torch.cat((before, after), dim=1)[:, -8:], tiny.expected(ids)[:, -8:], atol=2e-4)


# Counting


@pytest.mark.parametrize("kinds", [("sliding_attention", "full_attention"), ("full_attention", "sliding_attention")])
def test_the_position_is_the_number_of_tokens_fed_whichever_layer_comes_first(kinds: tuple[str, ...]) -> None:
    tiny = tiny_model("gemma2", num_hidden_layers=2, layer_types=kinds)
    cache, ids = cache_of(tiny, CachePolicy.AS_TRAINED), random_ids(3 * WINDOW)
    logits = []
    for index in range(ids.shape[1]):
        assert cache.position == index
        logits.append(feed(tiny, cache, ids[:, index : index + 1]))
    assert cache.lengths_B.tolist() == cache.lengths == [3 * WINDOW]
    assert torch.allclose(torch.cat(logits, dim=1), tiny.expected(ids), atol=1e-4)


@pytest.mark.parametrize(("name", "value"), [("window", 0), ("sinks", -1), ("batch_size", 0)])
def test_impossible_sizes_are_refused(name: str, value: int) -> None:
    sizes: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=f"{name.replace('_', ' ')} of {value}"):
        cache_of(tiny_model("mistral"), **sizes)


# Snapshots


@pytest.mark.parametrize("policy", CachePolicy)
def test_a_restored_cache_goes_on_as_if_nothing_had_happened(policy: CachePolicy) -> None:
    tiny, ids, other = tiny_model(HYBRID), random_ids(40), random_ids(40, seed=2)
    for cut in (1, 2, 5, WINDOW, WINDOW + 3, 25):
        cache = cache_of(tiny, policy)
        feed(tiny, cache, ids[:, :cut])
        snapshot = cache.snapshot()
        expected = feed(tiny, cache, ids[:, cut:])
        for detour in (other, other[:, :2]):
            feed(tiny, cache, detour)
            cache.restore(snapshot)
            assert cache.position == cut
            assert torch.equal(feed(tiny, cache, ids[:, cut:]), expected)


def test_a_snapshot_holds_copies_of_the_filled_slots_alone() -> None:
    tiny, cache = tiny_model(HYBRID), cache_of(tiny_model(HYBRID))
    feed(tiny, cache, random_ids(5), chunk=5)
    snapshot = cache.snapshot()
    assert snapshot.nbytes == cache.held_nbytes
    copies = [tensor for pair in snapshot.layers for tensor in pair]
    assert sum(tensor.untyped_storage().nbytes() for tensor in copies) == snapshot.nbytes
    kept = [tensor.clone() for tensor in copies]
    feed(tiny, cache, random_ids(40))
    assert all(torch.equal(old, new) for old, new in zip(kept, copies, strict=True))


def test_a_reset_cache_is_a_new_one_at_the_same_addresses() -> None:
    tiny, cache, ids = tiny_model(HYBRID), cache_of(tiny_model(HYBRID)), random_ids(20)
    where, expected = addresses(cache), feed(tiny, cache_of(tiny), ids, chunk=4)
    feed(tiny, cache, random_ids(50, seed=2))
    cache.reset()
    assert cache.position == 0
    assert cache.held_nbytes == 0
    assert torch.equal(feed(tiny, cache, ids, chunk=4), expected)
    assert addresses(cache) == where


def test_a_snapshot_of_another_number_of_rows_is_refused() -> None:
    cache = cache_of(tiny_model(HYBRID))
    with pytest.raises(ValueError, match="1 rows does not fit a cache of 2"):
        cache_of(tiny_model(HYBRID), batch_size=2).restore(cache.snapshot())


# Rows


def rows_of_lengths(tiny: TinyModel, lengths: list[int], policy: CachePolicy) -> tuple[KVCache, list[KVCache]]:
    """A cache whose rows were filled one by one, and the same rows each in a cache of its own."""
    solos = []
    for row, length in enumerate(lengths):
        solo = cache_of(tiny, policy, fill=0.0)
        if length:
            feed(tiny, solo, random_ids(length, seed=row), chunk=length)
        solos.append(solo)
    together = cache_of(tiny, policy, fill=0.0, batch_size=len(lengths))
    for row, solo in enumerate(solos):
        together.set_row(row, solo.snapshot())
    return together, solos


@pytest.mark.parametrize("policy", CachePolicy)
@pytest.mark.parametrize("chunk", [1, 3, 11])
@pytest.mark.parametrize("lengths", [[0, 30], [5, 6], [WINDOW, 2, 40], [30, 30, 31]], ids=str)
def test_rows_of_different_lengths_equal_their_solo_runs(policy: CachePolicy, chunk: int, lengths: list[int]) -> None:
    tiny = tiny_model(HYBRID)
    together, solos = rows_of_lengths(tiny, lengths, policy)
    ids = random_ids(33, rows=len(lengths), seed=9)
    actual = feed(tiny, together, ids, chunk)
    for row, solo in enumerate(solos):
        assert torch.allclose(actual[row : row + 1], feed(tiny, solo, ids[row : row + 1], chunk), atol=1e-4)
    assert together.lengths == [length + 33 for length in lengths]


@pytest.mark.parametrize("chunk", [1, 5])
def test_nan_in_a_foreign_row_never_shows(chunk: int) -> None:
    tiny = tiny_model(HYBRID)
    together, solos = rows_of_lengths(tiny, [10, 3], CachePolicy.RING)
    for layer in together.layers:
        for tensor in layer.tensors:
            tensor[1] = torch.nan
    ids = random_ids(20, rows=2)
    assert torch.allclose(feed(tiny, together, ids, chunk)[:1], feed(tiny, solos[0], ids[:1], chunk), atol=1e-4)


def test_drafts_from_one_prefill_each_go_their_own_way() -> None:
    tiny, prompt, ids = tiny_model(HYBRID), random_ids(13), random_ids(20, rows=3, seed=5)
    cache = cache_of(tiny, batch_size=3, fill=0.0)
    solo = cache_of(tiny)
    feed(tiny, solo, prompt, chunk=13)
    for row in range(3):
        cache.set_row(row, solo.snapshot())
    assert cache.position == 13
    actual = feed(tiny, cache, ids)
    for row in range(3):
        alone = cache_of(tiny)
        feed(tiny, alone, prompt, chunk=13)
        assert torch.allclose(actual[row : row + 1], feed(tiny, alone, ids[row : row + 1]), atol=1e-4)
    chosen = cache_of(tiny)
    chosen.restore(cache.snapshot(row=2))
    assert torch.allclose(feed(tiny, chosen, prompt), feed(tiny, alone, prompt), atol=1e-4)


def test_a_row_takes_only_one_row_that_begins_where_the_others_do() -> None:
    cache = cache_of(tiny_model(HYBRID), batch_size=2)
    for snapshot in (cache.snapshot(), cache_of(tiny_model(HYBRID), first_position=5).snapshot()):
        with pytest.raises(ValueError, match="row 1 takes a snapshot of one row that begins at position 0"):
            cache.set_row(1, snapshot)


def test_layers_with_the_same_limits_share_one_plan() -> None:
    layers = (LayerConfig(8, None), LayerConfig(None, None), LayerConfig(8, None))
    config = ModelConfig("tiny", 97, 32, 48, 4, 2, 8, layers)
    cache = KVCache(config, CachePolicy.RING, window=8, sinks=2)
    assert [layer.kind for layer in cache.layers] == [0, 1, 0]
    assert len(cache.plans(1)) == len(cache.kinds) == 2
