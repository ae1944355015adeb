"""Keeps a reply on disk while it is written: within a second, or every 4 kB, the figures every quarter minute.

The engine asks at every report and four times a second, so what came is on disk `FLUSH_S` and a quarter second later: a
second, with room for a machine that is busy with other things.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from app.chat_settings import ChatSettings
from app.native_memory import trim
from app.run_views import Ending
from app.runs import Run
from app.store import MessageStatus, Store
from app.store_file import StoreError
from backends.contract import LoadedModel
from backends.events import FinishReason
from models.lone_closing import LoneClosing

FLUSH_S = 0.4
FLUSH_CHARS = 4096
METRICS_S = 15.0

_STATUS: dict[FinishReason, MessageStatus] = {
    "stop": "complete",
    "length": "complete",
    "time": "complete",
    "loop": "complete",
    "cancelled": "cancelled",
    "error": "error",
}


class ReplyKeeper:
    """Keeps one run. A disk that is full for a while loses nothing: what was not written is written later.

    Args:
        settings: what the reply is written with; backend and seed are kept with the message.
        on_reasoning: called once it shows that the reply began with reasoning that nothing opened; the message is then
            kept with the mark that it lacks.
        clock: seconds.
    """

    def __init__(
        self,
        store: Store,
        run: Run,
        settings: ChatSettings,
        on_reasoning: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._run = run
        self._settings = settings
        self._on_reasoning = on_reasoning
        self._closing: LoneClosing | None = None
        self._clock = clock
        self._flushed_at_s = self._metrics_at_s = clock()
        self._ending: Ending | None = None
        self._done = False

    @property
    def chat_id(self) -> int:
        """Where the reply belongs."""
        return self._run.chat_id

    @property
    def is_over(self) -> bool:
        """True once the run has ended."""
        return self._ending is not None

    @property
    def is_needed(self) -> bool:
        """True until the end of the run is on disk; after the run, `retry` may bring it there."""
        return not self._done

    def started(self, run: Run, model: LoadedModel) -> None:
        """See `app.jobs.Keeper`."""
        backend, seed = self._settings.load.backend, self._settings.sampling.seed
        opening = model.reasoning_opening
        self._try(lambda: self._store.mark(run.message_id, "running", backend, model.name, seed, opening))
        self._try(self._look_for_reasoning)

    def advanced(self, run: Run) -> None:
        """See `app.jobs.Keeper`."""
        now_s = self._clock()
        if run.num_unkept_chars >= FLUSH_CHARS or now_s - self._flushed_at_s >= FLUSH_S:
            self._flushed_at_s = now_s
            self._try(self._flush)
        if now_s - self._metrics_at_s >= METRICS_S:
            self._metrics_at_s = now_s
            self._try(self._keep_metrics)

    def ended(self, run: Run, ending: Ending) -> None:
        """See `app.jobs.Keeper`."""
        self._ending = ending
        self.retry()

    def retry(self) -> None:
        """Write what is left of a run that is over."""
        if self._ending is not None and not self._done:
            self._done = self._try(self._finish)

    def _flush(self) -> None:
        pieces = self._run.unkept()
        if pieces:
            self._store.journal.append(self._run.message_id, pieces)
            self._run.let_go(len(pieces))
        if self._closing is not None:
            self._note_reasoning("".join([self._closing.push(piece.text) for piece in pieces]))

    def _look_for_reasoning(self) -> None:
        message = self._store.message(self._run.message_id)
        if message is None or message.opening or self._store.chat(message.chat_id).kind == "notebook":
            return
        self._closing = LoneClosing()
        self._note_reasoning(self._closing.push(message.text))

    def _note_reasoning(self, opening: str) -> None:
        if opening:
            self._closing = None
            self._store.keep_opening(self._run.message_id, opening)
            self._on_reasoning()

    def _keep_metrics(self) -> None:
        record = self._run.metrics()
        if record.sequence:
            self._store.keep_metrics(self._run.message_id, record.pack())
        trim()

    def _finish(self) -> None:
        ending = self._ending
        assert ending is not None
        self._flush()
        if self._closing is not None:
            self._note_reasoning(self._closing.flush())
        self._keep_metrics()
        error = f"{ending.error} {ending.hint}".strip()
        self._store.finish(self._run.message_id, status_after(ending), ending.reason, error, ending.seed)
        trim()

    def _try(self, action: Callable[[], None]) -> bool:
        try:
            action()
        except StoreError as error:
            self._run.notice(f"The reply goes on but cannot be kept: {error}")
            return False
        self._run.notice("")
        return True


def status_after(ending: Ending) -> MessageStatus:
    """Return the status of a message whose run ended like this."""
    return _STATUS[ending.reason]
