"""What a generation brings, on its way to the engine: collected by the worker, sent in few messages.

What has come together goes at most 20 times a second unless it is very much, and a sign of life twice a second when
nothing comes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import psutil
from typing_extensions import assert_never

from app.steering import NoteGiven
from app.worker_failures import failure
from app.worker_messages import Noted, Report, Update
from backends.events import MemoryFigures, PrefillProgress, TextChunk

SEND_INTERVAL_S = 0.05
SIGN_OF_LIFE_S = 0.5
_MEMORY_INTERVAL_S = 0.1
_MOST_UNSETTLED = 64
"""Chunks that wait at most: a text that goes on looking like the beginning of a stop string is sent all the same."""

_MOST_WAITING_TOKENS = 2048
"""Tokens that wait to be sent at most: a generation that is faster than the application waits for it."""


class Outbox:
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
            num_waiting = len(self._token_ids)
        self._unsettled.clear()
        if num_waiting >= _MOST_WAITING_TOKENS:
            self._send_news()  # waits while the pipe is full
        else:
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
        failure(lambda: setattr(self, "_figures", self._memory()))
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
