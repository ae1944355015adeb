"""Fixtures shared by every part: an isolated home for each test, and the two real models fetched once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import settings

from models.demo import ensure_demo
from models.folders import data_folder

settings.register_profile("ci", derandomize=True)  # CI judges a change by the same examples each time
if os.environ.get("CI"):
    settings.load_profile("ci")

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # processes beside each other share the cores already

USER_DATA_FOLDER = data_folder()  # read before any test moves the home


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Spread tests over processes by file, those with a browser in one: two browsers at once slow each other down."""
    if config.getoption("loadgroup", False):
        for item in items:
            group = "browser" if item.get_closest_marker("browser") else item.nodeid.partition("::")[0]
            item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(scope="session")
def conversions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Converted tokenizers and weights, made once a run: they depend on the model file alone."""
    return tmp_path_factory.mktemp("conversions")


@pytest.fixture(autouse=True)
def isolated_home(tmp_path: Path, conversions: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Settings and chats of a test stay in its own folder."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "cache").symlink_to(conversions)
    monkeypatch.setenv("RINGSIDE_HOME", str(home))
    return home


@pytest.fixture(scope="session")
def gemma_path() -> Path:
    """Gemma 3 270M base, Q4_K_M: 15 sliding layers (window 512) and 3 full ones, no chat template."""
    return ensure_demo("gemma-3-270m", USER_DATA_FOLDER, lambda progress: None)


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2 135M Instruct, Q4_1: full attention, with a chat template."""
    return ensure_demo("smollm2-135m-instruct", USER_DATA_FOLDER, lambda progress: None)
