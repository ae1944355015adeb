"""Loading weights: every fault found before anything is read, every kind of file filled right, memory as said."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from backends.errors import ModelFileError, UnsupportedModelError
from backends.requests import CachePolicy, Precision
from models.decoder import Decoder
from models.gguf_config import parse_gguf_config
from models.gguf_reader import read_gguf
from models.linear import Int8Linear, int8_is_available
from models.model_files import ModelFiles
from models.moe import ExpertLinear
from models.precision import WeightPrecision, choose_precision
from models.ring_cache import KVCache
from models.weights import load_decoder
from tests.backends.tiny_gguf import write_tiny_gguf
from tests.models.tiny_models import TinyModel, random_ids, save_folder, tiny_model

CPU = torch.device("cpu")
FLOAT32 = WeightPrecision(torch.float32)
INT8 = WeightPrecision(torch.float32, is_int8=True)
needs_int8 = pytest.mark.skipif(not int8_is_available(), reason="this torch has no fbgemm")


def write_folder(tiny: TinyModel, folder: Path, change: Callable[[dict[str, Tensor]], None] | None = None) -> Path:
    """A model folder as people have them, its tensors changed at will."""
    folder.mkdir(exist_ok=True)
    save_folder(tiny.stock, folder)
    (folder / "tokenizer.json").write_text("{}")
    if change is not None:
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors")
    return folder


def change_config(folder: Path, values: Mapping[str, Any]) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def load(path: Path, precision: WeightPrecision = FLOAT32) -> tuple[Decoder, int]:
    files = ModelFiles.open(path)
    return load_decoder(files, files.config(), precision, CPU)


def logits(decoder: Decoder, dtype: torch.dtype = torch.float32) -> Tensor:
    with torch.inference_mode():
        cache = KVCache(decoder.config, CachePolicy.AS_TRAINED, 8, 0, dtype=dtype)
        found: Tensor = decoder(random_ids(40), cache, logits="all")
    return found


@pytest.mark.parametrize("family", ["mistral", "gemma3_text", "phi3", "qwen2", "gpt_oss", "mixtral"])
def test_a_folder_is_filled_as_transformers_fills_it(family: str, tmp_path: Path) -> None:
    tiny = tiny_model(family)
    decoder, num_bytes = load(write_folder(tiny, tmp_path / family))
    expected = tiny.expected(random_ids(40))
    torch.testing.assert_close(logits(decoder), expected, atol=1e-4 * float(expected.std()), rtol=1e-4)
    assert num_bytes == sum(parameter.nbytes for parameter in decoder.parameters())


def test_any_number_of_threads_and_any_cut_give_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ModelFiles.open(write_folder(tiny_model("mistral"), tmp_path / "m"))
    expected = logits(load_decoder(files, files.config(), FLOAT32, CPU)[0])
    monkeypatch.setattr("models.weights._SPAN_ELEMENTS", 100)
    monkeypatch.setattr("models.stored_tensor._SLICE_ELEMENTS", 70)
    for precision in (FLOAT32, INT8) if int8_is_available() else (FLOAT32,):
        found = logits(load_decoder(files, files.config(), precision, CPU, num_threads=3)[0])
        if precision is FLOAT32:
            assert torch.equal(found, expected)
        else:
            assert (found - expected).abs().mean() < 0.05 * expected.std()


def test_progress_counts_up_to_every_byte(tmp_path: Path) -> None:
    files = ModelFiles.open(write_folder(tiny_model("mistral"), tmp_path / "m"))
    seen: list[tuple[int, int]] = []
    load_decoder(files, files.config(), FLOAT32, CPU, report=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1] == (files.weights.num_bytes, files.weights.num_bytes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda tensors: tensors.pop("model.layers.1.self_attn.k_proj.weight"),
            r"lacks model\.layers\.1\.self_attn\.k_proj\.weight",
        ),
        (lambda tensors: tensors.pop("lm_head.weight"), r"lacks lm_head\.weight"),
        (
            lambda tensors: tensors.update({"model.layers.0.self_attn.new_proj.weight": torch.zeros(2, 2)}),
            r"holds model\.layers\.0\.self_attn\.new_proj\.weight, which .* do not have",
        ),
        (
            lambda tensors: tensors.update({"model.layers.0.self_attn.q_proj.bias": torch.zeros(32)}),
            r"holds model\.layers\.0\.self_attn\.q_proj\.bias, which its settings say it does not have",
        ),
        (
            lambda tensors: tensors.update({"model.layers.9.input_layernorm.weight": torch.zeros(32)}),
            r"holds model\.layers\.9\.input_layernorm\.weight",
        ),
        (
            lambda tensors: tensors.update({"model.norm.weight": torch.zeros(31)}),
            r"stores model\.norm\.weight in shape \(31,\); its settings ask for \(32,\)",
        ),
    ],
    ids=["missing", "no head", "unknown", "surplus bias", "surplus layer", "shape"],
)
def test_faults_are_named_before_anything_is_read(
    change: Callable[[dict[str, Tensor]], None], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_folder(tiny_model("mistral"), tmp_path / "m", change)
    monkeypatch.setattr("models.stored_tensor.StoredTensor.read_into", lambda *arguments: pytest.fail("it read"))
    with pytest.raises(ModelFileError, match=message):
        load(folder)


def test_eight_bit_floats_are_refused_by_name(tmp_path: Path) -> None:
    name = "model.layers.0.mlp.up_proj.weight"

    def change(tensors: dict[str, Tensor]) -> None:
        tensors[name] = tensors[name].to(torch.float8_e4m3fn)

    with pytest.raises(UnsupportedModelError, match=rf"stores {name} as F8_E4M3"):
        load(write_folder(tiny_model("mistral"), tmp_path / "m", change))


def test_a_bias_that_only_queries_have_is_used_and_the_others_count_as_zero(tmp_path: Path) -> None:
    def drop(tensors: dict[str, Tensor]) -> None:
        for name in [name for name in tensors if name.endswith(("k_proj.bias", "v_proj.bias"))]:
            del tensors[name]

    def zero(tensors: dict[str, Tensor]) -> None:
        for name in [name for name in tensors if name.endswith(("k_proj.bias", "v_proj.bias"))]:
            tensors[name].zero_()

    tiny = tiny_model("qwen2")
    expected = logits(load(write_folder(tiny, tmp_path / "zero", zero))[0])
    dropped = write_folder(tiny, tmp_path / "drop", drop)
    assert torch.equal(logits(load(dropped)[0]), expected)
    assert not torch.equal(expected, logits(tiny.decoder))
    if int8_is_available():
        assert (logits(load(dropped, INT8)[0]) - expected).abs().mean() < 0.05 * expected.std()


def test_a_tied_model_uses_a_head_of_its_own_only_where_it_differs(tmp_path: Path) -> None:
    tiny = tiny_model("gemma3_text")
    embed = "model.embed_tokens.weight"

    def repeat(tensors: dict[str, Tensor]) -> None:
        tensors["lm_head.weight"] = tensors[embed].clone()

    def differ(tensors: dict[str, Tensor]) -> None:
        tensors["lm_head.weight"] = -tensors[embed]

    tied, _ = load(write_folder(tiny, tmp_path / "tied"))
    repeated, repeated_bytes = load(write_folder(tiny, tmp_path / "repeated", repeat))
    different, different_bytes = load(write_folder(tiny, tmp_path / "different", differ))
    assert tied.head is None
    assert repeated.head is None
    assert torch.equal(logits(repeated), logits(tied))
    torch.testing.assert_close(logits(different), -logits(tied))
    assert different_bytes == repeated_bytes + tied.embed.weight.nbytes


@needs_int8
@pytest.mark.parametrize("family", ["gemma3_text", "qwen2", "cohere2", "phi3", "mixtral", "qwen3_moe", "gpt_oss"])
def test_int8_is_close_to_float32(family: str, tmp_path: Path) -> None:
    tiny = tiny_model(family)
    decoder, num_bytes = load(write_folder(tiny, tmp_path / family), INT8)
    expected = logits(tiny.decoder)
    assert (logits(decoder) - expected).abs().mean() < 0.1 * expected.std()
    floats = [name for name, module in decoder.named_modules() if isinstance(module, (nn.Linear, ExpertLinear))]
    assert all(name.endswith(".moe.router") for name in floats)
    linears = [module for module in decoder.modules() if isinstance(module, Int8Linear)]
    assert num_bytes == sum(linear.nbytes for linear in linears) + sum(p.nbytes for p in decoder.parameters())


@needs_int8
@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe"])
def test_experts_in_int8_diverge_no_more_than_in_bfloat16(family: str, tmp_path: Path) -> None:
    folder = write_folder(tiny_model(family), tmp_path / family)
    exact = logits(load(folder)[0]).double().log_softmax(dim=-1)
    divergence = []
    for precision in (INT8, WeightPrecision(torch.bfloat16)):
        found = logits(load(folder, precision)[0], precision.dtype).double().log_softmax(dim=-1)
        divergence.append(float((exact.exp() * (exact - found)).sum(dim=-1).mean()))
    assert 0 < divergence[0] < min(0.02, 2 * divergence[1])


@needs_int8
def test_an_int8_embedding_gives_the_rows_of_the_file(tmp_path: Path) -> None:
    tiny = tiny_model("gemma3_text")
    decoder, _ = load(write_folder(tiny, tmp_path / "m"), INT8)
    tokens = torch.tensor([[5, 0, 96], [5, 5, 1]])
    assert torch.equal(decoder.embed(tokens), tiny.decoder.embed(tokens))
    assert not list(decoder.embed.parameters()), "the table stays in the file"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_are_held_in_the_type_that_was_asked_for(dtype: torch.dtype, tmp_path: Path) -> None:
    decoder, num_bytes = load(write_folder(tiny_model("mistral"), tmp_path / "m"), WeightPrecision(dtype))
    assert {parameter.dtype for parameter in decoder.parameters()} == {dtype}
    assert num_bytes == 2 * sum(parameter.numel() for parameter in decoder.parameters())
    assert logits(decoder, dtype).dtype == dtype


def test_a_weight_of_the_wrong_shape_is_named_with_its_shard(tmp_path: Path) -> None:
    folder = write_folder(tiny_model("mistral"), tmp_path / "m")
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    norm = {"model.norm.weight": tensors.pop("model.norm.weight")[:-1].contiguous()}
    save_file(norm, folder / "model-00001-of-00002.safetensors")
    save_file(tensors, folder / "model-00002-of-00002.safetensors")
    with pytest.raises(ModelFileError, match=r"model-00001-of-00002\.safetensors stores model\.norm\.weight in shape"):
        load(folder)


@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_a_gguf_file_without_a_weight_is_told_by_the_name_it_has_there(tmp_path: Path, architecture: str) -> None:
    whole = read_gguf(write_tiny_gguf(tmp_path / "whole.gguf", architecture))
    for name in ("blk.1.attn_k.weight", "blk.2.ffn_norm.weight", "output_norm.weight", "token_embd.weight"):
        files = ModelFiles.open(whole.path)
        assert files.gguf is not None
        del files.gguf.tensors[name]
        with pytest.raises(ModelFileError, match=rf"whole\.gguf lacks {re.escape(name)}\."):
            load_decoder(files, parse_gguf_config(whole), FLOAT32, CPU)


def test_a_config_of_another_model_is_refused(tmp_path: Path) -> None:
    folder = write_folder(tiny_model("mistral"), tmp_path / "m")
    change_config(folder, {"num_hidden_layers": 4})
    with pytest.raises(ModelFileError, match=r"lacks model\.layers\.3\..* and \d+ more"):
        load(folder)


@pytest.mark.parametrize(
    ("requested", "encodings", "label", "notices"),
    [
        ("auto", {"F32"}, "float32", 0),
        ("auto", {"BF16"}, "bfloat16", 0),
        ("auto", {"BF16", "F32"}, "bfloat16", 0),
        ("auto", {"F16"}, "bfloat16", 1),
        ("float16", {"F32"}, "bfloat16", 1),
        ("float32", {"Q4_K", "F32"}, "float32", 0),
        ("bfloat16", {"Q4_K", "F32"}, "bfloat16", 0),
    ],
)
def test_precision_on_a_cpu_is_one_that_runs(
    requested: Precision, encodings: set[str], label: str, notices: int
) -> None:
    precision = choose_precision(requested, encodings, CPU)
    assert (precision.label, len(precision.notices)) == (label, notices)


@needs_int8
@pytest.mark.parametrize("encodings", [{"Q4_K", "F32"}, {"Q8_0", "F16"}, {"IQ4_XS"}])
def test_quantised_files_are_held_in_int8_on_a_cpu(encodings: set[str]) -> None:
    assert choose_precision("auto", encodings, CPU).is_int8


def test_int8_without_its_kernels_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.precision.int8_is_available", lambda: False)
    with pytest.raises(UnsupportedModelError, match="no int8 kernels"):
        choose_precision("int8", {"F32"}, CPU)
    assert choose_precision("auto", {"Q4_K"}, CPU).label == "bfloat16"
