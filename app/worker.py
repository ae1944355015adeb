"""The process that holds one model: loads it, runs generations, and talks over a pipe in small frozen values.

The main thread belongs to the backend. A listener thread takes cancel and shutdown; what a generation brings goes out
by `app.outbox`. `app.worker_process` is the other end.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection

from typing_extensions import assert_never

from app.fed_prompts import FedPrompt
from app.outbox import SEND_INTERVAL_S, Outbox
from app.saved_states import StateKeeper
from app.steering import NoteGiven, steered
from app.worker_failures import failure
from app.worker_messages import (
    Cancel,
    Command,
    Ended,
    Generate,
    GenerateTogether,
    LoadFailed,
    PromptFed,
    Ready,
    Report,
    Shutdown,
)
from backends import registry
from backends.contract import Backend, DraftsTogether, SpellsTokens
from backends.errors import RingsideError
from backends.events import Event, Finished, LoadProgress, PrefillProgress
from backends.requests import LoadRequest
from models.catalog import resolve

_MAX_LOG_BYTES = 2_000_000
_KEPT_LOGS = 3

logger = logging.getLogger(__name__)


def run_worker(connection: Connection, request: LoadRequest, log_path: str | None) -> None:
    """Entry point of the process; returns when told to shut down or when the engine is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal; the engine decides what ends
    if log_path is not None:
        _send_output_to(log_path)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logger.info("worker %d loads %s with %s", os.getpid(), request.model, request.backend)
    _Worker(connection, request).run()


class _Worker:
    def __init__(self, connection: Connection, request: LoadRequest) -> None:
        self._connection = connection
        self._request = request
        self._send_lock = threading.Lock()
        self._commands: queue.SimpleQueue[Generate | GenerateTogether | Shutdown] = queue.SimpleQueue()
        self._cancelled: set[int] = set()
        self._closing = threading.Event()
        self._last_progress = ("", 0.0)

    def run(self) -> None:
        threading.Thread(target=self._listen, name="listener", daemon=True).start()
        loaded: list[Backend] = []
        error = failure(lambda: loaded.append(self._load()))
        if error is not None:
            self._send(LoadFailed(error))
            return
        backend = loaded.pop()
        states = StateKeeper(backend)
        self._send(Ready(backend.info, backend.memory()))
        while True:
            command = self._commands.get()
            if isinstance(command, Shutdown):
                break
            self._generate(backend, command, states)
        failure(backend.close)

    def _load(self) -> Backend:
        request = self._request
        if request.backend != "echo":
            # Here and not in the page's process: fetching a model can be cancelled by ending this one.
            path = resolve(request.model, self._report_progress)
            request = replace(request, model=str(path))
        return registry.load(request, self._report_progress)

    def _listen(self) -> None:
        """Take commands until told to shut down; exit at once if the engine's process is gone."""
        while True:
            try:
                command: Command = self._connection.recv()
            except (EOFError, OSError):
                os._exit(1)
            match command:
                case Cancel(number=number):
                    self._cancelled.add(number)
                case Generate() | GenerateTogether():
                    self._commands.put(command)
                case Shutdown():
                    self._closing.set()
                    self._commands.put(command)
                case _:
                    assert_never(command)

    def _generate(self, backend: Backend, command: Generate | GenerateTogether, states: StateKeeper) -> None:
        numbers = (command.number,) if isinstance(command, Generate) else command.numbers
        outboxes = {number: Outbox(number, self._send, backend.memory) for number in numbers}

        def is_cancelled(number: int) -> bool:
            return self._closing.is_set() or number in self._cancelled

        def generate() -> None:
            states.begin(command.state)
            for number, event in _events(backend, command, is_cancelled):
                states.save_if_due()
                if isinstance(event, PrefillProgress) and event.prompt_ids:
                    self._send(PromptFed(number, _spelled(backend, event.prompt_ids)))
                    event = replace(event, prompt_ids=())
                if isinstance(event, Finished):
                    self._end(number, outboxes.pop(number), event)
                else:
                    outboxes[number].take(event)

        facts = backend.info
        error = failure(generate)
        if backend.info.notices != facts.notices:
            self._send(Ready(backend.info, backend.memory()))
        if error is None and outboxes:
            error = RingsideError("The backend ended a reply without saying why.", "Please report this.")
        for number, outbox in outboxes.items():
            self._end(number, outbox, Finished("error"), error)
        if error is None and not self._closing.is_set():
            failure(states.save)

    def _end(self, number: int, outbox: Outbox, finished: Finished, error: RingsideError | None = None) -> None:
        if finished.reason != "error":
            outbox.settle()
        num_tokens = outbox.close()
        if error is not None:
            finished = Finished("error", num_generated_tokens=num_tokens, message=str(error))
        elif finished.reason == "error":
            error = RingsideError(finished.message)
        self._send(Ended(number, finished, outbox.time_s(), error))

    def _report_progress(self, progress: LoadProgress) -> None:
        stage, sent_at_s = self._last_progress
        if progress.stage != stage or time.perf_counter() - sent_at_s >= SEND_INTERVAL_S:
            self._last_progress = (progress.stage, time.perf_counter())
            self._send(progress)

    def _send(self, report: Report) -> None:
        with self._send_lock:
            try:
                self._connection.send(report)
            except OSError:
                os._exit(1)  # the engine is gone; nobody is left to tell


def _events(
    backend: Backend, command: Generate | GenerateTogether, is_cancelled: Callable[[int], bool]
) -> Iterator[tuple[int, Event | NoteGiven]]:
    """Yield what happens, with the number of the generation it happens in."""
    if isinstance(command, GenerateTogether):
        assert isinstance(backend, DraftsTogether), "see `LoadedModel.drafts_together`"
        numbers = command.numbers
        together = backend.generate_together(command.request, command.seeds, lambda row: is_cancelled(numbers[row]))
        yield from ((numbers[row], event) for row, event in together)
        return
    number = command.number
    if command.steering is None:
        events: Iterator[Event | NoteGiven] = backend.generate(command.request, lambda: is_cancelled(number))
    else:
        events = steered(backend, command.request, command.steering, lambda: is_cancelled(number))
    yield from ((number, event) for event in events)


def _spelled(backend: Backend, token_ids: tuple[int, ...]) -> FedPrompt:
    piece = backend.piece if isinstance(backend, SpellsTokens) else None
    return FedPrompt(token_ids, {} if piece is None else {token_id: piece(token_id) for token_id in set(token_ids)})


def _send_output_to(log_path: str) -> None:
    """Let everything this process and its libraries print go to a log file, the older ones renamed when it is large."""
    if os.path.exists(log_path) and os.path.getsize(log_path) > _MAX_LOG_BYTES:
        for age in range(_KEPT_LOGS, 0, -1):
            newer = f"{log_path}.{age - 1}" if age > 1 else log_path
            if os.path.exists(newer):
                os.replace(newer, f"{log_path}.{age}")
    descriptor = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)
