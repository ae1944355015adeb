"""Estimates: every number against a count by hand, every piece of advice with the numbers it rests on."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli import cli
from app.proof import estimate_check, machine
from app.proof.advice import advice
from app.proof.estimate import Surroundings, default_windows, figure, layer_kinds, outlook
from app.proof.estimate_report import report
from backends.registry import BACKENDS
from backends.requests import CachePolicy, LoadRequest
from models.config import LayerConfig, ModelConfig
from models.model_files import ModelFiles
from tests.backends.tiny_gguf import write_tiny_gguf

SLIDING, FULL = LayerConfig(trained_window=64, rope=None), LayerConfig(trained_window=None, rope=None)
CONFIG = ModelConfig(
    architecture="gemma3",
    vocab_size=100,
    hidden_size=32,
    mlp_size=64,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    layers=(SLIDING, SLIDING, FULL),
    context_tokens=1024,
)
ROW_BYTES = 2 * 2 * 8 * 4  # keys and values, 2 heads of 8 numbers, float32
REQUEST = LoadRequest("ring", "model.gguf", window=128, sinks=4)


def test_layer_kinds_count_what_one_token_takes_in_each() -> None:
    sliding, full = layer_kinds(CONFIG, bytes_per_token=3 * ROW_BYTES)
    assert (sliding.num_layers, sliding.window, sliding.bytes_per_token) == (2, 64, 2 * ROW_BYTES)
    assert (full.num_layers, full.window, full.bytes_per_token) == (1, None, ROW_BYTES)


def test_the_table_always_has_the_trained_and_the_chosen_window() -> None:
    assert default_windows(CONFIG, chosen=300) == [64, 128, 256, 300, 512, 1024]


def test_the_plot_shows_ring_below_as_trained_below_full_and_only_the_ring_ends_flat() -> None:
    ring, as_trained, full = (trace["y"] for trace in figure(CONFIG, REQUEST, longest=10_000).data)
    assert ring[-1] == ring[-2] == (64 + 64 + 132) * ROW_BYTES
    assert as_trained[-1] == (64 + 64 + 10_000) * ROW_BYTES
    assert full[-1] == 3 * 10_000 * ROW_BYTES


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (80, "No ring is needed for 80 tokens.*30.0 KiB, the ring at W = 128 32.5 KiB; they are even at 87 tokens"),
        (1000, "For 1,000 tokens the ring saves 342 KiB, little beside weights of 95.4 MiB"),
        (1_000_000, "Short answers need no ring: up to 87 tokens"),
        (None, "Short answers need no ring: up to 87 tokens"),
    ],
)
def test_advice_against_a_ring_names_its_numbers(tokens: int | None, words: str) -> None:
    sentence = advice(CONFIG, REQUEST, weights_bytes=100_000_000, element_bytes=4, expected_tokens=tokens)[0]
    assert re.search(words, sentence), sentence


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ((SLIDING, FULL), "its full-attention layer forgets it. The policy 'as trained' keeps it, at 128 B a token"),
        ((FULL, FULL), "its 2 full-attention layers forget it. The policy 'full' keeps it, at 256 B a token"),
        ((SLIDING, SLIDING), "All 2 layers slide: no cache lets the model look back further than 64 tokens"),
    ],
)
def test_what_a_ring_forgets_depends_on_the_kinds_of_layers(layers: tuple[LayerConfig, ...], words: str) -> None:
    config = replace(CONFIG, layers=layers)
    assert words in advice(config, REQUEST, 100_000_000, 4, expected_tokens=None)[-1]


def test_the_real_gemma_is_estimated_to_the_byte_of_its_shape(gemma_path: Path) -> None:
    files = ModelFiles.open(gemma_path)
    request = LoadRequest("llamacpp", str(gemma_path), policy=CachePolicy.RING, window=512, sinks=4)
    found = outlook(files, request, Surroundings(free_bytes=2**33, runtime_bytes=100, has_chat_template=False))
    sliding, full = found.kinds
    assert (sliding.num_layers, sliding.window, full.num_layers) == (15, 512, 3)
    assert sliding.bytes_per_token + full.bytes_per_token == 18 * 2 * 256 * 2
    growing = replace(request, policy=CachePolicy.FULL)
    assert outlook(files, growing, Surroundings()).kv_bytes == 32_768 * 18 * 2 * 256 * 2
    assert found.full_ends_at_tokens is not None
    fixed = found.weights_bytes + found.buffers_bytes + 100
    assert found.full_ends_at_tokens == (2**33 - fixed) // (18 * 2 * 256 * 2) + 1
    assert any("no chat template" in sentence for sentence in found.sentences)


def test_a_report_names_total_and_the_end_of_a_full_cache(gemma_path: Path) -> None:
    files = ModelFiles.open(gemma_path)
    found = outlook(files, replace(REQUEST, model=str(gemma_path)), Surroundings(free_bytes=2**33))
    shown = report(found, files.config())
    assert f"at {found.full_ends_at_tokens:,} tokens" in shown.sentences[0]
    assert shown.results["total_bytes"] == found.total_bytes
    assert [row[0] for row in shown.tables[2].rows].count("128 *") == 1


def test_the_libraries_of_a_backend_are_measured_in_a_process_without_a_model() -> None:
    measured = machine.runtime_bytes("echo")
    assert measured is not None
    assert 5_000_000 < measured < 200_000_000


def test_the_machine_s_record_names_processor_memory_and_versions() -> None:
    found = machine.describe()
    assert {"cpu", "cores", "memory", "system", "python", "numpy"} <= set(found)
    assert all(found.values())


@pytest.mark.real_model
@pytest.mark.parametrize("backend", ["llamacpp", "ring"])
def test_the_estimate_is_within_a_tenth_of_the_process_and_two_per_cent_of_the_cache(
    gemma_path: Path, backend: str
) -> None:
    if missing := BACKENDS[backend].missing_libraries():
        pytest.skip(f"{missing} not installed")
    load = LoadRequest(backend, str(gemma_path), window=512, num_threads=1)
    around = Surroundings(runtime_bytes=machine.runtime_bytes(backend))
    expected = outlook(ModelFiles.open(gemma_path), load, around)
    *_, measured = estimate_check.run(load)
    figures = estimate_check.checked(expected, measured)
    assert [each.name for each in figures if each.is_kept] == [
        "Keys and values",
        "Process, at the end",
        "Process, at its peak",
    ]


def test_a_miss_is_named_and_so_is_what_was_not_measured() -> None:
    figures = (
        estimate_check.Checked("Keys and values", 100, 103, 0.02),
        estimate_check.Checked("Process", 100, 109, 0.1),
        estimate_check.Checked("Other", 100, None, 0.1),
    )
    rows = estimate_check.check_table(figures).rows
    assert [row[3:] for row in rows] == [("+3.0%", "2%: missed"), ("+9.0%", "10%: kept"), ("", "10%: unknown")]


@pytest.mark.parametrize("policy", CachePolicy)
def test_the_command_puts_what_it_measures_beside_the_estimate(policy: CachePolicy, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    path = write_tiny_gguf(tmp_path / "tiny.gguf", sliding_window=32, sliding_pattern=2)
    options = ["-w", "64", "-p", policy.value, "--threads", "1", "--check", "--json"]
    result = CliRunner().invoke(cli, ["estimate", str(path), *options])
    assert result.exit_code == 0, result.output
    check = json.loads(result.stdout.splitlines()[-1])
    assert check["event"] == "check"
    assert {each["name"]: each["is_kept"] for each in check["figures"]}["Keys and values"] is True
    assert "in a fresh worker" in check["note"]


def test_of_room_that_is_only_asked_for_nothing_is_promised_of_the_process(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp")
    path = write_tiny_gguf(tmp_path / "tiny.gguf", sliding_window=32, sliding_pattern=2)
    options = ["-b", "llamacpp", "-w", "64", "-p", "full", "--threads", "1", "--check", "--json"]
    result = CliRunner().invoke(cli, ["estimate", str(path), *options])
    assert result.exit_code == 0, result.output
    check = json.loads(result.stdout.splitlines()[-1])
    kept = {each["name"]: each["is_kept"] for each in check["figures"]}
    assert (kept["Keys and values"], kept["Process, at its peak"]) == (True, None)
    assert "Room for 32,768 is asked for at once" in check["note"]
