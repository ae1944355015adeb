"""The same weights as a GGUF file and as a safetensors folder, per family, each read by the loader of people's files.

Rows of q and k that converters reorder, norms they add one to, experts they stack, frequencies they store as a table:
each of these undone wrongly loads cleanly and then writes noise.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from models import weight_names
from models.gguf_reader import read_gguf
from tests.models.converted_models import GGUF_FORMS, convert, tiny_model_for_gguf
from tests.models.family_checks import gguf_error
from tests.models.tiny_models import save_folder

BOUND = 1e-3


@pytest.mark.parametrize("family", GGUF_FORMS)
def test_both_files_give_the_same_logits(family: str) -> None:
    assert gguf_error(family) < BOUND


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "cohere2", "glm4"])
def test_both_files_give_the_same_logits_where_the_gguf_file_holds_blocks_of_8_bits(family: str) -> None:
    assert gguf_error(family, "Q8_0") < BOUND


def test_the_files_hold_what_makes_the_difference(tmp_path: Path) -> None:
    for family in ("llama", "gemma3_text"):
        tiny = tiny_model_for_gguf(family)
        assert tiny.config.num_kv_heads != tiny.config.num_heads
        tensors = save_folder(tiny.stock, tmp_path / family)
        file = read_gguf(convert(family, tiny, tensors, tmp_path / f"{family}.gguf"))
        if family == "llama":
            divisors = torch.frombuffer(bytearray(file.data(file.tensors["rope_freqs.weight"])), dtype=torch.float32)
            assert float(divisors.min()) == 1.0
            assert float(divisors.max()) == 8.0
        else:
            stored = torch.frombuffer(bytearray(file.data(file.tensors["output_norm.weight"])), dtype=torch.float32)
            assert torch.equal(stored, tensors["model.norm.weight"] + 1)


@pytest.mark.parametrize("family", ["llama", "granite", "smollm3", "ministral3"])
def test_the_check_sees_queries_and_keys_left_in_the_order_of_the_file(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weight_names, "GGUF_PAIRED_ARCHITECTURES", frozenset())
    assert gguf_error(family) > 100 * BOUND


def test_the_check_sees_an_order_undone_that_the_file_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_names, "GGUF_PAIRED_ARCHITECTURES", frozenset({"qwen2"}))
    assert gguf_error("qwen2") > 100 * BOUND


@pytest.mark.parametrize("family", ["gemma2", "gemma3_text"])
def test_the_check_sees_norms_read_without_the_one_that_the_file_adds(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = weight_names.gguf_parts

    def without_offset(name: str, *arguments: object) -> object:
        parts = original(name, *arguments)  # type: ignore[arg-type]
        return parts and tuple(weight_names.Part(part.parameter) for part in parts)

    monkeypatch.setattr("models.weights.gguf_parts", without_offset)
    assert gguf_error(family) > 100 * BOUND
