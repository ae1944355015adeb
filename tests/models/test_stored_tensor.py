"""Tensors in files: GGUF and safetensors, whole, in part and by row, and what is said about bad files."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from backends.errors import ModelFileError, UnsupportedModelError
from models.gguf_reader import read_gguf
from models.gguf_weights import gguf_tensors
from models.safetensors_header import weight_files
from models.safetensors_weights import safetensors_tensors
from models.stored_tensor import StoredTensor

BLOCK_TYPES = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]  # those the gguf package can also write
VALUES = torch.randn(10, 512, generator=torch.Generator().manual_seed(0))


def folder_tensors(folder: Path) -> dict[str, StoredTensor]:
    return safetensors_tensors(weight_files(folder))


def write_gguf(path: Path, tensors: dict[str, torch.Tensor], kind: str) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    for name, tensor in tensors.items():
        data = gguf.quants.quantize(tensor.numpy(), gguf.GGMLQuantizationType[kind])
        writer.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", *BLOCK_TYPES])
def test_reads_a_gguf_tensor_whole_in_part_and_by_row(tmp_path: Path, kind: str) -> None:
    file = read_gguf(write_gguf(tmp_path / "m.gguf", {"a": VALUES, "b": VALUES[0]}, kind))
    tensor = gguf_tensors(file)["a"]
    stored = gguf.quants.quantize(VALUES.numpy(), gguf.GGMLQuantizationType[kind])
    expected = torch.from_numpy(gguf.quants.dequantize(stored, gguf.GGMLQuantizationType[kind]))
    assert tensor.encoding == kind
    assert torch.equal(tensor.whole().float(), expected)
    assert torch.equal(tensor.picker()([7, 0, 7]).float(), expected[[7, 0, 7]])
    assert torch.equal(tensor.part(2, 6).whole().float(), expected[2:6])
    assert torch.equal(gguf_tensors(file)["b"].whole().float(), expected[0])


def test_a_large_tensor_is_decoded_slice_by_slice_without_a_seam(tmp_path: Path) -> None:
    values = torch.randn(3000, 256, generator=torch.Generator().manual_seed(1))  # six slices
    tensor = gguf_tensors(read_gguf(write_gguf(tmp_path / "m.gguf", {"a": values}, "Q8_0")))["a"]
    assert (tensor.whole() - values).abs().max() < 0.03
    assert len(list(tensor.slices())) == 6
    assert torch.equal(tensor.picker()([0, 1023, 1024, 2999]), tensor.whole()[[0, 1023, 1024, 2999]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_reads_safetensors_shards_named_by_the_index(tmp_path: Path, dtype: torch.dtype) -> None:
    experts = torch.randn(3, 4, 8).to(dtype)
    save_file({"a": VALUES.to(dtype)}, tmp_path / "one.safetensors")
    save_file({"b": experts, "c": torch.tensor(2.5, dtype=dtype)}, tmp_path / "two.safetensors")
    save_file({"stray": VALUES}, tmp_path / "stray.safetensors")
    index = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors", "c": "two.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    tensors = folder_tensors(tmp_path)
    assert set(tensors) == {"a", "b", "c"}
    assert torch.equal(tensors["a"].whole(), VALUES.to(dtype))
    assert torch.equal(tensors["b"].whole(), experts)
    assert torch.equal(tensors["b"].part(1, 2).whole()[0], experts[1])
    assert tensors["b"].num_rows == 12
    assert tensors["c"].whole() == 2.5


def test_a_truncated_safetensors_file_names_the_tensor(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"a": VALUES}, path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelFileError, match="a ends 100 bytes after it"):
        folder_tensors(tmp_path)


def test_an_encoding_nobody_knows_is_refused_by_name_when_it_is_needed(tmp_path: Path) -> None:
    save_file({"a": VALUES.to(torch.float8_e4m3fn), "b": VALUES}, tmp_path / "model.safetensors")
    tensors = folder_tensors(tmp_path)
    tensors["b"].check_readable()
    with pytest.raises(UnsupportedModelError, match="stores a as F8_E4M3"):
        tensors["a"].check_readable()


def test_reading_past_the_end_of_a_file_that_shrank_names_it(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", {"a": VALUES}, "F32")
    tensor = gguf_tensors(read_gguf(path))["a"]
    with path.open("r+b") as file:
        file.truncate(tensor.offset + 100)
    with pytest.raises(ModelFileError, match="ends inside a"):
        tensor.whole()


def test_rows_are_not_mapped(tmp_path: Path) -> None:
    """What was read belongs to us: changing it does not touch the file."""
    path = write_gguf(tmp_path / "m.gguf", {"a": VALUES}, "F32")
    tensor = gguf_tensors(read_gguf(path))["a"]
    tensor.whole().zero_()
    assert np.count_nonzero(tensor.whole().numpy())
