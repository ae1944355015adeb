"""Links to files that are gone, as a moved or cleaned download cache leaves them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from backends.errors import ModelFileError


def refuse_dangling(paths: Iterable[Path]) -> None:
    """Check that no path is a link to nothing.

    Raises:
        ModelFileError: names the first such link and where it points.
    """
    for path in paths:
        if path.is_symlink() and not path.exists():
            raise ModelFileError(
                f"{path} is a link to {path.readlink()}, which is not there.",
                "Download the model again, or mend the link.",
            )
