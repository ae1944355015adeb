"""What a cache holds, in a file: so that a text of any length goes on after a restart without being read again.

One safetensors file: the tokens fed, every layer's filled slots, and beside them what they belong to. A file that
belongs to something else is refused: keys of another model, window or precision would be taken up without a word.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from backends.errors import BadRequestError
from models.ring_cache import CacheSnapshot

FORMAT = "ringside ring 1"
"""Changes with what the file holds and with what keys and values mean."""


def write_state(path: str, tokens: array[int], snapshot: CacheSnapshot, identity: Mapping[str, str]) -> int:
    """Write a state; return the bytes of the file. What is at `path` is written over.

    Args:
        tokens: fed, int32.
        snapshot: of the cache after them; one row, on the CPU.
        identity: what the state belongs to, by name.
    """
    tensors = {"tokens": torch.frombuffer(bytearray(tokens.tobytes()), dtype=torch.int32)}
    for number, layer in enumerate(snapshot.layers):
        for part, tensor in enumerate(layer):
            tensors[f"layer.{number}.{part}"] = tensor.contiguous()
    place = {
        "lengths": snapshot.lengths,
        "first_position": snapshot.first_position,
        "frequencies": snapshot.frequencies,
        "parts": [len(layer) for layer in snapshot.layers],
    }
    metadata = {"format": FORMAT, "place": json.dumps(place), "identity": json.dumps(dict(identity))}
    save_file(tensors, path, metadata)
    return Path(path).stat().st_size


def read_state(path: str, identity: Mapping[str, str]) -> tuple[array[int], CacheSnapshot]:
    """Read what `write_state` wrote.

    Raises:
        BadRequestError: the file is damaged, of another format, or belongs to something else, which is named.
    """
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            metadata = file.metadata() or {}
            _check(path, metadata, identity)
            place = json.loads(metadata["place"])
            tokens = array("i", file.get_tensor("tokens").numpy().tobytes())
            layers = tuple(
                tuple(file.get_tensor(f"layer.{number}.{part}") for part in range(num_parts))
                for number, num_parts in enumerate(place["parts"])
            )
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise BadRequestError(f"The saved state {path} cannot be read: {error}.", "The text is read anew.") from error
    frequencies = place["frequencies"]
    return tokens, CacheSnapshot(
        tuple(place["lengths"]),
        place["first_position"],
        layers,
        None if frequencies is None else tuple(frequencies),
    )


def identity_in(path: str) -> dict[str, str]:
    """Return what the state in a file belongs to; nothing if the file cannot be read."""
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            return dict(json.loads((file.metadata() or {})["identity"]))
    except (SafetensorError, OSError, ValueError, KeyError):
        return {}


def _check(path: str, metadata: Mapping[str, str], identity: Mapping[str, str]) -> None:
    """Raise BadRequestError naming the first thing that is not as it is here."""
    if metadata.get("format") != FORMAT:
        found = metadata.get("format", "nothing known")
        raise BadRequestError(f"The saved state {path} is {found!r}, not {FORMAT!r}.", "The text is read anew.")
    belongs_to = json.loads(metadata["identity"])
    for name in {**identity, **belongs_to}:
        if belongs_to.get(name) != identity.get(name):
            raise BadRequestError(
                f"The saved state {path} is of {name} {belongs_to.get(name)!r}, and this is {identity.get(name)!r}.",
                "The text is read anew.",
            )
