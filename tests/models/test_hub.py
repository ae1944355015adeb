"""Hub models come into the hub library's own cache: what a decoder needs, once, going on where they broke off."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backends.errors import ModelFileError
from backends.events import LoadProgress
from models.hub import HubId, fetch
from tests.models.hub_server import Hub, serve_hub
from tests.models.model_folders import write_model
from tests.models.tiny_tokenizers import sentencepiece_vocabulary, write_vocabulary_gguf

BIG = os.urandom(24_000_000)  # more than two of the library's 10 MB blocks


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    model = {path.name: path.read_bytes() for path in write_model(tmp_path / "model", num_shards=2).iterdir()}
    gguf = write_vocabulary_gguf(tmp_path / "model.gguf", sentencepiece_vocabulary()).read_bytes()
    useless = {"pytorch_model.bin": b"x", "README.md": b"x", "onnx/model.onnx": b"x", "consolidated.safetensors": b"x"}
    repos = {
        "own/model": {**model, **useless, "chat_template.jinja": b"{{ 1 }}", "LICENSE": b"free"},
        "own/gguf": {"model-Q8_0.gguf": gguf, "README.md": b"x"},
        "own/several": {"sub/a-Q4_0.gguf": gguf + b"a", "b-Q8_0.gguf": gguf + b"b", "mmproj-b.gguf": gguf},
        "own/split": {f"big-{number:05}-of-00002.gguf": gguf + bytes([number]) for number in (1, 2)},
        "own/pickled": {"config.json": b"{}", "pytorch_model.bin": b"x"},
        "own/nothing": {"README.md": b"x"},
        "own/big": {"big.gguf": BIG},
    }
    with serve_hub(Hub(repos)) as served:
        yield served


@pytest.fixture
def get(hub: Hub, tmp_path: Path) -> Callable[[str], Path]:
    def get_model(name: str) -> Path:
        hub_id = HubId.parse(name)
        assert hub_id is not None
        return fetch(hub_id, lambda progress: None, tmp_path / "cache", hub.url)

    return get_model


def refusal(get: Callable[[str], Path], name: str) -> str:
    with pytest.raises(ModelFileError) as caught:
        get(name)
    return str(caught.value)


def test_of_a_safetensors_model_only_what_a_decoder_needs_is_fetched(hub: Hub, get: Callable[[str], Path]) -> None:
    folder = get("own/model")
    assert sorted(path.name for path in folder.iterdir()) == [
        "LICENSE",
        "chat_template.jinja",
        "config.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
        "tokenizer.json",
    ]
    for path in folder.iterdir():
        assert path.read_bytes() == hub.repos["own/model"][path.name]


def test_a_model_that_is_here_is_not_asked_for_again(hub: Hub, get: Callable[[str], Path]) -> None:
    for name in ("own/model", "own/gguf"):
        path = get(name)
        hub.requests.clear()
        assert get(name) == path
        assert hub.requests == []


def test_the_one_gguf_file_of_a_repository_needs_no_name(hub: Hub, get: Callable[[str], Path]) -> None:
    assert get("own/gguf").name == "model-Q8_0.gguf"
    assert get("own/gguf") == get("own/gguf:model-Q8_0.gguf")


def test_one_of_several_gguf_files_is_fetched_by_name(hub: Hub, get: Callable[[str], Path]) -> None:
    assert get("own/several:b-Q8_0.gguf").name == "b-Q8_0.gguf"
    nested = get("own/several:sub/a-Q4_0.gguf")
    assert nested.parts[-2:] == ("sub", "a-Q4_0.gguf")
    assert [name for name, _ in hub.downloads()] == ["b-Q8_0.gguf", "a-Q4_0.gguf"]


def test_of_a_split_model_every_file_comes_and_the_first_is_named(hub: Hub, get: Callable[[str], Path]) -> None:
    path = get("own/split:big-00001-of-00002.gguf")
    assert path.name == "big-00001-of-00002.gguf"
    assert path.with_name("big-00002-of-00002.gguf").exists()


def test_a_broken_connection_goes_on_where_it_was(hub: Hub, get: Callable[[str], Path]) -> None:
    hub.break_after["big.gguf"] = 15_000_000
    path = get("own/big:big.gguf")
    assert path.read_bytes() == BIG
    assert hub.downloads() == [("big.gguf", ""), ("big.gguf", "bytes=10485760-")]


def test_a_fetch_that_was_given_up_goes_on_where_it_was(hub: Hub, tmp_path: Path) -> None:
    def give_up(progress: LoadProgress) -> None:
        if progress.done > 15_000_000:
            raise KeyboardInterrupt

    hub_id = HubId("own/big", "big.gguf")
    with pytest.raises(KeyboardInterrupt):
        fetch(hub_id, give_up, tmp_path / "cache", hub.url)
    hub.requests.clear()
    seen: list[LoadProgress] = []
    assert fetch(hub_id, seen.append, tmp_path / "cache", hub.url).read_bytes() == BIG
    assert hub.downloads() == [("big.gguf", "bytes=10485760-")]
    assert seen[0].total is None
    assert [step.done for step in seen[1:]] == [20_971_520, 24_000_000, 24_000_000]


def test_bytes_that_are_not_those_promised_are_refused_and_fetched_again(hub: Hub, tmp_path: Path) -> None:
    hub_id, blobs = HubId("own/big", "big.gguf"), tmp_path / "cache" / "models--own--big" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / f"{hashlib.sha256(BIG).hexdigest()}.ringside.incomplete").write_bytes(b"wrong" * 1_000)
    with pytest.raises(ModelFileError, match=r"own/big:big\.gguf did not arrive whole"):
        fetch(hub_id, lambda progress: None, tmp_path / "cache", hub.url)
    assert fetch(hub_id, lambda progress: None, tmp_path / "cache", hub.url).read_bytes() == BIG
    assert [path.name for path in blobs.iterdir()] == [hashlib.sha256(BIG).hexdigest()]


def test_progress_counts_every_file_to_the_last_byte(hub: Hub, tmp_path: Path) -> None:
    seen: list[LoadProgress] = []
    folder = fetch(HubId("own/model"), seen.append, tmp_path / "cache", hub.url)
    total = sum(path.stat().st_size for path in folder.iterdir())
    assert seen[-1] == LoadProgress("Fetching own/model", total, total)
    done = [step.done for step in seen]
    assert done == sorted(done)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("own/missing", "The hub has no model own/missing, or it is private. Check the name."),
        ("own/several", "own/several holds 2 models: b-Q8_0.gguf, sub/a-Q4_0.gguf. Name one: own/several:b-Q8_0.gguf."),
        ("own/gguf:other.gguf", "own/gguf holds no other.gguf; it holds model-Q8_0.gguf. Name one of its files."),
        (
            "own/pickled",
            "own/pickled holds its weights in a format that can run code when opened. "
            "Choose a model in the safetensors or GGUF format.",
        ),
        ("own/nothing", "own/nothing holds no weights (*.safetensors or *.gguf). Choose another model."),
    ],
)
def test_what_the_hub_cannot_give_is_said_in_one_sentence(get: Callable[[str], Path], name: str, said: str) -> None:
    assert refusal(get, name) == said


def test_a_gated_model_is_answered_with_the_way_in(hub: Hub, get: Callable[[str], Path]) -> None:
    hub.gated.add("own/model")
    said = refusal(get, "own/model")
    assert said.startswith("own/model is gated: its owner asks you to accept terms first.")
    assert "hf auth login" in said


def test_an_unreachable_hub_is_said_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError) as caught:
        fetch(HubId("own/model"), lambda progress: None, tmp_path, "http://127.0.0.1:9")
    assert str(caught.value) == (
        "own/model is not on this machine, and the hub cannot be reached. Connect and try again, or give a file."
    )


def test_a_full_disk_is_said_before_anything_is_fetched(
    hub: Hub, get: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Nearly:
        free = 1_000

    monkeypatch.setattr("shutil.disk_usage", lambda folder: Nearly)
    assert refusal(get, "own/big").startswith("The disk is full while fetching own/big (0.0 GB needed")
    assert hub.downloads() == []


def test_the_environment_s_hub_and_cache_are_used(hub: Hub, tmp_path: Path) -> None:
    environment = os.environ | {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "0"}
    code = "from models.catalog import resolve; print(resolve('own/gguf', lambda progress: None))"
    output = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    path = Path(output.stdout.strip())
    assert path.is_relative_to(tmp_path / "home" / "hub")
    assert path.read_bytes() == hub.repos["own/gguf"]["model-Q8_0.gguf"]
    environment["HF_HUB_OFFLINE"] = "1"
    again = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert again.stdout == output.stdout
    environment["HF_HOME"] = str(tmp_path / "other")
    offline = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert "own/gguf is not on this machine, and the hub cannot be reached." in offline.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("owner/name", HubId("owner/name")),
        ("owner/name.v1-2_3", HubId("owner/name.v1-2_3")),
        ("owner/name:file.gguf", HubId("owner/name", "file.gguf")),
        ("owner/name:sub/file.gguf", HubId("owner/name", "sub/file.gguf")),
        ("owner/name:file.bin", None),
        ("name", None),
        ("a/b/c", None),
        ("../name", None),
        ("owner/", None),
        ("owner/na me", None),
    ],
)
def test_ids_are_told_from_other_names(text: str, expected: HubId | None) -> None:
    assert HubId.parse(text) == expected
    assert expected is None or str(expected) == text
