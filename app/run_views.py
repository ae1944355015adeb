"""What a run shows: where it is, how it ended, and everything a follower needs at one moment. See `app.runs`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from app.metrics import Summary
from backends.contract import LoadedModel
from backends.events import FinishReason, LoadProgress, PrefillProgress

RunStatus = Literal["queued", "loading", "prefill", "running", "finished"]


@dataclass(frozen=True)
class Ending:
    """How a run ended: the reason, the seed used, and for "error" one sentence and the way out."""

    reason: FinishReason
    seed: int | None = None
    error: str = ""
    hint: str = ""


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
