"""A run: one reply being written. It belongs to the server; any number of followers read it by offset.

The engine's thread is the only writer. Followers may come late, from any offset, from threads or from asyncio;
a slow one gets larger pieces and holds nobody up. What the keeper of the reply has brought to the store is let go here
and read from there, so that a run takes the same memory however long it gets.
"""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from array import array
from collections.abc import Callable
from dataclasses import dataclass, replace

from app.journal import Written
from app.metrics import MetricsRecord, MetricsRecorder, Sample
from app.run_views import Ending, RunStatus, RunView
from app.textlog import TextLog
from app.worker_messages import Update
from backends.contract import LoadedModel
from backends.events import LoadProgress, PrefillProgress

HELD_CHARS = 16_384
"""Kept text that is held all the same: followers that are up to date read it without asking the store."""

PIECE_CHARS = 4_096
"""A piece to be kept is no longer than this and one report."""


@dataclass(frozen=True)
class _State:
    """Everything a view shows besides text and figures."""

    status: RunStatus = "queued"
    queue_position: int | None = None
    load_progress: LoadProgress | None = None
    prefill: PrefillProgress | None = None
    model: LoadedModel | None = None
    ending: Ending | None = None
    cancelling: bool = False
    notice: str = ""
    warning: str = ""


class Run:
    """One reply being written into one message.

    Text is append-only and starts with what the message held before (a continued reply); offsets count its characters.

    Args:
        chat_id, message_id: where the reply is kept.
        num_chars, num_tokens, metrics: of the reply so far, if it is being continued.
        ends_message: whether nothing of the message stands behind what is written.
        read_kept: returns the characters [start, end) of the message from where they are kept; needed for what the run
            started with, and for what `let_go` says is kept.
        clock: seconds, for the figures.
    """

    def __init__(
        self,
        chat_id: int,
        message_id: int,
        *,
        num_chars: int = 0,
        num_tokens: int = 0,
        ends_message: bool = True,
        metrics: MetricsRecord | None = None,
        read_kept: Callable[[int, int], str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.id = uuid.uuid4().hex
        self.chat_id = chat_id
        self.message_id = message_id
        self.ends_message = ends_message
        self._changed = threading.Condition()
        self._version = 0
        self._text = TextLog(num_chars=num_chars)
        self._num_tokens = num_tokens
        self._read_kept = read_kept
        self._unkept: list[Written] = []
        self._metrics = MetricsRecorder(clock, metrics)
        self._state = _State()
        self._wakers: set[Callable[[], None]] = set()

    # For followers

    def view(self, offset: int = 0) -> RunView:
        """Return the state and the text from `offset` on; an offset beyond the end gives no text."""
        older = self._older_text(offset)
        with self._changed:
            state, ending = self._state, self._state.ending or Ending("error")
            return RunView(
                version=self._version,
                status=state.status,
                offset=offset,
                text=older + self._text_here(offset + len(older)),
                num_chars=self._text.num_chars,
                num_tokens=self._num_tokens,
                summary=self._metrics.summary(),
                queue_position=state.queue_position,
                load_progress=state.load_progress,
                prefill=state.prefill,
                model=state.model,
                reason=ending.reason if state.ending else None,
                error=ending.error,
                hint=ending.hint,
                cancelling=state.cancelling,
                notice=state.notice or state.warning,
            )

    def text_from(self, offset: int) -> str:
        """Return the text from `offset` on."""
        older = self._older_text(offset)
        with self._changed:
            return older + self._text_here(offset + len(older))

    @property
    def text(self) -> str:
        """The whole text so far."""
        return self.text_from(0)

    @property
    def num_chars(self) -> int:
        """Characters so far."""
        return self._text.num_chars

    @property
    def num_tokens(self) -> int:
        """Tokens so far, earlier stretches included."""
        return self._num_tokens

    @property
    def num_unkept_chars(self) -> int:
        """Characters that nobody has kept yet."""
        return self._text.num_chars - self._unkept[0].start_chars if self._unkept else 0

    def unkept(self) -> tuple[Written, ...]:
        """Return what nobody has kept yet, in order."""
        with self._changed:
            return tuple(self._unkept)

    @property
    def version(self) -> int:
        """Grows with every change."""
        return self._version

    @property
    def status(self) -> RunStatus:
        """Where the run is on its way from queued to finished."""
        return self._state.status

    @property
    def finished(self) -> bool:
        """True once nothing will change any more."""
        return self._state.status == "finished"

    @property
    def ending(self) -> Ending | None:
        """How it ended; None before that."""
        return self._state.ending

    @property
    def cancelling(self) -> bool:
        """True once a stop was asked for."""
        return self._state.cancelling

    def wait_for_change(self, version: int, timeout_s: float | None = None) -> int:
        """Block until the version differs from `version` or the time is over; return the version now."""
        with self._changed:
            self._changed.wait_for(lambda: self._version != version, timeout_s)
            return self._version

    def wait_until_finished(self, timeout_s: float | None = None) -> bool:
        """Block until the run is over or the time is; tell whether it is over."""
        with self._changed:
            return self._changed.wait_for(lambda: self.finished, timeout_s)

    async def changed(self, version: int, timeout_s: float | None = None) -> int:
        """`wait_for_change` for asyncio: takes no thread while waiting."""
        loop, event = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(event.set)

        with self._changed:
            if self._version != version:
                return self._version
            self._wakers.add(wake)
        try:
            await asyncio.wait_for(event.wait(), timeout_s)
        except asyncio.TimeoutError:
            pass
        finally:
            with self._changed:
                self._wakers.discard(wake)
        return self._version

    @property
    def loop_tokens(self) -> int | None:
        """The length of what the reply repeats over and over; None while it does not, see `app.loops`."""
        with self._changed:
            return self._metrics.loop_tokens

    def metrics(self) -> MetricsRecord:
        """Return the whole series, decimated, and the summary."""
        with self._changed:
            return self._metrics.record()

    def samples_since(self, sequence: int) -> tuple[int, list[Sample]] | None:
        """Return (sequence now, samples after `sequence`); None if they are no longer held: take `metrics()` again."""
        with self._changed:
            return self._metrics.samples_since(sequence)

    # For the engine

    def wait_at(self, queue_position: int) -> None:
        """Note the place in the queue; 1 is next."""
        self._set(queue_position=queue_position)

    def load(self, progress: LoadProgress | None) -> None:
        """Note that the model is being loaded."""
        self._set(status="loading", queue_position=None, load_progress=progress)

    def start(self, model: LoadedModel) -> None:
        """Note that the worker has the request."""
        with self._changed:
            self._metrics.start()
        self._set(status="prefill", queue_position=None, load_progress=None, model=model)

    def advance(self, update: Update) -> None:
        """Add what the worker reports."""
        with self._changed:
            if update.prefill is not None:
                self._metrics.prefill(update.prefill, update.prefill_s)
                self._state = replace(self._state, prefill=update.prefill)
            if update.token_ids and self._state.status != "running":
                self._state = replace(self._state, status="running")
            self._add(update.text, update.token_ids)
            self._metrics.advance(update)
            self._notify()

    def steer(self, note: str) -> None:
        """Add a note that the model was given behind the text so far."""
        with self._changed:
            self._unkept.append(Written(self._text.num_chars, "", array("i"), note))

    def let_go(self, num_pieces: int) -> None:
        """Take the first pieces of `unkept` as kept: `read_kept` gives their text from now on."""
        with self._changed:
            del self._unkept[:num_pieces]
            if self._read_kept is not None:
                self._text.let_go(self._text.num_chars - self.num_unkept_chars - HELD_CHARS)

    def ask_to_stop(self) -> None:
        """Note that a stop was asked for."""
        self._set(cancelling=True)

    def notice(self, sentence: str) -> None:
        """Show a sentence beside the reply; empty takes it away."""
        if sentence != self._state.notice:
            self._set(notice=sentence)

    def warn(self, sentence: str) -> None:
        """Show a sentence about the text itself where no notice is shown; empty takes it away."""
        if sentence != self._state.warning:
            self._set(warning=sentence)

    def finish(self, ending: Ending, time_s: float = 0.0) -> None:
        """End the run; the first ending counts."""
        with self._changed:
            if self._state.ending is not None:
                return
            self._metrics.end(time_s)
        self._set(status="finished", ending=ending, queue_position=None, load_progress=None)

    def _add(self, text: str, token_ids: tuple[int, ...]) -> None:
        if not text and not token_ids:
            return
        last = self._unkept[-1] if self._unkept else None
        if last is None or last.note or len(last.text) >= PIECE_CHARS:
            self._unkept.append(Written(self._text.num_chars, text, array("i", token_ids)))
        else:
            last.token_ids.extend(token_ids)
            self._unkept[-1] = replace(last, text=last.text + text)
        self._text.append(text)
        self._num_tokens += len(token_ids)

    def _older_text(self, offset: int) -> str:
        """Return the text from `offset` up to what is held here; read without the lock, since kept text stays kept."""
        return self._kept_text(offset, self._text.start)

    def _text_here(self, offset: int) -> str:
        """Return the text from `offset` on, with the little that may just have been let go. The lock is held."""
        start = self._text.start
        return self._kept_text(offset, start) + self._text.text_from(max(offset, start))

    def _kept_text(self, start: int, end: int) -> str:
        return self._read_kept(start, end) if self._read_kept is not None and 0 <= start < end else ""

    def _set(self, **changes: object) -> None:
        with self._changed:
            self._state = replace(self._state, **changes)  # type: ignore[arg-type]
            self._notify()

    def _notify(self) -> None:
        self._version += 1
        self._changed.notify_all()
        for wake in self._wakers:
            try:
                wake()
            except RuntimeError:  # that follower's event loop is closed; it will not read this
                continue
        self._wakers.clear()
