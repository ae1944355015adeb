"""Weights come as safetensors or GGUF; a pickle, which runs code when opened, is never opened."""

from __future__ import annotations

import os
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from backends.errors import ModelFileError
from models.model_files import ModelFiles

ROOT = Path(__file__).parent.parent.parent


class MakesFolder:
    """What a hostile file holds: unpickling it makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize(
    "name", ["model.bin", "model.pt", "model.pth", "model.ckpt", "model.gguf", "model.safetensors"]
)
@pytest.mark.parametrize("where", ["file", "folder"])
def test_a_hostile_pickle_is_refused_unopened_whatever_it_is_called(tmp_path: Path, name: str, where: str) -> None:
    canary = tmp_path / "canary"
    file = tmp_path / "model" / name
    file.parent.mkdir()
    file.write_bytes(pickle.dumps(MakesFolder(canary)))
    (file.parent / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(ModelFileError):
        ModelFiles.open(file if where == "file" else file.parent)
    assert not canary.exists()
    pickle.loads(file.read_bytes())
    assert canary.exists()  # so it would have been seen


def test_no_module_of_the_application_opens_pickles() -> None:
    opens = re.compile(r"\b(pickle\.loads?\b|Unpickler\b|dill|joblib|shelve|torch\.load\b|allow_pickle=True)")
    sources = [path for folder in ("app", "backends", "models") for path in (ROOT / folder).rglob("*.py")]
    assert len(sources) > 50
    assert [path.name for path in sources if opens.search(path.read_text("utf-8"))] == []
