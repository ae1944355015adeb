"""Opening models: what is found, and one sentence for each thing that can be wrong with the files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from backends.errors import ModelFileError, UnsupportedModelError
from models.model_files import ModelFiles
from tests.models.gguf_files import write_gguf
from tests.models.test_gguf_config import GGUF, HF

CONFIG = {"model_type": "mistral", "architectures": ["MistralForCausalLM"], **HF, "sliding_window": 8}


def write_folder(folder: Path, config: dict[str, Any] | None = None) -> Path:
    """A folder with everything a model has, in two shards."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config or CONFIG))
    (folder / "tokenizer.json").write_text("{}")
    shards = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    save_file({"a": np.ones((3, 4), np.float32)}, folder / shards[0])
    save_file({"b": np.ones((2, 4), np.float16)}, folder / shards[1])
    index = {"weight_map": dict(zip("ab", shards, strict=True))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def write_model(path: Path, architecture: str = "llama", changes: dict[str, Any] | None = None) -> Path:
    return write_gguf(path, architecture, {**GGUF, **(changes or {})}, {"token_embd.weight": np.zeros((97, 64))})


def test_a_folder_says_its_size_types_and_config(tmp_path: Path) -> None:
    files = ModelFiles.open(write_folder(tmp_path / "model"))
    assert (files.kind, files.name, len(files.files)) == ("folder", "model", 2)
    assert (files.weights.num_bytes, files.weights.num_elements) == (48 + 16, 12 + 8)
    assert files.weights.encodings == {"F32": 48, "F16": 16}
    assert files.stored_as == "F32"
    assert files.config().architecture == "MistralForCausalLM"
    assert files.size_bytes == sum(file.stat().st_size for file in files.files)


def test_a_gguf_file_says_its_size_types_and_config(tmp_path: Path) -> None:
    path = write_model(tmp_path / "tiny.gguf", changes={"general.file_type": 15})
    files = ModelFiles.open(str(path))
    assert (files.kind, files.name, files.stored_as) == ("gguf", "tiny.gguf", "Q4_K_M")
    assert files.weights.num_elements == 97 * 64
    assert files.config().vocab_size == 97


def test_end_tokens_of_the_generation_config_count_too(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 7]}))
    assert ModelFiles.open(folder).config().eos_token_ids == (2, 7)


def test_a_folder_of_the_hub_cache_goes_by_its_id_and_follows_links(tmp_path: Path) -> None:
    blobs = write_folder(tmp_path / "blobs")
    snapshot = tmp_path / "models--google--gemma" / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    for blob in blobs.iterdir():
        (snapshot / blob.name).symlink_to(blob)
    files = ModelFiles.open(snapshot)
    assert files.name == "google/gemma"
    assert files.weights.num_elements == 20


def test_a_repository_of_the_hub_cache_is_its_current_snapshot(tmp_path: Path) -> None:
    repo = tmp_path / "models--google--gemma"
    for commit in ("0123", "4567"):
        snapshot = write_folder(tmp_path / commit)
        (repo / "snapshots").mkdir(parents=True, exist_ok=True)
        snapshot.rename(repo / "snapshots" / commit)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("0123")
    files = ModelFiles.open(repo)
    assert (files.name, files.path.name) == ("google/gemma", "0123")
    shutil.rmtree(repo / "snapshots")
    with pytest.raises(ModelFileError, match="models--google--gemma holds no finished download"):
        ModelFiles.open(repo)


def test_a_link_to_nothing_is_named_with_where_it_points(tmp_path: Path) -> None:
    link = tmp_path / "tiny.gguf"
    link.symlink_to("blobs/gone")
    for path in (link, tmp_path):
        with pytest.raises(ModelFileError, match=r"tiny\.gguf is a link to blobs/gone, which is not there"):
            ModelFiles.open(path)


def test_files_that_no_index_lists_are_taken_where_they_are_one_set(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model")
    (folder / INDEX).unlink()
    assert len(ModelFiles.open(folder).files) == 2


def test_a_weight_file_stands_for_its_folder(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model")
    assert ModelFiles.open(folder / "model-00001-of-00002.safetensors").path == folder


def test_a_folder_with_one_gguf_file_is_that_file(tmp_path: Path) -> None:
    write_model(tmp_path / "tiny.gguf")
    write_model(tmp_path / "mmproj-tiny.gguf")
    assert ModelFiles.open(tmp_path).path == tmp_path / "tiny.gguf"
    write_model(tmp_path / "other.gguf")
    with pytest.raises(ModelFileError, match=r"holds 2 models\. Name one of them, such as other\.gguf"):
        ModelFiles.open(tmp_path)


def test_the_fingerprint_changes_with_any_weight_file(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model")
    before = ModelFiles.open(folder).fingerprint()
    save_file({"b": np.zeros((2, 4), np.float16)}, folder / "model-00002-of-00002.safetensors")
    assert ModelFiles.open(folder).fingerprint() != before


Damage = Callable[[Path], None]


def remove(*names: str) -> Damage:
    def unlink(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return unlink


def write(name: str, content: bytes) -> Damage:
    def overwrite(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return overwrite


def truncate(name: str, lost_bytes: int) -> Damage:
    def cut(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[:-lost_bytes])

    return cut


def save(name: str, **rows: int) -> Damage:
    def write_tensors(folder: Path) -> None:
        save_file({tensor: np.ones((count, 4), np.float32) for tensor, count in rows.items()}, folder / name)

    return write_tensors


def link_to_nothing(name: str) -> Damage:
    def replace_by_link(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to("gone")

    return replace_by_link


def without_index(damage: Damage) -> Damage:
    def both(folder: Path) -> None:
        (folder / INDEX).unlink()
        damage(folder)

    return both


def pickle_only(folder: Path) -> None:
    for file in folder.glob("*.safetensors*"):
        file.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"pickle")


SHARD = "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (remove("config.json"), "neither config.json nor a GGUF file"),
        (remove("tokenizer.json"), "no tokenizer"),
        (remove(SHARD), f"lacks {SHARD}"),
        (remove(INDEX, "model-00001-of-00002.safetensors", SHARD), "no weights"),
        (pickle_only, "pytorch_model.bin, which can run code"),
        (truncate(SHARD, 3), "truncated: b ends 3 bytes after it"),
        (truncate(SHARD, 60), "not a safetensors file"),
        (write(SHARD, LFS), "git lfs pull"),
        (write(SHARD, b""), "not a safetensors file"),
        (write(SHARD, b"\xff" * 64), "claims a header of"),
        (write(INDEX, b"{}"), "not a safetensors index"),
        (write(INDEX, b"[1, 2"), "not a safetensors index"),
        (link_to_nothing(SHARD), f"{SHARD} is a link to gone, which is not there"),
        (link_to_nothing("config.json"), "config.json is a link to gone, which is not there"),
        (link_to_nothing("tokenizer.json"), "tokenizer.json is a link to gone, which is not there"),
        (save(SHARD, c=1), f"{SHARD} lacks b, which {INDEX} says it holds"),
        (save(SHARD, a=1, b=1), f"and {SHARD} both hold a: they are of different sets of weights"),
        (save("model.safetensors", a=1, b=1), "two sets of weights, model.safetensors and model-00001-of-00002"),
        (without_index(save("model-00001-of-00003.safetensors", a=1)), "two sets of weights, model-00001-of-00002"),
        (without_index(save("old.safetensors", c=1)), "two sets of weights, model-00001-of-00002.safetensors and old"),
        (without_index(remove(SHARD)), "holds 1 of the 2 files that model-00001-of-00002.safetensors is one of"),
    ],
)
def test_a_damaged_folder_is_refused_with_one_sentence(tmp_path: Path, damage: Damage, said: str) -> None:
    folder = write_folder(tmp_path / "model")
    damage(folder)
    with pytest.raises(ModelFileError) as caught:
        ModelFiles.open(folder)
    assert said in str(caught.value)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff\xfe"])
def test_a_broken_config_is_named(tmp_path: Path, content: bytes) -> None:
    folder = write_folder(tmp_path / "model")
    (folder / "config.json").write_bytes(content)
    with pytest.raises(ModelFileError, match=r"config\.json"):
        ModelFiles.open(folder).config()


def test_an_index_cannot_reach_outside_its_folder(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model")
    shutil.move(folder / SHARD, tmp_path / "elsewhere.safetensors")
    (folder / INDEX).write_text(json.dumps({"weight_map": {"b": "../elsewhere.safetensors"}}))
    with pytest.raises(ModelFileError, match=r"lacks elsewhere\.safetensors"):
        ModelFiles.open(folder)


def test_missing_paths_and_strangers_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"There is no file or folder .*nowhere"):
        ModelFiles.open(tmp_path / "nowhere")
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(ModelFileError, match=r"notes\.txt is not a GGUF file"):
        ModelFiles.open(tmp_path / "notes.txt")
    with pytest.raises(ModelFileError, match="holds no weights"):
        ModelFiles.open(write_gguf(tmp_path / "vocabulary.gguf", "llama", GGUF))


def test_an_unknown_architecture_still_opens(tmp_path: Path) -> None:
    """llama.cpp may run it; only the ring backend's config refuses."""
    files = ModelFiles.open(write_model(tmp_path / "tiny.gguf", "mamba"))
    with pytest.raises(UnsupportedModelError, match="'mamba'"):
        files.config()
