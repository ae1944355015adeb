"""The process that holds one model: loads it, runs generations, and talks over a pipe in small frozen values.

The main thread belongs to the backend. A listener thread takes cancel and shutdown; a sender thread sends what has come
together, at most 20 times a second, and a sign of life twice a second when nothing comes. `app.worker_process` is the
other end.
"""

from __future__ import annotations

import gc
import logging
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection

import psutil
from typing_extensions import assert_never

from app.fed_prompts import FedPrompt
from app.saved_states import StateKeeper
from app.steering import NoteGiven, steered
from app.worker_messages import (
    Cancel,
    Command,
    Ended,
    Generate,
    GenerateTogether,
    LoadFailed,
    Noted,
    PromptFed,
    Ready,
    Report,
    Shutdown,
    Update,
)
from backends import registry
from backends.contract import Backend, DraftsTogether, SpellsTokens
from backends.errors import OutOfMemoryError, RingsideError
from backends.events import Event, Finished, LoadProgress, MemoryFigures, PrefillProgress, TextChunk
from backends.requests import LoadRequest
from models.catalog import resolve

SEND_INTERVAL_S = 0.05
SIGN_OF_LIFE_S = 0.5
_MEMORY_INTERVAL_S = 0.1
_MOST_UNSETTLED = 64
"""Chunks that wait at most: a text that goes on looking like the beginning of a stop string is sent all the same."""

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
        error = _failure(lambda: loaded.append(self._load()))
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
        _failure(backend.close)

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
        outboxes = {number: _Outbox(number, self._send, backend.memory) for number in numbers}

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

        error = _failure(generate)
        if error is None and outboxes:
            error = RingsideError("The backend ended a reply without saying why.", "Please report this.")
        for number, outbox in outboxes.items():
            self._end(number, outbox, Finished("error"), error)
        if error is None and not self._closing.is_set():
            _failure(states.save)

    def _end(self, number: int, outbox: _Outbox, finished: Finished, error: RingsideError | None = None) -> None:
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


class _Outbox:
    """Collects what a generation brings and sends it in few messages; `close` sends the rest.

    Memory is asked for in the generating thread, as backends expect, and not at every token.
    """

    def __init__(self, number: int, send: Callable[[Report], None], memory: Callable[[], MemoryFigures]) -> None:
        self._number = number
        self._send = send
        self._memory = memory
        self._process = psutil.Process()
        self._start_s = time.perf_counter()
        self._lock = threading.Lock()
        self._sending = threading.RLock()  # held from taking news to having sent them: they must not overtake others
        self._texts: list[str] = []
        self._token_ids: list[int] = []
        self._unsettled: list[TextChunk] = []
        self._num_tokens = 0
        self._first_token_s: float | None = None
        self._last_token_s = 0.0
        self._prefill_s = 0.0
        self._prefill: PrefillProgress | None = None
        self._figures: MemoryFigures | None = None
        self._figures_due_s = 0.0
        self._has_news = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._send_in_turn, name="sender", daemon=True)
        self._thread.start()

    def time_s(self) -> float:
        """Return seconds since the start of the generation."""
        return time.perf_counter() - self._start_s

    def take(self, event: PrefillProgress | TextChunk | NoteGiven) -> None:
        match event:
            case TextChunk():
                self.add(event)
            case PrefillProgress():
                self.note_prefill(event)
            case NoteGiven(text=text):
                self.note(text)
            case _:
                assert_never(event)

    def add(self, chunk: TextChunk) -> None:
        """Take a chunk; it waits for one that is settled, so that in a crash no ids are kept without their text."""
        self._unsettled.append(chunk)
        if chunk.is_settled or len(self._unsettled) >= _MOST_UNSETTLED:
            self.settle()

    def settle(self) -> None:
        """Let what waits be sent."""
        if not self._unsettled:
            return
        now_s = self.time_s()
        figures = self._sample_memory(now_s)
        with self._lock:
            self._texts += [chunk.text for chunk in self._unsettled]
            for chunk in self._unsettled:
                self._token_ids += chunk.token_ids
                self._num_tokens += len(chunk.token_ids)
            self._last_token_s = now_s
            if self._token_ids and self._first_token_s is None:
                self._first_token_s = now_s
            self._figures = figures
        self._unsettled.clear()
        self._has_news.set()

    def note_prefill(self, progress: PrefillProgress) -> None:
        now_s = self.time_s()
        figures = self._sample_memory(now_s)
        with self._lock:
            self._prefill, self._prefill_s = progress, now_s
            self._figures = figures
        self._has_news.set()

    def note(self, text: str) -> None:
        """Report a steering note, behind everything that came before it."""
        self.settle()
        with self._sending:
            self._send_news()
            self._send(Noted(self._number, text))

    def close(self) -> int:
        """Send what is left; return the number of tokens."""
        self._closed.set()
        self._has_news.set()
        self._thread.join()
        self._figures_due_s = 0.0
        _failure(lambda: setattr(self, "_figures", self._memory()))
        self._send_news()
        return self._num_tokens

    def _sample_memory(self, now_s: float) -> MemoryFigures | None:
        if now_s >= self._figures_due_s:
            self._figures_due_s = now_s + _MEMORY_INTERVAL_S
            return self._memory()
        return self._figures

    def _send_in_turn(self) -> None:
        while not self._closed.is_set():
            self._has_news.wait(SIGN_OF_LIFE_S)
            self._has_news.clear()
            if not self._closed.is_set():
                self._send_news()
                self._closed.wait(SEND_INTERVAL_S)

    def _send_news(self) -> None:
        with self._sending:
            with self._lock:
                update = Update(
                    number=self._number,
                    text="".join(self._texts),
                    token_ids=tuple(self._token_ids),
                    num_generated_tokens=self._num_tokens,
                    time_s=self._last_token_s if self._token_ids else self.time_s(),
                    first_token_s=self._first_token_s,
                    prefill=self._prefill,
                    prefill_s=self._prefill_s,
                    memory=self._figures,
                    process_bytes=self._process.memory_info().rss,
                )
                self._texts.clear()
                self._token_ids.clear()
                self._first_token_s = None
                self._prefill = None
            self._send(update)


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


def _failure(action: Callable[[], object]) -> RingsideError | None:
    """Run the action; return what went wrong in it as an error that crosses the pipe, None if nothing did."""
    try:
        action()
    except RingsideError as error:
        return error.with_traceback(None)  # its frames must not outlive it
    except Exception as error:  # the one place that catches everything: nothing beyond the pipe could
        logger.exception("the backend failed")
        # The frames hold what the failed call was working on, a cache or a whole model for one.
        traceback.clear_frames(error.__traceback__)
        translated = _translated(error)
    else:
        return None
    gc.collect()
    return translated


def _translated(error: Exception) -> RingsideError:
    if _is_out_of_memory(error):
        return OutOfMemoryError(
            "Memory ran out while the model was working.",
            "The text so far is kept; choose a smaller window, a smaller model, or close other programs.",
        )
    detail = " ".join(str(error).split())[:300] or "no further words"
    return RingsideError(f"The backend failed: {type(error).__name__}: {detail}.", "The log has the details.")


def _is_out_of_memory(error: Exception) -> bool:
    """Tell host and device exhaustion, in the words of Python, torch and CUDA, without importing any of them."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    said = str(error)
    return isinstance(error, RuntimeError) and any(
        words in said for words in ("out of memory", "can't allocate memory", "not enough memory")
    )


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
