from __future__ import annotations

from pathlib import Path

import pytest

from app.local_models import estimate_load, local_models, why_not
from backends.errors import ModelFileError
from backends.requests import LoadRequest
from models.folders import data_folder


@pytest.mark.real_model
def test_the_demo_is_listed_and_its_cache_estimated_to_the_byte(gemma_path: Path) -> None:
    (entry,) = [entry for entry in local_models(data_folder(), [gemma_path.parent]) if entry.path == gemma_path]
    assert (why_not(entry, "ring"), why_not(entry, "llamacpp")) == ("", "")
    request = LoadRequest("ring", str(gemma_path), window=256, device="cpu", precision="float32")
    estimate = estimate_load(request, data_folder())
    assert estimate is not None
    row_bytes = 2 * 1 * 256 * 4  # keys and values, one KV head of 256, float32
    assert estimate.kv_bytes == row_bytes * 18 * (256 + 4)  # below the trained 512, sliding layers have sinks too
    assert estimate.kv_full_bytes[100_000] == row_bytes * 18 * 100_000
    assert any("template" in warning for warning in estimate.warnings)


def test_nothing_is_estimated_for_echo_or_for_a_model_that_is_not_here_yet() -> None:
    assert estimate_load(LoadRequest("echo", ""), data_folder()) is None
    assert estimate_load(LoadRequest("ring", "gemma-3-270m"), data_folder()) is None


def test_a_broken_file_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(b"GGUF\x03\x00\x00\x00")
    with pytest.raises(ModelFileError, match=r"cut\.gguf"):
        estimate_load(LoadRequest("ring", str(path)), tmp_path)
    (entry,) = local_models(tmp_path, [tmp_path])
    assert "cut.gguf" in why_not(entry, "ring")
