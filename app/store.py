"""Chats, messages and replies as they grow, in one SQLite file."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Literal

MessageStatus = Literal["queued", "running", "complete", "cancelled", "cut", "error"]
"""queued and running: being written in this process. complete: the model ended it, or its length limit did.
cancelled: a person stopped it. cut: the application or machine went down in the middle. error: see `error`."""


@dataclass(frozen=True)
class Chat:
    """A chat's row in the list. Times are seconds since 1970, UTC."""

    id: int
    title: str
    pinned: bool
    created_at_s: float
    updated_at_s: float


@dataclass(frozen=True)
class StoredMessage:
    """One turn as kept.

    Attributes:
        text: exactly as typed or generated.
        token_ids: of a reply, all ids drawn for it, continuations included; empty for a user's text.
        finish_reason: "stop", "length", "cancelled", "error"; empty while it is written or was cut.
        error: one sentence and the way out, for status "error".
        seed: used for the reply (the last stretch of it, if it was continued).
        model_name, backend: what wrote it.
    """

    id: int
    chat_id: int
    role: Literal["user", "assistant"]
    text: str
    status: MessageStatus
    created_at_s: float
    token_ids: array[int]
    finish_reason: str = ""
    error: str = ""
    seed: int | None = None
    model_name: str = ""
    backend: str = ""
