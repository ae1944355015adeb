"""Models on this machine, and the path behind whatever a person names as one.

Scanning opens headers only and raises nothing: a file that cannot be used is listed with the reason. Fetching is
`models.hub` and `models.demo`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from backends.errors import ModelFileError, RingsideError
from backends.events import LoadProgress
from models.backend_support import runnable_by
from models.config import ModelConfig
from models.demo import DEMOS, Demo, ensure_demo
from models.folders import data_folder
from models.hub import HubId, fetch
from models.model_files import ModelFiles, repo_snapshots
from models.token_names import read_json

Report = Callable[[LoadProgress], None]

_MAX_DEPTH = 6


@dataclass(frozen=True)
class ModelEntry:
    """One model found, or one file that looked like one.

    Attributes:
        name: file name, folder name, or hub id.
        path: what to load.
        kind: "gguf" or "folder".
        size_bytes: of the weight files; 0 where they cannot be read.
        stored_as: precision in the file's words ("Q4_K_M", "BF16").
        architecture: as the file names it; empty where it does not say.
        config: None where the decoder's features cannot be told.
        license: of a demo model; empty otherwise.
        problem: why nothing can load it; empty if something can.
        refusals: backend -> why it cannot run this model, for those that cannot.
    """

    name: str
    path: Path
    kind: Literal["gguf", "folder"]
    size_bytes: int = 0
    stored_as: str = ""
    architecture: str = ""
    config: ModelConfig | None = None
    license: str = ""
    problem: str = ""
    refusals: Mapping[str, str] = field(default_factory=dict)

    def why_not(self, backend: str) -> str:
        """Return why a backend cannot run this model, as one sentence; empty if it can, as far as the files tell."""
        return self.problem or self.refusals.get(backend, "")


def find_models(folders: Sequence[Path], hub_cache: Path | None = None) -> list[ModelEntry]:
    """Return every model below the folders and in the hub's cache, each once, by name.

    A model reached twice (by links, or by overlapping folders) is listed once; of a split model, the first file.

    Args:
        folders: searched to a depth of six; those that do not exist are passed over.
        hub_cache: the hub library's folder; None leaves it out.
    """
    entries: dict[Path, ModelEntry] = {}
    for path in _candidates(folders, hub_cache):
        try:
            identity = path.resolve()
        except (OSError, RuntimeError):  # a loop of links
            continue
        if identity not in entries:
            entries[identity] = describe(path)
    return sorted(entries.values(), key=lambda entry: (not entry.license, entry.name.lower(), str(entry.path)))


def describe(path: Path) -> ModelEntry:
    """Return what the files of one model say; whatever is wrong with them is said in the entry."""
    demo = _demo_at(path)
    license_name = demo.license if demo else ""
    try:
        files = ModelFiles.open(path)
        size_bytes = files.size_bytes
    except (RingsideError, OSError) as error:
        kind: Literal["gguf", "folder"] = "folder" if path.is_dir() else "gguf"
        return ModelEntry(_name_of(path), path, kind, license=license_name, problem=str(error))
    try:
        config = files.config()
    except RingsideError:
        config = None  # why, is among the refusals
    return ModelEntry(
        name=files.name,
        path=files.path,
        kind=files.kind,
        size_bytes=size_bytes,
        stored_as=files.stored_as,
        architecture=config.architecture if config else _architecture(files),
        config=config,
        license=license_name,
        refusals={backend: reason for backend, reason in runnable_by(files).items() if reason},
    )


def resolve(name: str, report: Report, models_home: Path | None = None, hub_cache: Path | None = None) -> Path:
    """Return the path of what a person named as a model, fetching it first if need be.

    Args:
        name: a path, the name of a demo, or a hub id (`owner/name`, `owner/name:file.gguf`).
        report: told what is being fetched and how far it is.
        models_home: data folder that holds the demos; None takes the user's.
        hub_cache: None takes the hub library's usual one.

    Raises:
        ModelFileError: there is nothing by that name, or it cannot be fetched.
    """
    path = Path(name).expanduser()
    if path.exists():
        return ModelFiles.open(path).path
    if name in DEMOS:
        return ensure_demo(name, models_home or data_folder(), report)
    looks_like_a_path = name.startswith((".", "~", "/")) or "\\" in name or (":" not in name and name.endswith(".gguf"))
    hub_id = None if looks_like_a_path else HubId.parse(name)
    if hub_id is None:
        raise ModelFileError(
            f"There is no model {name!r}.",
            f"Give a GGUF file, a Hugging Face folder, a hub id (owner/name) or one of {', '.join(DEMOS)}.",
        )
    return fetch(hub_id, report, hub_cache)


def _candidates(folders: Sequence[Path], hub_cache: Path | None) -> Iterator[Path]:
    for folder in folders:
        yield from _models_below(folder.expanduser(), _MAX_DEPTH, set())
    if hub_cache is not None and hub_cache.is_dir():
        for repo in sorted(hub_cache.glob("models--*")):
            yield from _models_of_repo(repo)


def _models_of_repo(repo: Path) -> Iterator[Path]:
    """Yield the models of the newest snapshot that holds any."""
    for snapshot in repo_snapshots(repo):
        if models := list(_models_below(snapshot, _MAX_DEPTH, set())):
            yield from models
            return


def _models_below(folder: Path, depth: int, seen: set[Path]) -> Iterator[Path]:
    """Yield the model folders and GGUF files below a folder, following links but no circle of them."""
    try:
        identity = folder.resolve()
        names = sorted(os.listdir(folder))
    except (OSError, RuntimeError):
        return
    if identity in seen:
        return
    seen.add(identity)
    if "config.json" in names and _is_model_folder(folder, names):
        yield folder
    for name in names:
        path = folder / name
        if name.endswith(".gguf") and _is_first_file(name):
            yield path
        elif depth and not name.startswith(".") and path.is_dir():
            yield from _models_below(path, depth - 1, seen)


def _is_model_folder(folder: Path, names: Sequence[str]) -> bool:
    """Whether a folder with a config.json is a model's: any program may have a file of that name."""
    if any(name.endswith(".safetensors") for name in names):
        return not any(name == "adapter_config.json" for name in names)
    try:
        config = read_json(folder / "config.json")
    except ModelFileError:
        return False
    is_gguf_repo = any(name.endswith(".gguf") for name in names)
    return "model_type" in config and "architectures" in config and not is_gguf_repo


def _is_first_file(name: str) -> bool:
    return not name.startswith("mmproj") and ("-of-" not in name or "-00001-of-" in name)


def _demo_at(path: Path) -> Demo | None:
    return next((demo for demo in DEMOS.values() if demo.file_name == path.name and _has_size(path, demo)), None)


def _has_size(path: Path, demo: Demo) -> bool:
    return path.is_file() and path.stat().st_size == demo.num_bytes


def _name_of(path: Path) -> str:
    """Return the hub id of a cached repository's folder, else the file's or folder's name."""
    repo = next((part for part in reversed(path.parts) if part.startswith("models--")), None)
    return path.name if repo is None or path.suffix == ".gguf" else repo.removeprefix("models--").replace("--", "/")


def _architecture(files: ModelFiles) -> str:
    if files.gguf is not None:
        return files.gguf.architecture
    names = read_json(files.path / "config.json").get("architectures")
    return str(names[0]) if isinstance(names, list) and names else ""
