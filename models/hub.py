"""Models of the Hugging Face hub, fetched with its own library into its usual cache: only the files a decoder needs.

A model that lies whole in the cache is used as it is, without asking the network. What broke off goes on where it was.
"""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

from backends.errors import ModelFileError, RingsideError
from backends.events import LoadProgress
from models.gguf_reader import shard_paths
from models.hub_download import FetchProgress, Source, fetch_file
from models.model_files import ModelFiles, repo_snapshots

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo

Report = Callable[[LoadProgress], None]

_HUB_ID = re.compile(r"(?P<repo>[\w][\w.-]*/[\w][\w.-]*)(?::(?P<file>[^:]+\.gguf))?")
_SMALL_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
    "additional_chat_templates/*.jinja",
    "model.safetensors.index.json",
    "LICENSE*",
)
_WEIGHT_PATTERNS = ("model-*-of-*.safetensors", "model.safetensors", "*.safetensors")
_MAX_NAMED_FILES = 8


@dataclass(frozen=True)
class HubId:
    """A model of the hub: "owner/name", and the GGUF file where it holds several."""

    repo: str
    file: str | None = None

    @classmethod
    def parse(cls, text: str) -> HubId | None:
        """Return the id that a text spells, if it spells one.

        >>> HubId.parse("owner/name:model-Q8_0.gguf")
        HubId(repo='owner/name', file='model-Q8_0.gguf')
        """
        match = _HUB_ID.fullmatch(text)
        return None if match is None else cls(match["repo"], match["file"])

    def __str__(self) -> str:
        return self.repo if self.file is None else f"{self.repo}:{self.file}"


def hub_cache_folder() -> Path:
    """Return where the hub's library keeps models (`HF_HOME` and `HF_HUB_CACHE` move it)."""
    from huggingface_hub import constants  # a quarter of a second that most starts do not need

    return Path(constants.HF_HUB_CACHE)


def fetch(hub_id: HubId, report: Report, cache_folder: Path | None = None, endpoint: str | None = None) -> Path:
    """Return the path of a hub model (a GGUF file or a folder), fetching what is missing.

    Args:
        hub_id: what to fetch.
        report: told how far it is.
        cache_folder: None takes the hub library's usual one.
        endpoint: address of the hub; None takes `HF_ENDPOINT`, or the public one.

    Raises:
        ModelFileError: there is no such model or file, it is gated or has no weights that are safe to open, there is no
            network, or the disk is full.
    """
    cache = hub_cache_folder() if cache_folder is None else cache_folder
    if (cached := _find_cached(hub_id, cache)) is not None:
        return cached
    try:
        return _download(hub_id, cache, report, endpoint)
    except RingsideError:
        raise
    except Exception as error:  # the library's, its HTTP client's and the system's: three trees without a common root
        if (explained := _explain(hub_id, error)) is None:
            raise
        raise explained from error


def _find_cached(hub_id: HubId, cache: Path) -> Path | None:
    for snapshot in repo_snapshots(cache / f"models--{hub_id.repo.replace('/', '--')}"):
        path = snapshot if hub_id.file is None else snapshot / hub_id.file
        try:
            return ModelFiles.open(path).path
        except ModelFileError:
            continue
    return None


def _download(hub_id: HubId, cache: Path, report: Report, endpoint: str | None) -> Path:
    from huggingface_hub import HfApi

    report(LoadProgress(f"Looking up {hub_id}"))
    api = HfApi(endpoint=endpoint)
    info = api.model_info(hub_id.repo, files_metadata=True)
    sizes = _choose_files(hub_id, info)
    _require_space(hub_id, sum(sizes.values()), cache)
    progress = FetchProgress(f"Fetching {hub_id}", sum(sizes.values()), report)
    source = Source(hub_id.repo, info.sha or "main", cache, api.endpoint)
    paths = [fetch_file(source, name, size, progress) for name, size in sizes.items()]
    if paths[0].suffix == ".gguf":
        return paths[0]
    return paths[-1].parent  # weights come last and lie at the top


def _choose_files(hub_id: HubId, info: ModelInfo) -> dict[str, int]:
    """Return name -> bytes of the files to fetch, weights last.

    Raises:
        ModelFileError: the repository holds nothing that can be used, or several models.
    """
    sizes = {each.rfilename: each.size or 0 for each in info.siblings or ()}
    if hub_id.file is not None:
        return _choose_gguf(hub_id, sizes, hub_id.file)
    if "config.json" in sizes:
        for pattern in _WEIGHT_PATTERNS:
            if weights := sorted(name for name in sizes if "/" not in name and fnmatch(name, pattern)):
                small = [name for name in sizes if any(fnmatch(name, wanted) for wanted in _SMALL_FILES)]
                return {name: sizes[name] for name in (*small, *weights)}
    models = [name for name in sorted(sizes) if _is_gguf_model(name)]
    if len(models) == 1:
        return _choose_gguf(hub_id, sizes, models[0])
    if models:
        named = ", ".join(models[:_MAX_NAMED_FILES]) + (" and others" if len(models) > _MAX_NAMED_FILES else "")
        raise ModelFileError(f"{hub_id} holds {len(models)} models: {named}.", f"Name one: {hub_id.repo}:{models[0]}.")
    if any(name.endswith((".bin", ".pt", ".pth")) for name in sizes):
        raise ModelFileError(
            f"{hub_id} holds its weights in a format that can run code when opened.",
            "Choose a model in the safetensors or GGUF format.",
        )
    raise ModelFileError(f"{hub_id} holds no weights (*.safetensors or *.gguf).", "Choose another model.")


def _choose_gguf(hub_id: HubId, sizes: dict[str, int], name: str) -> dict[str, int]:
    shards = [path.as_posix() for path in shard_paths(Path(name))]
    if missing := [shard for shard in shards if shard not in sizes]:
        others = ", ".join(other for other in sorted(sizes) if _is_gguf_model(other)) or "no GGUF file at all"
        raise ModelFileError(f"{hub_id.repo} holds no {missing[0]}; it holds {others}.", "Name one of its files.")
    return {shard: sizes[shard] for shard in shards}


def _is_gguf_model(name: str) -> bool:
    """Whether a file is a model by itself: not a projector of a vision model, and of a split one only the first."""
    is_later_shard = "-of-" in name and "-00001-of-" not in name
    return name.endswith(".gguf") and not Path(name).name.startswith("mmproj") and not is_later_shard


def _require_space(hub_id: HubId, num_bytes: int, cache: Path) -> None:
    folder = next(path for path in (cache, *cache.parents) if path.exists())
    unfinished = sum(path.stat().st_size for path in cache.glob("*/blobs/*.incomplete"))
    free_bytes = shutil.disk_usage(folder).free + unfinished
    if free_bytes < num_bytes:
        raise _disk_full(hub_id, f" ({num_bytes / 1e9:.1f} GB needed, {free_bytes / 1e9:.1f} GB free)")


def _disk_full(hub_id: HubId, detail: str = "") -> ModelFileError:
    return ModelFileError(
        f"The disk is full while fetching {hub_id}{detail}.", "Free some space, or set HF_HOME to a folder elsewhere."
    )


def _explain(hub_id: HubId, error: Exception) -> ModelFileError | None:
    """Turn an error of the hub's library into one sentence; None for what is no trouble with hub, network or disk."""
    from huggingface_hub import constants, errors

    page = f"{constants.ENDPOINT}/{hub_id.repo}"
    match error:
        case errors.GatedRepoError():
            return ModelFileError(
                f"{hub_id.repo} is gated: its owner asks you to accept terms first.",
                f"Accept them at {page}, then run: hf auth login.",
            )
        case errors.RepositoryNotFoundError() | errors.RevisionNotFoundError():
            return ModelFileError(f"The hub has no model {hub_id.repo}, or it is private.", "Check the name.")
        case errors.LocalEntryNotFoundError() | errors.OfflineModeIsEnabled():
            return _offline(hub_id)
        case errors.EntryNotFoundError():
            return ModelFileError(f"{hub_id.repo} lacks a file it lists.", f"Look at {page}.")
        case errors.HfHubHTTPError():
            return ModelFileError(
                f"The hub answered {error.response.status_code} for {hub_id.repo}.", "Try again later."
            )
        case errors.HTTPError():  # type: ignore[attr-defined]  # the HTTP client's root, whichever it is
            return _offline(hub_id)
        case OSError() if error.errno == errno.ENOSPC:
            return _disk_full(hub_id)
        case OSError():
            return ModelFileError(f"{hub_id} did not arrive whole: {error}.", "Try again; it goes on where it was.")
        case _:
            return None


def _offline(hub_id: HubId) -> ModelFileError:
    return ModelFileError(
        f"{hub_id} is not on this machine, and the hub cannot be reached.", "Connect and try again, or give a file."
    )
