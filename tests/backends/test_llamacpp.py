"""The llama.cpp backend on the real models: replies that never end, chats that alternate, settings it must explain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("llama_cpp")

from backends import draws
from backends.errors import BadRequestError, ModelFileError, OutOfMemoryError, RingsideError, UnsupportedModelError
from backends.events import Event, Finished, PrefillProgress, TextChunk
from backends.llamacpp import load
from backends.llamacpp.generation import LlamaCppBackend
from backends.llamacpp.history import RecentTokens
from backends.llamacpp.sampling import Sampler
from backends.requests import CachePolicy, GenerationRequest, LoadRequest, Message, Sampling
from backends.token_rules import TokenRules
from models.backend_support import window_in_force
from models.model_files import ModelFiles
from tests.backends.tiny_gguf import write_tiny_gguf

GREEDY = Sampling(temperature=0)
STORY = "Once upon a time, in a small village by the sea,"
PARAGRAPH = "The tide came in over the sand, and the keeper of the light wrote down the hour and the wind. "

Load = Callable[..., LlamaCppBackend]


@pytest.fixture
def load_model() -> Iterator[Load]:
    loaded: list[LlamaCppBackend] = []

    def load_one(path: Path, policy: CachePolicy = CachePolicy.RING, **fields: object) -> LlamaCppBackend:
        request = replace(LoadRequest("llamacpp", str(path), policy, num_threads=1, device="cpu"), **fields)  # type: ignore[arg-type]
        loaded.append(load(request, lambda step: None))
        return loaded[-1]

    yield load_one
    for backend in loaded:
        backend.close()


def ask(text: str, num_tokens: int = 16, **fields: object) -> GenerationRequest:
    request = GenerationRequest((Message("user", text),), GREEDY, max_new_tokens=num_tokens, ignore_end=True)
    return replace(request, **fields)  # type: ignore[arg-type]


def run(backend: LlamaCppBackend, request: GenerationRequest) -> list[Event]:
    return list(backend.generate(request, lambda: False))


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextChunk))


def ids_of(events: list[Event]) -> tuple[int, ...]:
    return tuple(token for event in events if isinstance(event, TextChunk) for token in event.token_ids)


def reused_of(events: list[Event]) -> int:
    return max(event.reused_tokens for event in events if isinstance(event, PrefillProgress))


def finished_of(events: list[Event]) -> Finished:
    assert isinstance(events[-1], Finished)
    return events[-1]


# The real models


def test_a_reply_runs_past_three_windows_and_its_cache_is_flat(load_model: Load, gemma_path: Path) -> None:
    backend = load_model(gemma_path, window=512)
    held: dict[int, int] = {}
    events: list[Event] = []
    for event in backend.generate(ask(PARAGRAPH * 38, 800, sampling=Sampling(seed=1)), lambda: False):
        events.append(event)
        figures = backend.memory()
        held[figures.position_tokens] = figures.kv_held_bytes
    assert finished_of(events).num_generated_tokens == 800
    assert finished_of(events).reason == "length"
    figures = backend.memory()
    assert figures.position_tokens > 3 * 512
    flat = [num_bytes for position, num_bytes in held.items() if position >= 576]
    assert max(flat) < 1.07 * min(flat)
    assert figures.kv_allocated_bytes == 768 * 18_432
    assert figures.kv_full_bytes == figures.position_tokens * 18_432 > 2 * figures.kv_held_bytes


@pytest.mark.parametrize(("model", "scale", "order"), [("gemma_path", 37, "abcadcb"), ("smollm2_path", 14, "abcadcb")])
def test_alternating_chats_are_answered_as_by_a_fresh_backend(
    load_model: Load, model: str, scale: int, order: str, request: pytest.FixtureRequest
) -> None:
    path: Path = request.getfixturevalue(model)
    chats = {
        "a": STORY,
        "b": STORY + " there lived a keeper called Anna who",
        "c": PARAGRAPH * scale,  # longer than the context
        "d": PARAGRAPH * (scale // 3) + "And then",
    }
    fresh = {name: text_of(run(load_model(path, window=64), ask(text))) for name, text in chats.items()}
    backend = load_model(path, window=64)
    for name in order:
        assert text_of(run(backend, ask(chats[name]))) == fresh[name], name


def test_a_second_turn_reuses_everything_before_it(load_model: Load, smollm2_path: Path) -> None:
    backend = load_model(smollm2_path)
    first = run(backend, ask("Tell me about the sea.", 12))
    messages = (
        Message("user", "Tell me about the sea."),
        Message("assistant", text_of(first), ids_of(first)),
        Message("user", "And the sky?"),
    )
    second = run(backend, ask("", messages=messages))
    assert reused_of(second) == finished_of(first).num_prompt_tokens + 11
    again = run(backend, ask("", messages=messages))
    assert text_of(again) == text_of(second), "the same request gives the same reply, wherever it takes up the cache"


def test_the_whole_system_prompt_is_pinned_where_asked_and_the_context_grows_to_hold_it(
    load_model: Load, smollm2_path: Path
) -> None:
    backend = load_model(smollm2_path, window=128, sinks=None)
    assert backend.info.sinks == 4
    system = Message("system", PARAGRAPH * 8)
    run(backend, ask("", messages=(system, Message("user", "Hello"))))
    sinks = backend.info.sinks
    assert sinks > 150
    assert backend.memory().kv_allocated_bytes >= (sinks + 128) * backend.info.kv_bytes_per_token_full
    events = run(backend, ask("", 20, messages=(system, Message("user", PARAGRAPH * 16))))
    assert finished_of(events).num_generated_tokens == 20
    run(backend, ask("Hello"))
    assert backend.info.sinks == 4


def test_what_llama_cpp_does_not_slide_is_said(load_model: Load, smollm2_path: Path) -> None:
    info = load_model(smollm2_path, window=100).info
    assert info.trained_window is None
    assert info.num_full_layers == 30
    assert "No layer slides: llama.cpp runs llama models with full attention." in info.notices
    assert any("first 4 tokens" in notice and "to 256 together" in notice for notice in info.notices)


def test_windows_other_than_the_trained_one_are_explained(load_model: Load, gemma_path: Path) -> None:
    narrow = load_model(gemma_path, window=128).info
    assert narrow.window == 512
    assert any("window of 128 is below the 512" in notice for notice in narrow.notices)
    wide = load_model(gemma_path, window=1_024).info
    assert wide.window == 1_024
    assert any("keep the window of 512" in notice for notice in wide.notices)
    assert any("no chat template" in notice for notice in wide.notices)
    assert not any("below" in notice for notice in wide.notices)


def test_settings_without_effect_are_named(load_model: Load, smollm2_path: Path) -> None:
    notices = load_model(smollm2_path, precision="float32", device="cuda").info.notices
    assert any("float32 is ignored" in notice for notice in notices)
    assert any("no GPU support" in notice for notice in notices)


def test_a_window_beyond_memory_is_refused_with_both_numbers(load_model: Load, gemma_path: Path) -> None:
    with pytest.raises(OutOfMemoryError, match=r"context of 500,\d\d\d,\d\d\d tokens takes \d+\.\d GB .* are free"):
        load_model(gemma_path, window=500_000_000)
    with pytest.raises(BadRequestError, match="window of 4,000,000,000 is outside"):
        load_model(gemma_path, window=4_000_000_000)


def test_int8_keys_and_values_take_the_bytes_of_q8_0_and_still_write_past_the_context(
    load_model: Load, gemma_path: Path
) -> None:
    plain, coded = (load_model(gemma_path, window=128, kv_type=kv_type) for kv_type in ("auto", "int8"))
    assert coded.info.kv_bytes_per_token_full == 18 * 2 * 256 // 32 * 34
    assert plain.info.kv_bytes_per_token_full == 18 * 2 * 256 * 2
    assert coded.memory().kv_allocated_bytes / plain.memory().kv_allocated_bytes == 34 / 64
    text = text_of(run(coded, ask(PARAGRAPH * 32, 120)))
    assert coded.memory().position_tokens > 768 + 30  # the oldest block was dropped and keys were turned
    assert text.count(PARAGRAPH.strip()) >= 4, "what it was given again and again goes on"


def test_fp8_keys_and_values_are_refused(load_model: Load, smollm2_path: Path) -> None:
    with pytest.raises(BadRequestError, match=r"llama\.cpp has no fp8 for keys and values"):
        load_model(smollm2_path, kv_type="fp8")


def test_a_folder_of_safetensors_is_refused_by_kind(load_model: Load, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(RingsideError) as caught:
        load_model(tmp_path)
    assert isinstance(caught.value, (UnsupportedModelError, ModelFileError))
    assert str(tmp_path) in caught.value.message


# Tiny models, for what the real ones cannot show


@pytest.mark.parametrize(
    ("policy", "full_cells", "sliding_cells"),
    [(CachePolicy.RING, 256, 256), (CachePolicy.AS_TRAINED, 1_024, 256), (CachePolicy.FULL, 1_024, 1_024)],
)
def test_each_policy_sets_aside_and_holds_what_it_promises(
    load_model: Load, tmp_path: Path, policy: CachePolicy, full_cells: int, sliding_cells: int
) -> None:
    """Two full layers and two that slide over 64 tokens, 128 bytes a token and layer."""
    path = write_tiny_gguf(tmp_path / "tiny.gguf", sliding_pattern=2)
    backend = load_model(path, policy, window=64, growing_context_tokens=1_000)
    assert backend.memory().kv_allocated_bytes == 2 * 128 * (full_cells + sliding_cells)
    run(backend, ask("x" * 800, 1))
    figures = backend.memory()
    assert figures.position_tokens == 801
    everything, as_trained = 4 * 128 * 801, 2 * 128 * (801 + 64)
    match policy:
        case CachePolicy.FULL:
            assert figures.kv_held_bytes == pytest.approx(everything, rel=0.01)
            assert (figures.window_filled_tokens, figures.window_tokens) == (0, 0)
        case CachePolicy.AS_TRAINED:
            assert figures.kv_held_bytes == pytest.approx(as_trained, rel=0.1)
            assert (figures.window_filled_tokens, figures.window_tokens) == (64, 64)
        case CachePolicy.RING:
            assert figures.kv_held_bytes < 0.5 * as_trained
            assert figures.window_tokens == 256


@pytest.mark.parametrize("policy", CachePolicy)
@pytest.mark.parametrize("sliding_pattern", [0, 2])
@pytest.mark.parametrize("asked", [16, 64, 300])
def test_the_window_in_force_is_one_number_in_facts_figures_and_estimate(
    load_model: Load, tmp_path: Path, policy: CachePolicy, sliding_pattern: int, asked: int
) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", sliding_pattern=sliding_pattern)  # slides over 64 tokens
    request = LoadRequest("llamacpp", str(path), policy=policy, window=asked)
    backend = load_model(path, policy, window=asked)
    run(backend, ask("x" * 400, 1))
    info, figures = backend.info, backend.memory()
    assert info.window == window_in_force(ModelFiles.open(path).config(), request)
    assert figures.window == (0 if policy is CachePolicy.FULL else info.window)
    assert info.asked_window == figures.asked_window == asked
    if info.window > asked:
        reason = f"The window of {asked} is below the 64 tokens the sliding layers were trained with"
        assert any(notice.startswith(reason) for notice in info.notices)


@pytest.mark.parametrize("policy", [CachePolicy.AS_TRAINED, CachePolicy.FULL])
def test_a_growing_context_that_is_full_goes_on_too(load_model: Load, tmp_path: Path, policy: CachePolicy) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", sliding_pattern=2)
    backend = load_model(path, policy, window=64, growing_context_tokens=512)
    assert any("after 512 tokens" in notice for notice in backend.info.notices)
    assert finished_of(run(backend, ask("x" * 300, 900))).num_generated_tokens == 900
    assert backend.memory().position_tokens == 301 + 899


def test_case_23_sinks_close_to_the_context_still_make_progress(load_model: Load, tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", architecture="llama")
    backend = load_model(path, window=1, sinks=190)
    assert backend.memory().kv_allocated_bytes == 256 * 512
    for num_prompt in (190, 254, 255, 256, 257, 1_000):
        events = run(backend, ask("x" * (num_prompt - 1), 200))
        finished = finished_of(events)
        assert finished.num_prompt_tokens == num_prompt
        assert (finished.reason, finished.num_generated_tokens) == ("length", 200)


def test_a_model_whose_layers_all_slide_writes_on_past_its_context(load_model: Load, tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "sliding.gguf", sliding_pattern=0)
    backend = load_model(path, window=64)
    events = run(backend, ask("hello", 1_000))
    assert finished_of(events).num_generated_tokens == 1_000
    figures = backend.memory()
    assert figures.window_filled_tokens == figures.window_tokens == 64
    assert figures.kv_held_bytes <= 64 * 512 * 1.2


def test_weights_that_are_not_numbers_end_in_one_sentence_and_the_backend_lives(
    load_model: Load, tmp_path: Path
) -> None:
    backend = load_model(write_tiny_gguf(tmp_path / "nan.gguf", architecture="llama", fill=float("nan")))
    for _ in range(2):
        with pytest.raises(RingsideError, match="not a number"):
            run(backend, ask("hello"))
        assert backend.memory().position_tokens == 0


@settings(deadline=None)
@given(seed=st.integers(0, 10_000))
def test_every_byte_that_forms_a_character_reaches_the_text(seed: int, tiny_backend: LlamaCppBackend) -> None:
    sampling = Sampling(temperature=2.0, top_k=None, top_p=1.0, seed=seed)
    events = run(tiny_backend, ask("日本", 40, sampling=sampling))
    data = b"".join(tiny_backend._model.piece(token) for token in ids_of(events))
    whole = data.decode("utf-8", "replace")
    text = text_of(events)
    assert whole.startswith(text)
    assert len(whole) - len(text) <= 1, "only a character cut by the end may be missing"


@given(cut=st.integers(1, 17))
def test_a_character_cut_by_the_end_is_completed_by_the_reply_that_continues(
    cut: int, tiny_backend: LlamaCppBackend
) -> None:
    """The whole reply is Japanese, three tokens a character, written by putting it into the history."""
    ids = tuple(tiny_backend._model.encode("日本語です。"))
    messages = (Message("user", "a"), Message("assistant", "", ids[:cut]))
    sampling = Sampling(temperature=0)
    events = run(tiny_backend, ask("", 6, messages=messages, sampling=sampling))
    data = b"".join(tiny_backend._model.piece(token) for token in (*ids[:cut], *ids_of(events)))
    before = b"".join(tiny_backend._model.piece(token) for token in ids[:cut]).decode("utf-8", "ignore")
    assert data.decode("utf-8", "replace").startswith(before + text_of(events))


@pytest.fixture(scope="module")
def tiny_backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaCppBackend]:
    path = write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf", architecture="llama")
    backend = load(LoadRequest("llamacpp", str(path), window=128, num_threads=1), lambda step: None)
    yield backend
    backend.close()


# Drawing


@settings(deadline=None)  # the first draw loads torch
@given(
    seed=st.integers(0, 2**32),
    temperature=st.sampled_from([0.0, 0.3, 1.0, 5.0]),
    top_k=st.sampled_from([None, 1, 5, 40, 10_000]),
    top_p=st.sampled_from([0.0, 0.5, 0.95, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 0.9]),
    penalty=st.sampled_from([1.0, 0.8, 1.3]),
)
def test_equal_logits_give_the_token_that_the_ring_backend_draws(
    seed: int, temperature: float, top_k: int | None, top_p: float, min_p: float, penalty: float
) -> None:
    torch = pytest.importorskip("torch")
    ring_sampling = pytest.importorskip("models.sampling")
    random = np.random.default_rng(seed)
    logits = (random.normal(0, 4, 500)).astype(np.float32)
    recent = [int(token) for token in random.integers(0, 500, 30)]
    sampling = Sampling(temperature, top_k, top_p, min_p, penalty, repetition_window=20)
    uniform = draws.uniform(seed, 0)
    expected = int(ring_sampling.draw(torch.from_numpy(logits.copy()), sampling, uniform, torch.tensor(recent[-20:])))
    sampler = Sampler(sampling, 500, recent)
    assert sampler.draw(logits.copy(), uniform) == expected


@given(
    tokens=st.lists(st.integers(0, 5), max_size=30),
    window=st.one_of(st.none(), st.integers(1, 10)),
)
def test_recent_tokens_are_those_of_the_window(tokens: list[int], window: int | None) -> None:
    kept = tokens if window is None else tokens[-window:]
    assert set(RecentTokens(window, tokens).ids().tolist()) == set(kept)


def test_banned_tokens_are_never_drawn_and_nothing_left_is_an_error() -> None:
    logits = np.array([5.0, 4.0, 3.0], np.float32)
    sampler = Sampler(GREEDY, 3, rules=TokenRules(biases=((0, -np.inf),)))
    assert sampler.draw(logits.copy(), 0.0) == 1
    for bad in (np.nan, np.inf):
        with pytest.raises(RingsideError, match="not a number"):
            sampler.draw(np.array([1.0, bad, 0.0], np.float32), 0.5)
