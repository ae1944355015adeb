"""Single files from the hub into its library's cache; a large one that broke off goes on in the program's next run.

The library itself (2.x) resumes a broken connection but starts a file again in a new process. So a large file is
written under its content's name, beside where the library keeps such contents, and handed over once whole and checked.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from filelock import FileLock

from backends.events import LoadProgress

Report = Callable[[LoadProgress], None]

_RESUMABLE_BYTES = 20_000_000
"""Files below this size simply come again."""


@dataclass(frozen=True)
class Source:
    """One state of one repository.

    Attributes:
        repo: "owner/name".
        commit: its state.
        cache: the hub library's folder.
        endpoint: address of the hub.
    """

    repo: str
    commit: str
    cache: Path
    endpoint: str

    @property
    def folder_name(self) -> str:
        """What the library calls the repository's folder."""
        return f"models--{self.repo.replace('/', '--')}"


def fetch_file(source: Source, name: str, num_bytes: int, progress: FetchProgress) -> Path:
    """Return the cached path of one file, fetching what is missing of it.

    Raises:
        Exception: those of the hub's library and its HTTP client; OSError for a disk that is full or bytes that differ.
    """
    from huggingface_hub import hf_hub_download

    if num_bytes >= _RESUMABLE_BYTES:
        _fetch_content(source, name, progress)
    where: Any = {"revision": source.commit, "cache_dir": source.cache, "endpoint": source.endpoint}
    path = hf_hub_download(source.repo, name, tqdm_class=progress.bar_class(), **where)
    progress.finish_file(num_bytes)
    return Path(path)


def _fetch_content(source: Source, name: str, progress: FetchProgress) -> None:
    """Put a file's content where the library looks for it; it then adds the link that makes it a file."""
    from huggingface_hub import get_hf_file_metadata, get_token, hf_hub_url

    url = hf_hub_url(source.repo, name, revision=source.commit, endpoint=source.endpoint)
    metadata = get_hf_file_metadata(url, endpoint=source.endpoint)
    if not metadata.etag or metadata.size is None:
        return  # not enough to check by: the library fetches it
    content = source.cache / source.folder_name / "blobs" / metadata.etag
    lock = source.cache / ".locks" / source.folder_name / f"{metadata.etag}.lock"  # the library's own
    content.parent.mkdir(parents=True, exist_ok=True)
    lock.parent.mkdir(parents=True, exist_ok=True)
    is_hub_itself = urlsplit(metadata.location).netloc == urlsplit(url).netloc
    token = get_token() if is_hub_itself else None  # the person's token is not for whoever stores the bytes
    headers = {"authorization": f"Bearer {token}"} if token else {}
    with FileLock(lock):
        if not content.exists():
            _append_rest(metadata.location, content, metadata.size, headers, progress)


def _append_rest(url: str, content: Path, num_bytes: int, headers: dict[str, str], progress: FetchProgress) -> None:
    from huggingface_hub.file_download import http_get

    partial = content.with_name(f"{content.name}.ringside.incomplete")
    if partial.exists() and partial.stat().st_size > num_bytes:
        partial.unlink()
    with partial.open("ab") as file:
        bar_class = progress.bar_class()
        http_get(url, file, resume_size=file.tell(), headers=headers, expected_size=num_bytes, tqdm_class=bar_class)
        file.flush()
        os.fsync(file.fileno())
    if not _matches(partial, content.name):
        partial.unlink()
        raise OSError("its bytes are not those the hub promised")
    os.replace(partial, content)


def _matches(path: Path, etag: str) -> bool:
    """Whether a file is what its etag says; only large files are named by their SHA-256."""
    if not re.fullmatch(r"[0-9a-f]{64}", etag):
        return True
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest() == etag


class FetchProgress:
    """Adds up the bytes of several files and reports the sum.

    Args:
        stage: what to call it.
        total_bytes: of all files.
    """

    def __init__(self, stage: str, total_bytes: int, report: Report) -> None:
        self._stage = stage
        self._total_bytes = total_bytes
        self._report = report
        self._finished_bytes = 0
        self._file_bytes = 0

    def finish_file(self, num_bytes: int) -> None:
        """Count one file as here, however much of it had to come."""
        self._finished_bytes += num_bytes
        self._file_bytes = 0
        self._tell()

    def set_file_bytes(self, num_bytes: int) -> None:
        """Say how much of the file in hand is here; the library may count it twice, as received and as written."""
        self._file_bytes = max(self._file_bytes, num_bytes)
        self._tell()

    def _tell(self) -> None:
        done_bytes = min(self._finished_bytes + self._file_bytes, self._total_bytes)
        self._report(LoadProgress(self._stage, done_bytes, self._total_bytes))

    def bar_class(self) -> Any:
        """Return what the hub's library takes for its progress bar's class; its annotation asks for a tqdm."""
        return type("_BoundBar", (_Bar,), {"progress": self})


class _Bar:
    """As much of a tqdm bar as the hub's library touches; it draws nothing and tells a `FetchProgress`."""

    progress: FetchProgress

    def __init__(self, total: int | None = None, initial: int = 0, **_look: object) -> None:
        self.total = total
        self.n = initial

    def update(self, n: float = 1) -> None:
        self.n += int(n)
        self.progress.set_file_bytes(self.n)

    def set_postfix_str(self, text: str = "", refresh: bool = True) -> None: ...

    def refresh(self) -> None: ...

    def close(self) -> None: ...

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
