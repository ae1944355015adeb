"""One configuration, one fresh worker process, one reply, and everything measured on the way.

A `Measurement` grows while the reply is written and is worth reading at any moment: whoever stops early keeps it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from typing_extensions import assert_never

from app.worker_messages import Cancel, Command, Ended, Generate, LoadFailed, Noted, PromptFed, Ready, Report, Update
from app.worker_process import WorkerProcess
from backends.contract import LoadedModel
from backends.errors import RingsideError
from backends.events import Finished, LoadProgress
from backends.requests import GenerationRequest, LoadRequest

MAX_POINTS = 4000
_POLL_S = 0.5


@dataclass(frozen=True)
class Point:
    """Figures at one moment of a reply. Bytes are None where the backend has no such figure, or not yet."""

    tokens: int
    time_s: float
    process_bytes: int
    position_tokens: int | None = None
    kv_held_bytes: int | None = None
    kv_allocated_bytes: int | None = None
    kv_full_bytes: int | None = None
    device_process_bytes: int | None = None
    device_allocated_bytes: int | None = None


@dataclass
class Measurement:
    """What is known of one run so far.

    Attributes:
        label: of the configuration.
        points: at most 4,000, evenly thinned; `tokens` counts the reply, `time_s` from its start, prefill included.
        peak_process_bytes: resident memory of the worker at most, loading left out, prefill included.
        load_s: seconds from the start of the process to a loaded model.
        first_token_s: from the start of the reply.
        num_prompt_tokens: the reply's tokens begin after them.
        capacity_tokens: of the largest bounded layer, sinks included; 0 where none is bounded.
    """

    label: str
    request: LoadRequest
    model: LoadedModel | None = None
    load_progress: LoadProgress | None = None
    load_s: float | None = None
    points: list[Point] = field(default_factory=list)
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    num_prompt_tokens: int = 0
    prompt_done_tokens: int = 0
    capacity_tokens: int = 0
    first_token_s: float | None = None
    idle_process_bytes: int = 0
    peak_process_bytes: int = 0
    finished: Finished | None = None
    error: str = ""
    _stride: int = field(default=1, repr=False)
    _num_updates: int = field(default=0, repr=False)

    def note(self, update: Update) -> None:
        """Take in what the worker sent."""
        self.text += update.text
        self.token_ids += update.token_ids
        self.peak_process_bytes = max(self.peak_process_bytes, update.process_bytes)
        if update.memory is not None:
            self.capacity_tokens = max(self.capacity_tokens, update.memory.window_tokens)
        if update.prefill is not None:
            self.num_prompt_tokens = update.prefill.total_tokens
            self.prompt_done_tokens = update.prefill.done_tokens
        if not update.token_ids:
            return
        if self.first_token_s is None:
            self.first_token_s = update.first_token_s
        self._num_updates += 1
        if self._num_updates % self._stride == 0:
            self.points.append(_point(update))
        if len(self.points) > MAX_POINTS:
            self.points = self.points[1::2]
            self._stride *= 2


class Worker(Protocol):
    """The part of `WorkerProcess` that a measurement needs."""

    def send(self, command: Command) -> None: ...

    def receive(self, timeout_s: float) -> Report | None: ...

    def process_bytes(self) -> int: ...

    def stop(self) -> None: ...


def measure(
    label: str,
    load: LoadRequest,
    request: GenerationRequest,
    log_path: Path | None = None,
    start: Callable[[LoadRequest, Path | None], Worker] = WorkerProcess,
) -> Generator[Measurement, None, None]:
    """Load, generate, unload; yield the growing measurement after every message of the worker.

    Closing the iterator ends the worker. An error a person can act on ends the run and is kept in `error`; what was
    measured before stays.
    """
    measurement = Measurement(label, load)
    started_s = time.perf_counter()
    worker = start(load, log_path)
    try:
        while measurement.finished is None and not measurement.error:
            report = _received(worker, measurement)
            if isinstance(report, Ready):
                measurement.load_s = time.perf_counter() - started_s
                measurement.idle_process_bytes = worker.process_bytes()
                worker.send(Generate(1, request))
            yield measurement
    finally:
        worker.send(Cancel(1))
        worker.stop()


def _received(worker: Worker, measurement: Measurement) -> Report | None:
    try:
        report = worker.receive(_POLL_S)
    except RingsideError as error:
        measurement.error = str(error)
        return None
    match report:
        case None | Noted() | PromptFed():
            pass
        case LoadProgress():
            measurement.load_progress = report
        case Ready(model=model):
            measurement.model = model
        case LoadFailed(error=failure):
            measurement.error = str(failure)
        case Update():
            measurement.note(report)
        case Ended(finished=finished):
            measurement.finished = finished
            measurement.error = finished.message
        case _:
            assert_never(report)
    return report


def _point(update: Update) -> Point:
    memory = update.memory
    if memory is None:
        return Point(update.num_generated_tokens, update.time_s, update.process_bytes)
    return Point(
        tokens=update.num_generated_tokens,
        time_s=update.time_s,
        process_bytes=update.process_bytes,
        position_tokens=memory.position_tokens,
        kv_held_bytes=memory.kv_held_bytes,
        kv_allocated_bytes=memory.kv_allocated_bytes,
        kv_full_bytes=memory.kv_full_bytes,
        device_process_bytes=memory.device_process_bytes,
        device_allocated_bytes=memory.device_allocated_bytes,
    )
