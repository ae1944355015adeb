"""Small wheels for pip to find in a folder."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path


def write_wheel(folder: Path, name: str, members: Mapping[str, bytes], version: str = "1.0") -> Path:
    """Write a pure Python wheel with the given members."""
    stem = f"{name.replace('-', '_')}-{version}"
    metadata = {
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{stem}.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{stem}.dist-info/RECORD": b"",
    }
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for files in (members, metadata):
            for member, content in files.items():
                archive.writestr(member, content)
    return path
