"""llama.cpp's cache as we drive it, on tiny models: making room, taking up, and what must not happen in between.

Tolerances: the same tokens in other batches give logits that differ by some 0.01 here (scale 1.6); a wrong cache by 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("llama_cpp")

from backends.errors import UnsupportedModelError
from backends.llamacpp.context import Context
from backends.llamacpp.library import Model
from backends.llamacpp.memory import CacheSize, ThrottledMeasure, cache_sizes, device_bytes
from backends.llamacpp.plan import ContextPlan, plan_context
from backends.llamacpp.sequence import TokenSequence
from backends.requests import CachePolicy
from tests.backends.tiny_gguf import VOCAB_SIZE, write_tiny_gguf

WINDOW = 64
TOLERANCE = 0.05
TOKENS = [1, *(int(token) for token in np.random.default_rng(1).integers(3, VOCAB_SIZE, 1_600))]
Logits = npt.NDArray[np.float32]


class Fed:
    """A tiny model with one context, fed in batches of given sizes."""

    def __init__(self, path: Path, plan: ContextPlan) -> None:
        self.model = Model(path, on_gpu=False, report=lambda part: None)
        self.context = Context(self.model, plan, num_threads=1)
        self.sequence = TokenSequence(self.context, plan, self.model.sliding_window)
        self.sequence.sinks = 4

    def close(self) -> None:
        self.context.close()
        self.model.close()

    def run(self, tokens: Sequence[int], sizes: Sequence[int] = (128,), start: int = 0) -> Logits:
        """Feed tokens from `start` on, in batches of these sizes in turn; return the last logits."""
        turn = 0
        while start < len(tokens):
            self.sequence.make_room()
            batch = tokens[start : start + min(sizes[turn % len(sizes)], self.sequence.room)]
            start += len(batch)
            turn += 1
            self.sequence.feed(batch, want_logits=start == len(tokens))
        logits: Logits = self.context.logits().copy()
        return logits

    def fresh(self, tokens: Sequence[int], sizes: Sequence[int] = (128,)) -> Logits:
        self.sequence.clear()
        return self.run(tokens, sizes)


MakeFed = Callable[..., Fed]


@pytest.fixture(scope="module")
def make_fed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeFed]:
    opened: list[Fed] = []

    def make(num_cells: int = 512, policy_keeps_everything: bool = False, **shape: object) -> Fed:
        path = write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf", **shape)  # type: ignore[arg-type]
        fed = Fed(path, ContextPlan(num_cells, 128, policy_keeps_everything))
        opened.append(fed)
        return fed

    yield make
    for fed in opened:
        fed.close()


SHAPES = {
    "every second layer slides": {"sliding_pattern": 2},
    "every layer slides": {"sliding_pattern": 0},
    "no layer slides": {"architecture": "llama"},
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("num_tokens", [60, 300, 512, 513, 700, 1_600])
def test_any_split_into_batches_gives_the_same_logits_before_and_after_room_is_made(
    make_fed: MakeFed, shape: dict[str, object], num_tokens: int
) -> None:
    fed = make_fed(**shape)
    tokens = TOKENS[:num_tokens]
    one_by_one = fed.fresh(tokens, [1])
    for sizes in ([128], [64], [9, 31, 128], [100]):
        np.testing.assert_allclose(fed.fresh(tokens, sizes), one_by_one, atol=TOLERANCE)


HEARING = {
    "a full layer": {"architecture": "llama", "num_layers": 1},
    "a full layer beside a sliding one": {"sliding_pattern": 2, "num_layers": 2, "deaf_layers": (0,)},
    "a sliding layer beside a full one": {"sliding_pattern": 2, "num_layers": 2, "deaf_layers": (1,)},
}


@pytest.mark.parametrize("shape", HEARING.values(), ids=HEARING.keys())
@pytest.mark.parametrize("num_tokens", [513, 700, 1_600])
def test_once_room_was_made_a_layer_sees_the_kept_tokens_at_the_positions_they_have_in_the_cache(
    make_fed: MakeFed, shape: dict[str, object], num_tokens: int
) -> None:
    """With one layer that hears, keys depend on token and position only: the kept tokens alone must give the same."""
    fed = make_fed(**shape)
    logits = fed.fresh(TOKENS[:num_tokens])
    kept = [*TOKENS[:4], *TOKENS[num_tokens - fed.sequence.num_cells + 4 : num_tokens]]
    assert len(kept) < num_tokens
    np.testing.assert_allclose(logits, fed.fresh(kept), atol=0.02)
    if shape["num_layers"] == 1:
        latest_only = TOKENS[num_tokens - len(kept) : num_tokens]
        assert np.abs(fed.fresh(latest_only) - logits).max() > 0.1, "sinks make no difference: nothing was tested"


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("num_before", [400, 1_000])
def test_a_prompt_that_shares_any_beginning_is_answered_as_by_a_fresh_context(
    make_fed: MakeFed, shape: dict[str, object], num_before: int
) -> None:
    fed = make_fed(**shape)
    reused = []
    for num_shared in range(0, num_before + 1, 25):
        prompt = [*TOKENS[:num_shared], *TOKENS[-30:]]
        fed.fresh(TOKENS[:num_before])
        num_reused = fed.sequence.take_up(prompt)
        reused.append(num_reused)
        taken_up = fed.run(prompt, start=num_reused)
        np.testing.assert_allclose(taken_up, fed.fresh(prompt), atol=TOLERANCE)
    assert max(reused) > 0, "nothing was ever reused, so nothing was tested"
    assert reused[-1] == num_before, "a prompt that only adds to the cache reuses all of it"


def test_rewinding_without_the_guard_would_be_wrong(make_fed: MakeFed) -> None:
    fed = make_fed(sliding_pattern=2)
    prompt = [*TOKENS[:100], *TOKENS[-30:]]
    right = fed.fresh(prompt)
    fed.fresh(TOKENS[:500])
    fed.context.remove(100)
    assert fed.context.oldest_position() == -1
    for index, token in enumerate(prompt[100:]):
        fed.context.decode([token], 100 + index, want_logits=True)
    assert np.abs(fed.context.logits() - right).max() > 10 * TOLERANCE


def test_the_same_prompt_twice_gives_the_same_bits_although_part_of_it_is_reused(make_fed: MakeFed) -> None:
    fed = make_fed(architecture="llama")
    prompt = TOKENS[:300]
    first = fed.fresh(prompt)
    for token in TOKENS[300:340]:
        fed.sequence.feed([token], want_logits=True)
    num_reused = fed.sequence.take_up(prompt)
    assert num_reused == 256
    np.testing.assert_array_equal(fed.run(prompt, start=num_reused), first)


def test_a_cut_far_behind_the_last_batch_keeps_what_was_generated(make_fed: MakeFed) -> None:
    fed = make_fed(num_cells=1_024, architecture="llama")
    fed.fresh(TOKENS[:50])
    for token in TOKENS[50:450]:
        fed.sequence.feed([token], want_logits=True)
    prompt = [*TOKENS[:449], *TOKENS[-5:]]
    assert fed.sequence.take_up(prompt) == 449
    np.testing.assert_allclose(fed.run(prompt, start=449), fed.fresh(prompt), atol=TOLERANCE)


def test_other_sinks_after_room_was_made_start_over(make_fed: MakeFed) -> None:
    fed = make_fed(architecture="llama")
    fed.fresh(TOKENS[:600])
    fed.sequence.sinks = 20
    assert fed.sequence.take_up(TOKENS[:620]) == 0
    assert fed.sequence.num_fed == 0
    fed.sequence.sinks = 4


def test_bytes_held_stay_flat_once_room_is_made(make_fed: MakeFed) -> None:
    fed = make_fed(sliding_pattern=2)
    fed.fresh(TOKENS[:512])
    full = fed.context.held_bytes()
    held = []
    for token in TOKENS[512:1_500]:
        fed.sequence.feed([token], want_logits=True)
        held.append(fed.context.held_bytes())
    assert max(held) <= full * 1.01
    assert fed.sequence.num_fed == 1_500
    assert fed.sequence.num_cells <= 512


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_a_token_costs_what_the_formula_says(make_fed: MakeFed, shape: dict[str, object]) -> None:
    """2 (keys and values) x layers x 2 KV heads x 16 x 2 bytes = 128 bytes a layer, of which there are four."""
    fed = make_fed(**shape)
    assert fed.context.bytes_per_token == 4 * 128
    assert sum(cache.num_layers for cache in fed.context.caches) == 4


def test_a_context_is_the_smallest_multiple_of_256_that_leaves_room_to_drop_a_block() -> None:
    ring = CachePolicy.RING
    assert plan_context(ring, 512, 4, 512, 32_768) == ContextPlan(768, 512, keeps_everything=False)
    assert plan_context(ring, 512, 4, 512, 32_768).discard_tokens(4) == 191
    assert plan_context(ring, 128, 4, 1_024, 32_768).retained_tokens == 1_024
    assert plan_context(ring, 4_096, 4, 0, 32_768).num_cells == 4_352
    assert plan_context(CachePolicy.AS_TRAINED, 512, 4, 512, 32_000) == ContextPlan(32_000, 512, False)
    assert plan_context(CachePolicy.FULL, 512, 4, 512, 100) == ContextPlan(768, 512, keeps_everything=True)


@pytest.mark.parametrize("window", [1, 100, 191, 192, 193, 448, 512, 700, 4_096])
@pytest.mark.parametrize("sinks", [0, 4, 60, 300])
@pytest.mark.parametrize("sliding_window", [0, 128, 512])
def test_making_room_always_frees_a_block_and_keeps_the_window(window: int, sinks: int, sliding_window: int) -> None:
    plan = plan_context(CachePolicy.RING, window, sinks, sliding_window, 0)
    discard = plan.discard_tokens(sinks)
    assert discard >= 48
    assert plan.num_cells - sinks - discard >= max(window, sliding_window)


def test_sizes_are_read_from_the_log() -> None:
    lines = [
        "llama_kv_cache:        CPU KV buffer size =     2.25 MiB",
        "llama_kv_cache: size =    2.25 MiB (   768 cells,   3 layers,  1/1 seqs), K (f16):    1.12 MiB",
        "llama_kv_cache: size =   11.25 MiB (   768 cells,  15 layers,  1/1 seqs), K (f16):    5.62 MiB",
        "load_tensors:        CUDA0 model buffer size =   100.00 MiB",
        "load_tensors:   CPU_Mapped model buffer size =   235.16 MiB",
        "sched_reserve:      CUDA0 compute buffer size =     2.00 MiB",
    ]
    assert cache_sizes(lines) == (CacheSize(768, 3, 3_072), CacheSize(768, 15, 15_360))
    assert sum(cache.num_bytes for cache in cache_sizes(lines)) == 768 * 18_432
    assert device_bytes(lines) == 102 * 2**20
    coded = ["llama_kv_cache: size =    5.98 MiB (   768 cells,  15 layers,  1/1 seqs), K (q8_0):    2.99 MiB"]
    assert cache_sizes(coded, is_q8_0=True) == (CacheSize(768, 15, 15 * 2 * 256 // 32 * 34),)


def test_live_bytes_are_measured_at_most_four_times_a_second() -> None:
    now_s = 0.0
    taken: list[float] = []
    measure = ThrottledMeasure(lambda: taken.append(now_s) or len(taken), clock=lambda: now_s)  # type: ignore[func-returns-value]
    for step in range(100):
        now_s = step * 0.02
        measure.value()
    assert len(taken) == 8
    assert measure.value(fresh=True) == 9


def test_what_llama_cpp_cannot_load_is_refused_in_its_own_words(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "odd.gguf", architecture="nosuch")
    with pytest.raises(UnsupportedModelError, match=r"odd\.gguf.*unknown model architecture: 'nosuch'"):
        Model(path, on_gpu=False, report=lambda part: None)


def test_text_and_bytes_go_through_the_vocabulary_unchanged(make_fed: MakeFed) -> None:
    model = make_fed(architecture="llama").model
    ids = model.encode("hé\n<s>")
    assert ids[-1] == 1
    assert b"".join(model.piece(token) for token in ids) == "hé\n".encode()
    assert model.end_ids == (2,)
    assert model.bos_id == 1
