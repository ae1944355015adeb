"""A run: one reply being written. It belongs to the server; any number of followers read it by offset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from app.metrics import MetricsRecord, Sample, Summary
from backends.contract import LoadedModel
from backends.events import FinishReason, LoadProgress, PrefillProgress

RunStatus = Literal["queued", "loading", "prefill", "running", "finished"]


@dataclass(frozen=True)
class RunView:
    """What a follower needs at one moment, taken together under one lock.

    Attributes:
        version: pass it to `Run.wait_for_change`.
        offset: characters before `text` (as asked for).
        text: characters of the message from `offset` on.
        num_chars: of the message so far.
        num_tokens: of the message so far, earlier stretches of a continued reply included.
        queue_position: 1 is next; None when not waiting.
        reason, error, hint: once finished.
        cancelling: a stop was asked for and is not done yet.
        notice: a sentence to show beside the reply (the disk is full, for one); empty for none.
    """

    version: int
    status: RunStatus
    offset: int
    text: str
    num_chars: int
    num_tokens: int
    summary: Summary
    queue_position: int | None = None
    load_progress: LoadProgress | None = None
    prefill: PrefillProgress | None = None
    model: LoadedModel | None = None
    reason: FinishReason | None = None
    error: str = ""
    hint: str = ""
    cancelling: bool = False
    notice: str = ""


class Run:
    """One reply being written into one message.

    Text is append-only and starts with what the message held before (a continued reply); offsets count its characters.
    """

    id: str
    chat_id: int
    message_id: int

    def view(self, offset: int = 0) -> RunView:
        """Return the state and the text from `offset` on; an offset beyond the end gives no text."""
        raise NotImplementedError

    def text_from(self, offset: int) -> str:
        """Return the text from `offset` on."""
        raise NotImplementedError

    @property
    def text(self) -> str:
        """The whole text so far."""
        raise NotImplementedError

    @property
    def version(self) -> int:
        """Grows with every change."""
        raise NotImplementedError

    @property
    def finished(self) -> bool:
        """True once nothing will change any more."""
        raise NotImplementedError

    def wait_for_change(self, version: int, timeout_s: float | None = None) -> int:
        """Block until the version differs from `version` or the time is over; return the version now."""
        raise NotImplementedError

    async def changed(self, version: int, timeout_s: float | None = None) -> int:
        """`wait_for_change` for asyncio: takes no thread while waiting."""
        raise NotImplementedError

    def metrics(self) -> MetricsRecord:
        """Return the whole series, decimated, and the summary."""
        raise NotImplementedError

    def samples_since(self, sequence: int) -> tuple[int, list[Sample]] | None:
        """Return (sequence now, samples after `sequence`); None if they are no longer held: take `metrics()` again."""
        raise NotImplementedError
