"""The ring backend on tiny models: reuse of the cache, memory to the byte, and what happens when things fail."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from backends.errors import BadRequestError, OutOfMemoryError, RingsideError, UnsupportedModelError
from backends.events import Event, Finished, PrefillProgress, TextChunk
from backends.requests import CachePolicy, GenerationRequest, KVType, LoadRequest, Message, Sampling
from backends.ring import generation, load
from backends.ring.generation import RingBackend
from backends.ring.sequence import CachedText
from models.decoder import Decoder
from models.model_files import ModelFiles
from models.ring_cache import KVCache
from models.sizing import kv_bytes, kv_held_bytes
from models.vocabulary import build_tokenizer
from tests.backends.tiny_gguf import write_tiny_gguf
from tests.models.tiny_models import build, save_folder
from tests.models.tiny_tokenizers import byte_level_vocabulary

WINDOW = 8
WILD = Sampling(temperature=1.0, top_k=None, top_p=1.0, seed=5)  # every difference of the logits shows in the text
FIRST = "the-first-turn,-longer"  # no space: the tiny vocabulary spells one in three tokens


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sliding (window 8) and full layers take turns; one token a byte."""
    return write_tiny_gguf(tmp_path_factory.mktemp("ring") / "tiny.gguf", sliding_window=WINDOW, sliding_pattern=2)


def open_backend(path: Path, policy: CachePolicy = CachePolicy.RING, **fields: Any) -> RingBackend:
    fields = {"window": WINDOW, "sinks": 2, "precision": "float32", "device": "cpu", "num_threads": 1, **fields}
    return load(LoadRequest("ring", str(path), policy, **fields), lambda progress: None)


def ask(*texts: str | Message, num_tokens: int = 12, **fields: Any) -> GenerationRequest:
    messages = tuple(Message("user", text) if isinstance(text, str) else text for text in texts)
    fields = {"sampling": WILD, "max_new_tokens": num_tokens, "ignore_end": True, **fields}
    return GenerationRequest(messages, **fields)


def run(backend: RingBackend, request: GenerationRequest) -> list[Event]:
    return list(backend.generate(request, lambda: False))


def ids_of(events: list[Event]) -> tuple[int, ...]:
    return tuple(token for event in events if isinstance(event, TextChunk) for token in event.token_ids)


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextChunk))


def reused(events: list[Event]) -> int:
    return next(event.reused_tokens for event in events if isinstance(event, PrefillProgress))


def as_reply(events: list[Event]) -> Message:
    return Message("assistant", text_of(events), ids_of(events))


@pytest.mark.parametrize("policy", CachePolicy)
def test_a_warm_cache_gives_what_a_cold_one_gives_wherever_the_new_prompt_departs(
    model_path: Path, policy: CachePolicy
) -> None:
    warm = open_backend(model_path, policy)
    for place in range(len(FIRST) + 1):
        edited = FIRST[:place] + "|" + FIRST[place + 1 :]
        run(warm, ask(FIRST))
        again, cold = run(warm, ask(edited)), run(open_backend(model_path, policy), ask(edited))
        assert ids_of(again) == ids_of(cold)
        assert reused(cold) == 0
        assert reused(again) <= place + 1  # the token that begins a text comes first


def test_the_next_turn_takes_up_all_that_was_fed(model_path: Path) -> None:
    backend = open_backend(model_path)
    first = run(backend, ask(FIRST))
    request = ask(FIRST, as_reply(first), "and-a-second-turn")
    second = run(backend, request)
    assert reused(second) == 1 + len(FIRST) + len(ids_of(first)) - 1  # the last token of a reply was not fed
    assert ids_of(second) == ids_of(run(open_backend(model_path), request))


def test_regenerating_after_the_ring_wrapped_restores_the_end_of_the_prompt(model_path: Path) -> None:
    backend = open_backend(model_path)
    first = run(backend, ask(FIRST, num_tokens=5 * WINDOW))
    again = run(backend, ask(FIRST, num_tokens=5 * WINDOW))
    assert ids_of(again) == ids_of(first)
    assert reused(again) == len(FIRST)


def test_editing_the_last_message_restores_the_end_of_the_reply_before_it(model_path: Path) -> None:
    backend = open_backend(model_path)
    first = run(backend, ask(FIRST, num_tokens=3 * WINDOW))
    run(backend, ask(FIRST, as_reply(first), "a-question", num_tokens=3 * WINDOW))
    request = ask(FIRST, as_reply(first), "another-question")
    edited = run(backend, request)
    assert reused(edited) == 1 + len(FIRST) + len(ids_of(first)) - 1
    assert ids_of(edited) == ids_of(run(open_backend(model_path), request))


def test_another_chat_in_between_changes_nothing(model_path: Path) -> None:
    backend = open_backend(model_path)
    first = run(backend, ask(FIRST, num_tokens=3 * WINDOW))
    run(backend, ask("something-else-altogether", num_tokens=3 * WINDOW))
    again = run(backend, ask(FIRST, num_tokens=3 * WINDOW))
    assert ids_of(again) == ids_of(first)
    assert reused(again) == len(FIRST), "snapshots outlive a change of chats"


def test_a_reply_that_ended_by_itself_goes_on_from_its_very_end(model_path: Path) -> None:
    backend = open_backend(model_path)
    ended = next(
        (seed, events)
        for seed in range(2000)
        if len(ids_of(events := run(backend, ask(FIRST, num_tokens=40, sampling=with_seed(seed), ignore_end=False))))
        > WINDOW
        and isinstance(finished := events[-1], Finished)
        and finished.reason == "stop"
    )
    request = ask(FIRST, as_reply(ended[1]), num_tokens=10)
    run(backend, ask(FIRST, num_tokens=40, sampling=with_seed(ended[0]), ignore_end=False))
    went_on = run(backend, request)
    assert reused(went_on) == 1 + len(FIRST) + len(ids_of(ended[1])), "nothing is left to feed"
    assert ids_of(went_on) == ids_of(run(open_backend(model_path), request))


LONGROPE = {
    "rope_type": "longrope",
    "partial_rotary_factor": 0.75,
    "short_factor": [1.0, 1.1, 1.2],
    "long_factor": [2.0, 4.0, 8.0],
    "original_max_position_embeddings": 32,
}


@pytest.mark.parametrize("num_before", [0, 14])
def test_longrope_reads_the_text_again_where_its_frequencies_change(tmp_path: Path, num_before: int) -> None:
    vocabulary = byte_level_vocabulary()
    tiny = build(
        "phi3", rope_parameters=LONGROPE, original_max_position_embeddings=32, vocab_size=len(vocabulary.tokens)
    )
    save_folder(tiny.stock, tmp_path)
    build_tokenizer(vocabulary).save(str(tmp_path / "tokenizer.json"))
    backend = open_backend(tmp_path, CachePolicy.FULL)
    request = ask("the dog", num_tokens=50 - num_before, sampling=Sampling(temperature=0), ignore_end=False)
    if num_before:
        before = run(backend, ask("the dog", num_tokens=num_before, sampling=Sampling(temperature=0)))
        request = replace(request, messages=(*request.messages, as_reply(before)))
    events = run(backend, request)
    text = [*backend._prompts.ids(request.messages), *ids_of(events)]
    start = len(text) - len(ids_of(events))
    assert start < 32 < len(text) - 1, "it crosses the original context"
    for end in range(start, len(text)):
        assert int(tiny.expected(torch.tensor([text[:end]]))[0, -1].argmax()) == text[end]
    read = [event for event in events if isinstance(event, PrefillProgress)]
    assert read[-1].done_tokens == read[-1].total_tokens == 32


def with_seed(seed: int) -> Sampling:
    return Sampling(temperature=1.0, top_k=None, top_p=1.0, seed=seed)


@pytest.mark.parametrize("policy", CachePolicy)
def test_bytes_follow_the_formula_after_prefill_and_after_ten_windows(model_path: Path, policy: CachePolicy) -> None:
    backend, config = open_backend(model_path, policy), ModelFiles.open(model_path).config()
    for num_tokens in (1, 10 * WINDOW):
        run(backend, ask(FIRST, num_tokens=num_tokens))
        figures = backend.memory()
        fed = figures.position_tokens
        assert fed == 1 + len(FIRST) + num_tokens - 1
        assert figures.kv_held_bytes == kv_held_bytes(config, policy, WINDOW, 2, fed, 4)
        assert figures.kv_full_bytes == kv_bytes(config, CachePolicy.FULL, WINDOW, 2, fed, 4)
        if policy is CachePolicy.RING:
            assert figures.kv_allocated_bytes == kv_bytes(config, policy, WINDOW, 2, fed, 4)
            assert (figures.window_filled_tokens, figures.window_tokens) == (WINDOW + 2, WINDOW + 2)


@pytest.mark.parametrize("policy", CachePolicy)
def test_the_window_in_force_is_one_number_in_facts_and_figures_without_the_sinks(
    model_path: Path, policy: CachePolicy
) -> None:
    backend = open_backend(model_path, policy)
    run(backend, ask(FIRST, num_tokens=3))
    figures = backend.memory()
    assert figures.window == (backend.info.window if figures.window_tokens else 0)
    assert backend.info.asked_window == figures.asked_window == WINDOW


def test_snapshots_are_counted_and_stay_within_their_budget(model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "_SNAPSHOT_BUDGET_BYTES", 10_000)
    backend = open_backend(model_path)
    seen = []
    for turn in range(6):
        run(backend, ask(f"turn {turn} of a chat", num_tokens=2 * WINDOW))
        seen.append(backend.memory().snapshot_bytes)
    assert 0 < max(seen) <= 10_000


def test_a_pinned_system_prompt_takes_a_cache_of_its_own_size(model_path: Path) -> None:
    backend = open_backend(model_path, sinks=None)
    assert backend.info.sinks == 4
    for system in ("be brief", "be brief and kind, and never speak of boats"):
        events = run(backend, ask(Message("system", system), "hello"))
        assert len(ids_of(events)) == 12
        assert backend.info.sinks >= len(system)
        assert backend.memory().window_tokens == WINDOW + backend.info.sinks
    run(backend, ask("hello"))
    assert backend.info.sinks == 4


def failing(
    monkeypatch: pytest.MonkeyPatch, method: str, kind: type[Exception], words: str, at_call: int
) -> list[weakref.ref[KVCache]]:
    """Let a method of the decoder fail once; return where the cache that it failed on will be noted."""
    original, calls = getattr(Decoder, method), [0]
    caches: list[weakref.ref[KVCache]] = []

    def fail(self: Decoder, tokens: torch.Tensor, cache: KVCache, *args: Any, **named: Any) -> Any:
        calls[0] += 1
        if calls[0] == at_call:
            caches.append(weakref.ref(cache))
            raise kind(words)
        return original(self, tokens, cache, *args, **named)

    monkeypatch.setattr(Decoder, method, fail)
    return caches


@pytest.mark.parametrize(
    ("method", "kind", "words", "expected"),
    [
        ("decode_step", torch.OutOfMemoryError, "CUDA out of memory.", OutOfMemoryError),
        ("forward", MemoryError, "", OutOfMemoryError),
        ("decode_step", RuntimeError, "DefaultCPUAllocator: can't allocate memory", OutOfMemoryError),
        ("decode_step", RuntimeError, "a kernel failed", RuntimeError),
    ],
)
def test_a_failure_keeps_the_text_drops_the_cache_and_leaves_a_backend_that_works(
    model_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    kind: type[Exception],
    words: str,
    expected: type[Exception],
) -> None:
    right = run(open_backend(model_path), ask(FIRST))
    backend = open_backend(model_path)
    before = backend.memory()
    num_tokens = 0 if method == "forward" else 6
    caches = failing(monkeypatch, method, kind, words, at_call=num_tokens + 1)
    events = backend.generate(ask(FIRST), lambda: False)
    seen = [next(events) for _ in range(1 if method == "forward" else 3 + num_tokens)]
    assert len(ids_of(seen)) == num_tokens
    with pytest.raises(expected) as caught:
        next(events)
    if expected is OutOfMemoryError:
        assert "memory ran out" in str(caught.value)
        gc.collect()
        assert caches[0]() is None, "even while the error is still at hand"
    assert ids_of(run(backend, ask(FIRST))) == ids_of(right)
    assert backend.memory().kv_allocated_bytes == before.kv_allocated_bytes


def test_weights_that_are_not_numbers_are_told_and_the_backend_stays_usable(tmp_path: Path) -> None:
    backend = open_backend(write_tiny_gguf(tmp_path / "nan.gguf", fill=math.nan))
    for _ in range(2):
        with pytest.raises(RingsideError, match="not a number"):
            run(backend, ask(FIRST))


def test_a_window_beyond_memory_is_refused_with_both_numbers(model_path: Path) -> None:
    with pytest.raises(BadRequestError, match=r"A window of 1,000,000,000,000 tokens takes .* GB .* are free"):
        open_backend(model_path, window=10**12)


@pytest.mark.parametrize(("name", "value"), [("window", 0), ("sinks", -1), ("num_threads", 0)])
def test_numbers_that_make_no_sense_are_refused(model_path: Path, name: str, value: int) -> None:
    fields: dict[str, Any] = {name: value}
    with pytest.raises(BadRequestError, match=str(value)):
        open_backend(model_path, **fields)


def test_a_model_larger_than_memory_is_refused_before_it_is_read(
    model_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backends.ring.memory.free_bytes", lambda device: 1000)
    with pytest.raises(OutOfMemoryError, match=r"tiny\.gguf takes .* GB in float32"):
        open_backend(model_path)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_a_model_meant_for_one_runs_on_the_cpu_and_says_so(model_path: Path) -> None:
    backend = open_backend(model_path, device="cuda", precision="float16")
    assert backend.info.device == "cpu"
    assert backend.info.precision == "bfloat16"
    assert any("no GPU" in notice for notice in backend.info.notices)
    assert any("float16" in notice for notice in backend.info.notices)
    assert backend.memory().device_allocated_bytes is None
    assert len(ids_of(run(backend, ask(FIRST, num_tokens=5)))) == 5


@pytest.mark.parametrize("precision", ["int8", "bfloat16"])
def test_other_precisions_continue_as_exactly(model_path: Path, precision: str) -> None:
    backend = open_backend(model_path, precision=precision)
    whole = run(backend, ask(FIRST, num_tokens=20))
    part = run(backend, ask(FIRST, num_tokens=7))
    rest = run(backend, ask(FIRST, as_reply(part), num_tokens=13))
    assert ids_of(part) + ids_of(rest) == ids_of(whole)


def test_closing_gives_the_cache_and_the_weights_back(model_path: Path) -> None:
    backend = open_backend(model_path)
    run(backend, ask(FIRST))
    decoder, text = weakref.ref(backend._model), weakref.ref(backend._open_text())
    assert isinstance(text(), CachedText)
    backend.close()
    gc.collect()
    assert decoder() is None
    assert text() is None


def test_inference_mode_never_outlives_a_step(model_path: Path) -> None:
    for event in open_backend(model_path).generate(ask(FIRST), lambda: False):
        assert not torch.is_inference_mode_enabled(), event


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


# Keys and values in 8 bits


@pytest.mark.parametrize("kv_type", ["int8", "fp8"])
@pytest.mark.parametrize("policy", CachePolicy)
def test_coded_keys_and_values_take_the_bytes_of_the_formula_and_a_warm_cache_writes_as_a_cold_one(
    model_path: Path, kv_type: KVType, policy: CachePolicy
) -> None:
    warm, cold = (open_backend(model_path, policy, kv_type=kv_type) for _ in range(2))
    first = run(warm, ask(FIRST, num_tokens=3 * WINDOW))
    config, figures = ModelFiles.open(str(model_path)).config(), warm.memory()
    fed = figures.position_tokens
    assert figures.kv_held_bytes == kv_held_bytes(config, policy, WINDOW, 2, fed, 4, kv_type)
    assert figures.kv_full_bytes == kv_bytes(config, CachePolicy.FULL, WINDOW, 2, fed, 4, kv_type)
    request = ask(FIRST, as_reply(first), "and-then?")
    assert reused(second := run(warm, request)) > len(FIRST)
    assert ids_of(second) == ids_of(run(cold, request))


def test_a_short_text_never_holds_more_than_a_cache_without_a_window_would(model_path: Path) -> None:
    backend = open_backend(model_path, kv_type="int8")
    for event in backend.generate(ask("a", num_tokens=6), lambda: False):
        figures = backend.memory()
        assert figures.kv_held_bytes <= figures.kv_full_bytes, event


def test_fp8_is_refused_by_name_where_torch_has_none(model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch, "float8_e4m3fn")
    with pytest.raises(UnsupportedModelError, match="cannot keep keys and values in fp8 on cpu"):
        open_backend(model_path, kv_type="fp8")


def test_rows_of_the_head_beyond_the_tokenizer_are_never_drawn(tmp_path: Path) -> None:
    vocabulary = byte_level_vocabulary()
    save_folder(build("llama", vocab_size=2 * len(vocabulary.tokens)).stock, tmp_path)
    build_tokenizer(vocabulary).save(str(tmp_path / "tokenizer.json"))
    backend = open_backend(tmp_path)
    for sampling in (Sampling(temperature=0), WILD):
        drawn = ids_of(run(backend, ask("the dog", num_tokens=40, sampling=sampling)))
        assert len(drawn) == 40
        assert max(drawn) < len(vocabulary.tokens)
    backend.close()
