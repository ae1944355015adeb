"""Slots, bytes and sentences of the page before a model is loaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from backends.requests import CachePolicy, LoadRequest
from models.backend_support import _RING_GGUF_ENCODINGS, runnable_by, slides_in_llamacpp
from models.cache_plan import layer_limits
from models.config import LayerConfig, ModelConfig
from models.gguf_weights import _BLOCK_TYPES, _PLAIN_TYPES
from models.model_files import ModelFiles, WeightSizes
from models.precision import choose_precision
from models.sizing import (
    Estimate,
    estimate,
    held_weights_bytes,
    kv_bytes,
    kv_bytes_per_token,
    kv_element_bytes,
    kv_held_bytes,
    layer_slots,
    request_bytes_per_token,
)
from models.weights import load_decoder
from tests.models.gguf_files import write_gguf
from tests.models.test_gguf_config import GGUF
from tests.models.test_model_files import write_folder, write_model

RING, AS_TRAINED, FULL = CachePolicy.RING, CachePolicy.AS_TRAINED, CachePolicy.FULL
WINDOWS = st.lists(st.one_of(st.none(), st.integers(1, 5000)), min_size=1, max_size=8)


def model(*windows: int | None, architecture: str = "gemma3", context_tokens: int | None = None) -> ModelConfig:
    return ModelConfig(
        architecture=architecture,
        vocab_size=97,
        hidden_size=64,
        mlp_size=48,
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        layers=tuple(LayerConfig(window, None) for window in windows),
        context_tokens=context_tokens,
    )


def test_slots_of_each_policy() -> None:
    config = model(512, None)
    assert layer_slots(config, RING, 1024, 4, 5000) == (512, 1028)
    assert layer_slots(config, RING, 256, 4, 5000) == (260, 260)  # cut below 512, it gets sinks too
    assert layer_slots(config, RING, 510, 4, 5000) == (512, 514)  # no more than it was trained with
    assert layer_slots(config, AS_TRAINED, 1024, 4, 5000) == (512, 5000)
    assert layer_slots(config, FULL, 1024, 4, 5000) == (5000, 5000)


def test_bytes_by_hand() -> None:
    """The real Gemma at W = 512, S = 4: 15 sliding layers, 3 full ones, one head of 256, float32."""
    gemma = replace(model(*([512] * 15), None, None, None), num_kv_heads=1, head_dim=256)
    assert kv_bytes(gemma, RING, 512, 4, 10**6, 4) == 2 * 256 * 4 * (15 * 512 + 3 * 516)
    assert kv_bytes_per_token(gemma, 2) == 18 * 2 * 256 * 2


def test_coded_bytes_by_hand() -> None:
    """One byte a number and two for each head's scale; sinks plain. llama.cpp's q8_0: 34 bytes for 32 numbers."""
    gemma = replace(model(*([512] * 15), None, None, None), num_kv_heads=1, head_dim=256)
    for kv_type in ("int8", "fp8"):
        assert kv_bytes(gemma, RING, 512, 4, 10**6, 4, kv_type) == 2 * (18 * 512 * 258 + 3 * 4 * 256 * 4)
        assert kv_bytes_per_token(gemma, 4, kv_type) == 18 * 2 * 258
    request = LoadRequest("llamacpp", "m", kv_type="int8")
    assert request_bytes_per_token(gemma, request, 2) == 18 * 2 * 272


def test_an_estimate_counts_codes_where_they_are_asked_for() -> None:
    config = model(512, None)
    plain, coded = ask(config), ask(config, kv_type="int8")
    assert coded.kv_bytes == kv_bytes(config, RING, 512, 4, 0, 4, "int8")
    assert coded.kv_full_bytes[10**6] == kv_bytes_per_token(config, 4, "int8") * 10**6 < plain.kv_full_bytes[10**6] / 3


@given(windows=WINDOWS, window=st.integers(1, 5000), sinks=st.integers(0, 64), policy=st.sampled_from(CachePolicy))
def test_slots_are_those_the_ring_cache_plans(
    windows: list[int | None], window: int, sinks: int, policy: CachePolicy
) -> None:
    config, tokens = model(*windows), 12_345
    limits = layer_limits(config, policy, window, sinks)
    planned = tuple(tokens if limit.slots is None else limit.slots for limit in limits)
    assert layer_slots(config, policy, window, sinks, tokens) == planned


@given(windows=WINDOWS, window=st.integers(1, 5000), sinks=st.integers(0, 64), tokens=st.integers(0, 10**7))
def test_a_ring_never_grows_and_never_holds_more_than_it_has(
    windows: list[int | None], window: int, sinks: int, tokens: int
) -> None:
    config = model(*windows)
    assert kv_bytes(config, RING, window, sinks, tokens, 2) == kv_bytes(config, RING, window, sinks, 0, 2)
    for policy in CachePolicy:
        held = kv_held_bytes(config, policy, window, sinks, tokens, 2)
        assert held <= kv_bytes(config, policy, window, sinks, tokens, 2)
        assert held <= kv_held_bytes(config, FULL, window, sinks, tokens, 2) == kv_bytes_per_token(config, 2) * tokens


def ask(
    config: ModelConfig | None, template: bool = True, free_bytes: int | None = None, **request: object
) -> Estimate:
    fields: dict[str, Any] = {"backend": "ring", "model": "m", "window": 512, **request}
    load = LoadRequest(**fields)
    return estimate(config, 1000, load, has_chat_template=template, free_bytes=free_bytes)


def test_an_estimate_compares_the_policy_with_a_cache_that_keeps_everything() -> None:
    config = model(512, None)
    result = ask(config)
    assert result.weights_bytes == 1000
    assert result.kv_bytes == kv_bytes(config, RING, 512, 4, 0, 4)
    assert result.kv_full_bytes == {tokens: kv_bytes_per_token(config, 4) * tokens for tokens in (10**4, 10**5, 10**6)}
    assert set(result.kv_policy_bytes.values()) == {result.kv_bytes}
    assert result.fits is None
    grows = ask(config, policy=AS_TRAINED).kv_policy_bytes
    assert grows[10**6] > grows[10**5] > grows[10**4] > result.kv_bytes


@pytest.mark.parametrize("free_bytes", [1000, 1001, 10**6, 10**6 + 511])
def test_the_length_at_which_a_full_cache_no_longer_fits_is_the_first_such_length(free_bytes: int) -> None:
    config = model(512, None)
    tokens = ask(config, free_bytes=free_bytes).full_cache_outgrows_at_tokens
    assert tokens is not None
    each = kv_bytes_per_token(config, 4)
    assert 1000 + tokens * each > free_bytes >= 1000 + (tokens - 1) * each


def test_what_does_not_fit_is_said_first() -> None:
    result = ask(model(None), free_bytes=5000)
    assert result.fits is False
    assert result.warnings[0].startswith("It does not fit: ")
    assert ask(model(None), free_bytes=10**9).fits is True


@pytest.mark.parametrize(
    ("config", "request_", "said"),
    [
        (
            model(512, None),
            {},
            "1 of 2 layers were trained with full attention; bounded to the first 4 and the last 512",
        ),
        (model(None, None), {}, "This is not a sliding-window model: all its layers were trained with full attention"),
        (model(None), {"sinks": 0}, "Without sinks"),
        (
            model(512, None),
            {"window": 1024},
            "exceeds the 512 tokens the sliding layers were trained with: only the full",
        ),
        (model(512), {"window": 1024}, "a wider one changes nothing"),
        (model(512), {"window": 64}, "below the 512 tokens the sliding layers were trained with"),
        (model(512), {"window": 64, "backend": "llamacpp"}, "llama.cpp keeps 512"),
        (model(512, None), {"window": 64, "backend": "llamacpp"}, "bounded to the first 4 and the last 512"),
        (model(512, None), {"window": 64, "backend": "ring"}, "bounded to the first 4 and the last 64"),
        (model(512), {"window": 64, "sinks": 0}, "Layers cut that far need sinks"),
        (model(512), {"kv_type": "fp8"}, "Keys and values are rounded to fp8"),
        (model(512), {"kv_type": "fp8", "backend": "llamacpp"}, "llama.cpp has no fp8"),
        (model(None, context_tokens=256), {}, "exceeds the 256 tokens the model was trained for"),
        (model(8, 8, architecture="llama"), {"backend": "llamacpp"}, "llama.cpp does not slide llama models"),
        (model(8, 8, architecture="phi3"), {"backend": "llamacpp"}, "llama.cpp does not slide phi3 models"),
    ],
)
def test_what_a_person_should_know(config: ModelConfig, request_: dict[str, Any], said: str) -> None:
    assert any(said in warning for warning in ask(config, **request_).warnings)


def test_a_base_model_only_continues_text() -> None:
    assert any("continues your text" in warning for warning in ask(model(512), template=False).warnings)


def test_there_is_nothing_to_warn_of_at_the_trained_window() -> None:
    assert ask(model(512, 512)).warnings == ()
    assert ask(model(512, 512), window=508).warnings == ()  # with 4 sinks as many slots as it was trained with
    assert ask(model(512, None), policy=AS_TRAINED).warnings == ()
    assert ask(model(512, 512), backend="llamacpp").warnings == ()


def test_an_architecture_unknown_here_has_weights_but_no_cache_figures() -> None:
    result = ask(None, free_bytes=2000, backend="llamacpp")
    assert (result.kv_bytes, result.kv_full_bytes, result.full_cache_outgrows_at_tokens) == (None, {}, None)
    assert result.fits is True


def test_llama_cpp_keeps_its_own_number_of_cells() -> None:
    """768 cells for 512 + 4 + a block to drop; sliding layers hold pad(512 + 128); a cell takes 128 bytes."""
    sliding = model(512, None)
    assert ask(sliding, backend="llamacpp").kv_bytes == (768 + 768) * 2 * 2 * 16 * 2
    assert ask(model(512, None, architecture="llama"), backend="llamacpp", window=64).kv_bytes == 2 * 256 * 128
    assert ask(sliding, backend="llamacpp", window=4096).kv_bytes == (4352 + 768) * 128


@pytest.mark.parametrize(
    ("architecture", "num_layers", "slides"),
    [("gemma3", 18, True), ("gpt-oss", 24, True), ("exaone4", 64, True), ("exaone4", 30, False)]
    + [(name, 32, False) for name in ("llama", "mistral3", "qwen2", "qwen3", "phi3", "starcoder2", "smollm3")],
)
def test_which_architectures_llama_cpp_slides(architecture: str, num_layers: int, slides: bool) -> None:
    assert slides_in_llamacpp(architecture, num_layers) is slides


def test_who_can_run_what(tmp_path: Path) -> None:
    both = runnable_by(ModelFiles.open(write_model(tmp_path / "llama.gguf")))
    assert both == {"ring": None, "llamacpp": None}
    strange = runnable_by(ModelFiles.open(write_model(tmp_path / "mamba.gguf", "mamba")))
    assert strange["llamacpp"] is None
    assert "'mamba'" in str(strange["ring"])
    folder = runnable_by(ModelFiles.open(write_folder(tmp_path / "folder")))
    assert folder["ring"] is None
    assert "GGUF files only" in str(folder["llamacpp"])
    adapter = write_model(tmp_path / "adapter.gguf", changes={"general.type": "adapter"})
    assert all(reason is not None for reason in runnable_by(ModelFiles.open(adapter)).values())


def test_encodings_the_ring_backend_cannot_read_are_named(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "folder")
    save_file({"b": np.ones((2, 4), np.uint8), "c": np.ones(2, np.int64)}, folder / "model-00002-of-00002.safetensors")
    assert "stores weights as U8" in str(runnable_by(ModelFiles.open(folder))["ring"])


def test_the_ring_backend_reads_every_encoding_said_to_be_readable() -> None:
    assert set(_PLAIN_TYPES) | _BLOCK_TYPES == _RING_GGUF_ENCODINGS


@pytest.mark.parametrize("precision", ["auto", "float32", "bfloat16", "float16", "int8"])
@pytest.mark.parametrize(
    "encodings", [("F32",), ("F32", "F16"), ("BF16",), ("BF16", "F32"), ("Q4_K", "F32"), ("Q8_0",), ("MXFP4", "Q8_0")]
)
def test_sizes_follow_how_the_ring_backend_holds_weights(precision: Any, encodings: tuple[str, ...]) -> None:
    held = choose_precision(precision, encodings, torch.device("cpu"))
    request = LoadRequest("ring", "m", precision=precision)
    assert kv_element_bytes(request, on_gpu=False, encodings=encodings) == held.dtype.itemsize
    sizes = WeightSizes(num_bytes=500, num_elements=1000, encodings=dict.fromkeys(encodings, 1))
    files = ModelFiles("gguf", Path("m.gguf"), (), None, sizes)
    assert held_weights_bytes(files, request, on_gpu=False) == 1000 * (1 if held.is_int8 else held.dtype.itemsize)


def test_16_bits_on_a_gpu_and_in_llama_cpp() -> None:
    assert kv_element_bytes(LoadRequest("ring", "m"), on_gpu=True) == 2
    assert kv_element_bytes(LoadRequest("ring", "m", precision="float32"), on_gpu=True) == 4
    assert kv_element_bytes(LoadRequest("llamacpp", "m", precision="float32"), on_gpu=False) == 2


def test_experts_are_held_in_int8_and_a_lookup_table_not_at_all(tmp_path: Path) -> None:
    tensors = {
        "token_embd.weight": np.zeros((97, 64)),
        "output.weight": np.zeros((97, 64)),
        "blk.0.ffn_up_exps.weight": np.zeros((4, 8, 64)),
        "blk.0.attn_q.weight": np.zeros((64, 64)),
    }
    files = ModelFiles.open(write_gguf(tmp_path / "moe.gguf", "llama", GGUF, tensors))
    assert files.weights.lookup_elements == 97 * 64
    request = LoadRequest("ring", "m", precision="int8")
    assert held_weights_bytes(files, request, on_gpu=False) == 97 * 64 + 64 * 64 + 4 * 8 * 64
    assert held_weights_bytes(files, LoadRequest("llamacpp", "m"), on_gpu=False) == files.weights.num_bytes


@pytest.mark.real_model
def test_the_weights_take_what_was_estimated(smollm2_path: Path) -> None:
    files = ModelFiles.open(smollm2_path)
    device = torch.device("cpu")
    _, held_bytes = load_decoder(
        files, files.config(), choose_precision("auto", files.weights.encodings, device), device
    )
    assert held_bytes == pytest.approx(held_weights_bytes(files, LoadRequest("ring", "m"), on_gpu=False), rel=0.02)


@pytest.mark.real_model
def test_what_is_said_of_the_real_gemma(gemma_path: Path) -> None:
    files = ModelFiles.open(gemma_path)
    assert files.weights.num_elements == 268_098_176
    assert files.stored_as == "Q4_K_M"
    assert runnable_by(files) == {"ring": None, "llamacpp": None}
