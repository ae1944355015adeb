"""Where the time of a token goes in a loaded model, found in a process of its own."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import closing

from app.proof.isolated import stream
from backends import registry
from backends.events import TextChunk
from backends.requests import GenerationRequest, LoadRequest, Message, Sampling

_NUM_STEPS = 16


def seconds_by_part(load: LoadRequest, depth_tokens: int) -> dict[str, float] | None:
    """Return the seconds of a token by part, past `depth_tokens` tokens; None where the backend is not PyTorch's.

    Raises:
        RingsideError: as loading and generating do.
    """
    if load.backend != "ring":
        return None
    return next(iter(stream(__name__, "profiled", load, depth_tokens)), None)


def profiled(load: LoadRequest, depth_tokens: int) -> Iterator[dict[str, float]]:
    """Load, write up to the depth, profile some steps; runs in the process of its own."""
    backend = registry.load(load, lambda progress: None)
    request = GenerationRequest(
        messages=(Message("user", "word " * max(1, depth_tokens)),), sampling=Sampling(seed=0), ignore_end=True
    )
    with closing(backend):
        events = backend.generate(request, lambda: False)
        next(event for event in events if isinstance(event, TextChunk))
        step_profile = importlib.import_module("models.step_profile")
        yield step_profile.seconds_by_part(lambda: next(events), _NUM_STEPS)
