"""MXFP4 weights of safetensors folders: transformers' own numbers, the loader, and broken pairs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from backends.errors import ModelFileError
from backends.requests import CachePolicy
from models.backend_support import runnable_by
from models.linear import int8_is_available
from models.model_files import ModelFiles
from models.precision import WeightPrecision, choose_precision
from models.ring_cache import KVCache
from models.safetensors_weights import safetensors_tensors
from models.weights import load_decoder
from tests.models.tiny_models import WINDOW, pieces, random_ids

EXPERTS, HIDDEN, INNER = 4, 64, 32
"""Blocks of 32 numbers: two a row of gate and up, one a row of down."""


def packed(*shape: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Random blocks [.., 16] and scales around one."""
    generator = torch.Generator().manual_seed(seed)
    blocks = torch.randint(0, 256, (*shape, 16), dtype=torch.uint8, generator=generator)
    scales = torch.randint(122, 127, shape, dtype=torch.uint8, generator=generator)
    return blocks, scales


@pytest.mark.parametrize("shape", [(EXPERTS, 2 * INNER, 2), (1, 1, 1), (3, 5, 7)])
def test_numbers_are_those_of_transformers(tmp_path: Path, shape: tuple[int, ...]) -> None:
    blocks, scales = packed(*shape)
    save_file({"x_blocks": blocks, "x_scales": scales}, tmp_path / "m.safetensors")
    ((name, tensor),) = safetensors_tensors([tmp_path / "m.safetensors"]).items()
    expected = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32).transpose(1, 2)
    assert (name, tensor.encoding, tensor.shape) == ("x_blocks", "MXFP4", expected.shape)
    assert torch.equal(tensor.whole(), expected)
    assert torch.equal(tensor.part(0, 1).whole(), expected[:1])
    assert torch.equal(tensor.whole().bfloat16().float(), expected)  # nothing is lost in 16 bits
    assert tensor.num_bytes == blocks.nbytes + scales.nbytes


def test_every_scale_and_every_byte_is_read_as_transformers_does(tmp_path: Path) -> None:
    blocks = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16)
    for start in range(0, 255, 15):  # 255 is no number in this format
        scales = (torch.arange(16, dtype=torch.int16) + start).clamp(max=254).to(torch.uint8).reshape(1, 1, 16)
        save_file({"x_blocks": blocks, "x_scales": scales}, tmp_path / "m.safetensors")
        tensor = safetensors_tensors([tmp_path / "m.safetensors"])["x_blocks"]
        expected = convert_moe_packed_tensors(blocks, scales, dtype=torch.float64).transpose(1, 2).float()
        assert torch.equal(tensor.whole(), expected)


def test_pairs_are_found_across_shards(tmp_path: Path) -> None:
    blocks, scales = packed(2, 3, 2)
    save_file({"x_blocks": blocks}, tmp_path / "1.safetensors")
    save_file({"x_scales": scales}, tmp_path / "2.safetensors")
    tensors = safetensors_tensors([tmp_path / "1.safetensors", tmp_path / "2.safetensors"])
    assert tensors["x_blocks"].whole().shape == (2, 3, 64)


def test_half_a_pair_or_a_pair_that_does_not_match_is_refused_by_name(tmp_path: Path) -> None:
    blocks, scales = packed(2, 3, 2)
    file = tmp_path / "m.safetensors"
    for tensors, message in (
        ({"x_blocks": blocks}, r"m\.safetensors holds x_blocks, but x_scales is missing"),
        ({"x_scales": scales}, r"m\.safetensors holds x_scales, but x_blocks is missing"),
        ({"x_blocks": blocks, "x_scales": scales[:1].clone()}, r"stores x_blocks as U8 .* scales as U8 \(1, 3, 2\)"),
        ({"x_blocks": blocks, "x_scales": scales.float()}, "scales as F32"),
    ):
        save_file(tensors, file)
        with pytest.raises(ModelFileError, match=message):
            safetensors_tensors([file])


@pytest.fixture(scope="module")
def stock() -> torch.nn.Module:
    """A tiny gpt-oss whose experts hold nothing but MXFP4 numbers."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "gpt_oss",
        vocab_size=97,
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        sliding_window=WINDOW,
        num_local_experts=EXPERTS,
        num_experts_per_tok=2,
        initializer_range=0.2,
        layer_types=["sliding_attention", "full_attention"],
    )
    model: torch.nn.Module = AutoModelForCausalLM.from_config(
        config, attn_implementation="eager", experts_implementation="eager"
    ).eval()
    return model


@pytest.fixture
def folder(tmp_path: Path, stock: torch.nn.Module) -> Path:
    """The model saved with its experts as blocks and scales, and the very numbers these stand for in `stock`."""
    tensors: dict[str, Tensor] = {}
    parameters = dict(stock.named_parameters())
    for index in range(2):
        experts = f"model.layers.{index}.mlp.experts"
        for name, blocks, scales in (
            ("gate_up_proj", *packed(EXPERTS, 2 * INNER, HIDDEN // 32, seed=index)),
            ("down_proj", *packed(EXPERTS, HIDDEN, INNER // 32, seed=10 + index)),
        ):
            tensors |= {f"{experts}.{name}_blocks": blocks, f"{experts}.{name}_scales": scales}
            numbers = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
            parameters[f"{experts}.{name}"].data.copy_(numbers)
    tensors |= {name: value.data.clone() for name, value in parameters.items() if f"{name}_blocks" not in tensors}
    stock.config.quantization_config = {"quant_method": "mxfp4"}  # type: ignore[union-attr]
    stock.config.save_pretrained(tmp_path)  # type: ignore[union-attr, operator]
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "tokenizer.json").write_text("{}")
    return tmp_path


def test_a_gpt_oss_folder_gives_the_logits_of_transformers(folder: Path, stock: torch.nn.Module) -> None:
    files = ModelFiles.open(folder)
    decoder, _ = load_decoder(files, files.config(), WeightPrecision(torch.float32), torch.device("cpu"), num_threads=2)
    ids = random_ids(4 * WINDOW)
    cache = KVCache(files.config(), CachePolicy.AS_TRAINED, WINDOW, 0)
    with torch.inference_mode():
        expected = stock(ids, use_cache=False).logits
        actual = torch.cat([decoder(piece, cache, logits="all") for piece in pieces(ids, [5] * 6 + [2])], dim=1)
    assert (actual - expected).abs().max() < 1e-4


@pytest.mark.skipif(not int8_is_available(), reason="this torch has no fbgemm")
def test_its_experts_can_be_held_in_int8(folder: Path) -> None:
    files = ModelFiles.open(folder)
    ids, logits = random_ids(4 * WINDOW), []
    for precision in (WeightPrecision(torch.float32), WeightPrecision(torch.float32, is_int8=True)):
        decoder, _ = load_decoder(files, files.config(), precision, torch.device("cpu"), num_threads=2)
        with torch.inference_mode():
            logits.append(decoder(ids, KVCache(files.config(), CachePolicy.AS_TRAINED, WINDOW, 0), logits="all"))
    exact, rounded = (each.double().log_softmax(dim=-1) for each in logits)
    divergence = (exact.exp() * (exact - rounded)).sum(dim=-1)
    assert 0 < divergence.median() < 0.01  # not the mean: a near tie of the router may fall the other way


def test_the_folder_is_listed_as_mxfp4_held_in_bfloat16_and_run_by_the_ring_backend(folder: Path) -> None:
    files = ModelFiles.open(folder)
    num_expert_numbers = 2 * EXPERTS * 3 * INNER * HIDDEN
    assert files.weights.encodings["MXFP4"] == num_expert_numbers // 2 + num_expert_numbers // 32
    assert files.weights.num_elements == sum(value.numel() for value in decoder_parameters(files))
    assert runnable_by(files)["ring"] is None
    assert choose_precision("auto", files.weights.encodings, torch.device("cpu")).label == "bfloat16"


def decoder_parameters(files: ModelFiles) -> list[Tensor]:
    decoder, _ = load_decoder(files, files.config(), WeightPrecision(torch.bfloat16), torch.device("cpu"))
    return list(decoder.parameters())
