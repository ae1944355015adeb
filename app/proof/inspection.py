"""Where the time of a token goes: in a loaded model, found in a process of its own, and on its way to the page."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from app.outbox import SEND_INTERVAL_S
from app.proof.isolated import stream
from app.proof.measurement import Measurement
from app.transcript import Transcript
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


def drawing_s(run: Measurement) -> float | None:
    """Return the seconds a token that making HTML of a reply takes, as often as a page asks; None without a reply.

    It is the application's time, beside the model's; what the browser does then is measured by `app.proof.page_cost`.
    """
    if not run.points or not run.token_ids:
        return None
    num_updates = max(1, round(run.points[-1].time_s / SEND_INTERVAL_S))
    step = max(1, len(run.text) // num_updates)
    transcript, started_s = Transcript(), time.perf_counter()
    for start in range(0, len(run.text), step):
        transcript.append(run.text[start : start + step])
        transcript.open_html()
    return (time.perf_counter() - started_s) / len(run.token_ids)


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
        tokens: list[int] = []

        def step() -> None:
            event = next(events)
            tokens.extend(event.token_ids if isinstance(event, TextChunk) else ())

        parts: dict[str, float] = step_profile.seconds_by_part(step, _NUM_STEPS)
    detokenising_s = step_profile.detokenising_s(Path(load.model), tokens)
    outside_s = max(0.0, parts["outside PyTorch"] - detokenising_s)
    yield parts | {"detokenising": detokenising_s, "outside PyTorch": outside_s}
