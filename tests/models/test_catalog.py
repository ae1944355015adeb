"""Everything that could be a model is listed once, with what is wrong with it; names lead to paths."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from backends.errors import ModelFileError
from models.catalog import ModelEntry, find_models, resolve
from tests.models.model_folders import CONFIG, cache_as_hub_does, write_model
from tests.models.tiny_tokenizers import sentencepiece_vocabulary, write_vocabulary_gguf


def gguf(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_vocabulary_gguf(path, sentencepiece_vocabulary())


def names(entries: list[ModelEntry]) -> list[str]:
    return [entry.name for entry in entries]


def test_files_and_folders_are_found_at_any_depth_and_sorted_by_name(tmp_path: Path) -> None:
    gguf(tmp_path / "b" / "deep" / "Beta.gguf")
    write_model(tmp_path / "a" / "alpha")
    write_model(tmp_path / "c" / "gamma", num_shards=3)
    entries = find_models([tmp_path])
    assert names(entries) == ["alpha", "Beta.gguf", "gamma"]
    assert [entry.kind for entry in entries] == ["folder", "gguf", "folder"]
    assert entries[2].size_bytes == sum(
        path.stat().st_size for path in (tmp_path / "c" / "gamma").glob("*.safetensors")
    )


def test_an_entry_says_what_the_files_say(tmp_path: Path) -> None:
    write_model(tmp_path / "mistral")
    (entry,) = find_models([tmp_path])
    assert entry.config is not None
    assert (entry.config.num_sliding_layers, entry.config.trained_window) == (2, 8)
    assert (entry.stored_as, entry.problem, entry.license) == ("F32", "", "")
    assert entry.why_not("ring") == ""
    assert "llama.cpp reads GGUF files only" in entry.why_not("llamacpp")


def test_a_model_reached_by_several_ways_is_listed_once(tmp_path: Path) -> None:
    gguf(tmp_path / "models" / "one.gguf")
    write_model(tmp_path / "models" / "two")
    (tmp_path / "models" / "link.gguf").symlink_to("one.gguf")
    (tmp_path / "models" / "link").symlink_to("two")
    (tmp_path / "models" / "circle").symlink_to(".")
    (tmp_path / "loop").symlink_to("loop")
    entries = find_models([tmp_path, tmp_path / "models", tmp_path / "nowhere"])
    assert len(entries) == 2


def test_of_a_split_gguf_model_the_first_file_stands_for_all(tmp_path: Path) -> None:
    for number in (1, 2):
        gguf(tmp_path / f"big-{number:05}-of-00002.gguf")
    gguf(tmp_path / "mmproj-vision.gguf")
    assert names(find_models([tmp_path])) == ["big-00001-of-00002.gguf"]


def test_what_cannot_be_read_is_listed_with_the_reason(tmp_path: Path) -> None:
    whole = gguf(tmp_path / "whole.gguf").read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.gguf").touch()
    (tmp_path / "pointer.gguf").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    write_model(tmp_path / "half", num_shards=3)
    (tmp_path / "half" / "model-00002-of-00003.safetensors").unlink()
    write_model(tmp_path / "pickled")
    (tmp_path / "pickled" / "model.safetensors").rename(tmp_path / "pickled" / "pytorch_model.bin")
    problems = {entry.name: entry.problem for entry in find_models([tmp_path])}
    assert problems.pop("whole.gguf") == ""
    assert "truncated" in problems.pop("cut.gguf")
    assert "not a GGUF file" in problems.pop("empty.gguf")
    assert "git-lfs" in problems.pop("pointer.gguf")
    assert "model-00002-of-00003.safetensors" in problems.pop("half")
    assert "run code when opened" in problems.pop("pickled")
    assert problems == {}


def test_a_family_the_ring_backend_cannot_run_is_listed_with_its_name(tmp_path: Path) -> None:
    write_model(tmp_path / "odd", config={**CONFIG, "architectures": ["OddForCausalLM"], "model_type": "odd"})
    (entry,) = find_models([tmp_path])
    assert entry.config is None
    assert entry.problem == ""
    assert "odd" in entry.why_not("ring")
    assert entry.architecture == "OddForCausalLM"


def test_strays_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "config.json").write_text('{"port": 80}')
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    (tmp_path / "notes.txt").write_text("x")
    gguf(tmp_path / ".hidden" / "x.gguf")
    adapter = write_model(tmp_path / "adapter")
    (adapter / "adapter_config.json").write_text("{}")
    assert find_models([tmp_path]) == []


def test_the_hub_s_cache_is_listed_by_id_with_the_state_main_points_to(tmp_path: Path) -> None:
    cache = tmp_path / "hub"
    old = cache_as_hub_does(cache, "own/model", write_model(tmp_path / "m1"), commit="a" * 40)
    new = cache_as_hub_does(cache, "own/model", write_model(tmp_path / "m2"), commit="b" * 40)
    cache_as_hub_does(cache, "own/other", write_model(tmp_path / "m3", num_shards=2), is_main=False)
    gguf(tmp_path / "g" / "model-Q8_0.gguf")
    cache_as_hub_does(cache, "own/gguf", tmp_path / "g")
    (cache / "models--own--nothing" / "refs").mkdir(parents=True)
    (cache / "datasets--own--data").mkdir()
    entries = find_models([], cache)
    assert names(entries) == ["model-Q8_0.gguf", "own/model", "own/other"]
    assert entries[1].path == new != old
    assert all(entry.problem == "" for entry in entries)


def test_a_half_fetched_hub_model_is_listed_as_half(tmp_path: Path) -> None:
    snapshot = cache_as_hub_does(tmp_path / "hub", "own/model", write_model(tmp_path / "m", num_shards=2))
    (snapshot / "model-00001-of-00002.safetensors").unlink()
    (entry,) = find_models([], tmp_path / "hub")
    assert entry.name == "own/model"
    assert "model-00001-of-00002.safetensors" in entry.problem


@pytest.mark.real_model
def test_the_demo_models_come_first_with_their_licences(gemma_path: Path, tmp_path: Path) -> None:
    gguf(tmp_path / "aaa.gguf")
    (tmp_path / gemma_path.name).symlink_to(gemma_path)
    entries = find_models([tmp_path])
    assert names(entries) == [gemma_path.name, "aaa.gguf"]
    assert entries[0].license == "Gemma Terms of Use"
    assert entries[0].config is not None
    assert (entries[0].config.num_sliding_layers, entries[0].config.num_full_layers) == (15, 3)


def test_a_path_resolves_to_itself_and_a_folder_of_one_gguf_file_to_the_file(tmp_path: Path) -> None:
    file = gguf(tmp_path / "one" / "model.gguf")
    folder = write_model(tmp_path / "two")
    for name, path in ((str(file), file), (str(file.parent), file), (str(folder), folder)):
        assert resolve(name, lambda progress: None) == path


@pytest.mark.parametrize(
    "name", ["no-such-model", "./missing.gguf", "/nowhere/model.gguf", "dir/model.gguf", "a/b/c", ""]
)
def test_a_name_that_leads_nowhere_is_answered_with_what_would(name: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError) as caught:
        resolve(name or "?", lambda progress: None)
    assert "gemma-3-270m" in str(caught.value)


@pytest.mark.real_model
def test_the_name_of_a_demo_resolves_to_its_file(gemma_path: Path) -> None:
    assert resolve("gemma-3-270m", lambda progress: None, gemma_path.parent.parent) == gemma_path


def test_a_hub_model_that_is_here_resolves_without_network(tmp_path: Path) -> None:
    snapshot = cache_as_hub_does(tmp_path / "hub", "own/model", write_model(tmp_path / "m"))
    gguf(tmp_path / "g" / "model-Q8_0.gguf")
    quantised = cache_as_hub_does(tmp_path / "hub", "own/gguf", tmp_path / "g")
    progress: list[object] = []
    assert resolve("own/model", progress.append, hub_cache=tmp_path / "hub") == snapshot
    file = quantised / "model-Q8_0.gguf"
    assert resolve("own/gguf", progress.append, hub_cache=tmp_path / "hub") == file
    assert resolve("own/gguf:model-Q8_0.gguf", progress.append, hub_cache=tmp_path / "hub") == file
    assert progress == []


def test_config_files_of_other_programs_do_not_stop_the_search(tmp_path: Path) -> None:
    (tmp_path / "list").mkdir()
    (tmp_path / "list" / "config.json").write_text(json.dumps([1]))
    (tmp_path / "binary").mkdir()
    (tmp_path / "binary" / "config.json").write_bytes(b"\xff\xfe")
    write_model(tmp_path / "model")
    assert names(find_models([tmp_path])) == ["model"]
    shutil.rmtree(tmp_path / "model")
    assert find_models([tmp_path]) == []
