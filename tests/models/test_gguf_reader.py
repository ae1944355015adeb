"""The GGUF reader against gguf-py: what its writer wrote, and what its reader reads of the real model."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.errors import ModelFileError
from models.ggml_types import GGML_TYPES
from models.gguf_reader import fingerprint, read_gguf, shard_paths
from tests.models.gguf_files import write_gguf

VALUES: dict[str, Any] = {
    ".block_count": 2,
    ".rope.freq_base": 0.5,
    ".flag": True,
    "general.name": "ünïcode 🐕",
    "tokenizer.ggml.tokens": ["a", "", "▁ein Wort", "\t"],
    "tokenizer.ggml.scores": [0.5, -1.25, 3.0, 0.0],
    "tokenizer.ggml.token_type": [1, 3, 1, 6],
}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    tensors = {"a.weight": np.arange(12).reshape(3, 4), "b.bias": np.array([1.5, -2.5])}
    return write_gguf(tmp_path / "small.gguf", "llama", VALUES, tensors)


def test_metadata_reads_back_as_written(small: Path) -> None:
    metadata = read_gguf(small).metadata
    assert metadata["general.architecture"] == "llama"
    for key, value in VALUES.items():
        read = metadata["llama" + key if key.startswith(".") else key]
        assert (read.tolist() if isinstance(read, np.ndarray) else read) == value
    assert "llama.block_count" in metadata
    assert metadata.get("absent") is None
    assert set(metadata) == {"general.architecture", *("llama" + k if k.startswith(".") else k for k in VALUES)}


def test_tensors_have_numpy_shapes_and_their_bytes(small: Path) -> None:
    file = read_gguf(small)
    tensor = file.tensors["a.weight"]
    assert (tensor.shape, tensor.ggml_type, tensor.num_bytes, tensor.num_elements) == ((3, 4), "F32", 48, 12)
    assert np.array_equal(file.data(tensor).view(np.float32).reshape(tensor.shape), np.arange(12).reshape(3, 4))
    assert file.data(file.tensors["b.bias"]).view(np.float32).tolist() == [1.5, -2.5]
    assert file.tensor_bytes == 56


def test_block_types_have_the_sizes_of_gguf_py() -> None:
    theirs = {int(kind): (kind.name, elements, size) for kind, (elements, size) in GGML_QUANT_SIZES.items()}
    assert theirs == GGML_TYPES


def test_a_quantised_tensor_has_the_shape_of_its_numbers(tmp_path: Path) -> None:
    blocks = np.arange(3 * 2 * 34, dtype=np.uint8).reshape(3, 68)
    quantised = (blocks, gguf.GGMLQuantizationType.Q8_0)
    file = read_gguf(write_gguf(tmp_path / "q.gguf", "llama", {}, {"w": quantised}))
    tensor = file.tensors["w"]
    assert (tensor.ggml_type, tensor.shape, tensor.num_bytes) == ("Q8_0", (3, 64), 204)
    assert file.data(tensor).tobytes() == blocks.tobytes()


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@settings(max_examples=30, deadline=None)
@given(words=st.lists(_TEXT, min_size=1, max_size=8), numbers=st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1))
def test_any_texts_and_numbers_read_back(words: list[str], numbers: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = read_gguf(write_gguf(Path(folder) / "x.gguf", "llama", {"words": words, "numbers": numbers}))
        assert file.metadata["words"] == words
        assert file.metadata["numbers"].tolist() == numbers


def test_every_cut_of_a_file_is_refused_with_one_sentence(small: Path, tmp_path: Path) -> None:
    whole = small.read_bytes()
    for length in range(len(whole) - 32, 0, -7):  # the last tensor's padding may be missing
        cut = tmp_path / "cut.gguf"
        cut.write_bytes(whole[:length])
        with pytest.raises(ModelFileError, match=r"cut\.gguf"):
            read_gguf(cut)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_damaged_bytes_are_read_or_refused_but_never_anything_else(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write_gguf(Path(folder) / "x.gguf", "llama", VALUES, {"w": np.ones((2, 4))})
        damaged = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 4))):
            damaged[data.draw(st.integers(4, len(damaged) - 1))] = data.draw(st.integers(0, 255))
        path.write_bytes(damaged)
        try:
            file = read_gguf(path)
            _ = [file.metadata[key] for key in file.metadata]
            _ = [file.data(tensor).sum() for tensor in file.tensors.values()]
        except ModelFileError:
            pass


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "does not begin with the letters GGUF"),
        (b"GG", "does not begin with the letters GGUF"),
        (b"PK\x03\x04 something else", "does not begin with the letters GGUF"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "git lfs pull"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60), "truncated"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), "truncated"),
    ],
)
def test_what_is_not_a_gguf_file_is_said_in_one_sentence(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=said) as caught:
        read_gguf(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"There is no file .*absent\.gguf"):
        read_gguf(tmp_path / "absent.gguf")
    with pytest.raises(ModelFileError, match="cannot be read"):
        read_gguf(tmp_path)


def test_shards_are_opened_together(tmp_path: Path) -> None:
    first = write_gguf(tmp_path / "m-00001-of-00002.gguf", "llama", {"split.count": 2}, {"a": np.ones((1, 4))})
    write_gguf(tmp_path / "m-00002-of-00002.gguf", "llama", {}, {"b": np.full((1, 4), 2.0)})
    file = read_gguf(first)
    assert file.paths == tuple(shard_paths(first))
    assert file.data(file.tensors["b"]).view(np.float32).tolist() == [2.0] * 4
    file.paths[1].unlink()
    with pytest.raises(ModelFileError, match="m-00002-of-00002"):
        read_gguf(first)


@pytest.mark.parametrize(
    ("keys", "tensor", "said"),
    [
        ({"split.no": 2, "split.count": 3}, "b", "is file 3 of 3 by its own keys, and file 2 of 2 by its name"),
        ({"split.no": 1, "split.count": 2}, "a", "and m-00002-of-00002.gguf both hold a: they are of different models"),
    ],
)
def test_a_shard_of_another_model_is_not_taken(tmp_path: Path, keys: dict[str, int], tensor: str, said: str) -> None:
    first = write_gguf(tmp_path / "m-00001-of-00002.gguf", "llama", {"split.count": 2}, {"a": np.ones((1, 4))})
    write_gguf(tmp_path / "m-00002-of-00002.gguf", "llama", keys, {tensor: np.ones((1, 4))})
    with pytest.raises(ModelFileError) as caught:
        read_gguf(first)
    assert said in str(caught.value)


def test_the_fingerprint_follows_the_content(small: Path) -> None:
    before = fingerprint(small)
    assert fingerprint(small) == before
    content = bytearray(small.read_bytes())
    content[-1] ^= 1
    small.write_bytes(content)
    assert fingerprint(small) != before


@pytest.mark.real_model
def test_the_real_model_reads_as_gguf_py_reads_it(smollm2_path: Path) -> None:
    ours, theirs = read_gguf(smollm2_path), gguf.GGUFReader(smollm2_path)
    for key, field in theirs.fields.items():
        if not key.startswith("GGUF."):
            value = ours.metadata[key]
            assert (value.tolist() if isinstance(value, np.ndarray) else value) == field.contents(), key
    assert len(ours.tensors) == len(theirs.tensors)
    for tensor in theirs.tensors:
        mine = ours.tensors[tensor.name]
        assert (mine.offset, mine.num_bytes) == (tensor.data_offset, tensor.n_bytes)
        assert mine.shape == tuple(int(extent) for extent in reversed(tensor.shape))
        assert mine.ggml_type == tensor.tensor_type.name


@pytest.mark.real_model
def test_opening_decodes_no_vocabulary(gemma_path: Path) -> None:
    """The list of 262,144 strings is only walked over; it is there when asked for."""
    file = read_gguf(gemma_path)
    assert "tokenizer.ggml.tokens" not in file.metadata._values
    assert len(file.metadata["tokenizer.ggml.tokens"]) == 262_144
