"""What a llama.cpp context holds, in a file: a text of any length goes on after a restart without being read again.

The library's own copy of the sequence comes with what `sequence` knows of it, and with what it belongs to. The library
trusts such copies blindly, so they are read only where a checksum says that they are whole.
"""

from __future__ import annotations

import json
import zlib
from array import array
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from backends.errors import BadRequestError

FORMAT = "ringside llamacpp 1"
"""Changes with what the file holds."""

_AGAIN = "The text is read anew."


@dataclass(frozen=True)
class Place:
    """Where a sequence stands; see `backends.llamacpp.sequence.TokenSequence`."""

    num_cells: int
    next_position: int
    fed_at_last_drop: int
    sinks_at_last_drop: int
    batch_starts: tuple[int, ...]


def write_state(path: str, fed: array[int], place: Place, cells: bytes, identity: Mapping[str, str]) -> int:
    """Write a state; return the bytes of the file. What is at `path` is written over.

    Args:
        fed: tokens, int32.
        cells: the library's copy of the sequence.
        identity: what the state belongs to, by name.
    """
    content = fed.tobytes() + cells
    header = {
        "format": FORMAT,
        "identity": dict(identity),
        "place": asdict(place),
        "num_tokens": len(fed),
        "checksum": zlib.crc32(content),
    }
    Path(path).write_bytes(json.dumps(header).encode() + b"\n" + content)
    return Path(path).stat().st_size


def read_state(path: str, identity: Mapping[str, str]) -> tuple[array[int], Place, bytes]:
    """Read what `write_state` wrote.

    Raises:
        BadRequestError: the file is damaged, of another format, or belongs to something else, which is named.
    """
    header, content = _split(path)
    belongs_to = header["identity"]
    for name in {**identity, **belongs_to}:
        if belongs_to.get(name) != identity.get(name):
            here = identity.get(name)
            raise BadRequestError(
                f"The saved state {path} is of {name} {belongs_to.get(name)!r}, and this is {here!r}.", _AGAIN
            )
    fed = array("i")
    num_bytes = header["num_tokens"] * fed.itemsize
    fed.frombytes(content[:num_bytes])
    place = header["place"]
    return fed, Place(**{**place, "batch_starts": tuple(place["batch_starts"])}), content[num_bytes:]


def identity_in(path: str) -> dict[str, str]:
    """Return what the state in a file belongs to. Raises BadRequestError as `read_state` does."""
    return dict(_split(path)[0]["identity"])


def _split(path: str) -> tuple[dict[str, Any], bytes]:
    """Return the header of a whole file, and what follows it."""
    try:
        line, _, content = Path(path).read_bytes().partition(b"\n")
        header = json.loads(line)
        is_whole = header["format"] == FORMAT and header["checksum"] == zlib.crc32(content)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadRequestError(f"The saved state {path} cannot be read: {error}.", _AGAIN) from error
    if not is_whole:
        raise BadRequestError(f"The saved state {path} cannot be read: it is not whole, or of another kind.", _AGAIN)
    return header, content
