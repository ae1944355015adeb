"""Messages as they are kept, and how a row of the store becomes one."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any, Literal

from app.content import Content, Layout, Note, Span, unpack_layout
from app.database import Database, unpacked_ids

MessageStatus = Literal["queued", "running", "complete", "cancelled", "cut", "error"]
"""queued and running: being written in this process. complete: the model ended it, or its length limit did.
cancelled: a person stopped it. cut: the application or machine went down in the middle. error: see `error`."""


@dataclass(frozen=True)
class StoredMessage:
    """One turn as kept.

    Attributes:
        text: exactly as typed or generated.
        token_ids: of a reply, all ids drawn for it, continuations included; empty for a user's text.
        finish_reason: "stop", "length", "cancelled", "error", "time", "loop"; empty while it is written or was cut.
        error: one sentence and the way out, for status "error".
        seed: used for the reply (the last stretch of it, if it was continued).
        model_name, backend: what wrote it.
        parent_id: the message it answers or follows; None for a first one. Messages of one parent are variants.
        version: grows whenever the text is changed other than by adding to a run; a stale tab is told by it.
        opening: mark of reasoning that the prompt ended with and the text lacks, see `models.reasoning`.
        layout: which stretches of the text were drawn and which typed, see `app.content`.
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
    parent_id: int | None = None
    version: int = 0
    layout: Layout = ()
    opening: str = ""

    @property
    def content(self) -> Content:
        """Text, ids and layout together."""
        return Content(self.text, self.token_ids, self.layout)


SELECT_MESSAGE = """SELECT id, chat_id, role, text, token_ids, status, created_at_s, finish_reason, error, seed,
                           model_name, backend, parent_id, version, layout, opening FROM messages"""


def message_from(database: Database, row: tuple[Any, ...]) -> StoredMessage:
    """Return the message of a `SELECT_MESSAGE` row; one being written with its journal."""
    message_id, chat_id, role, text, token_ids, status, created_at_s, reason, error, seed, *rest = row
    model, backend, parent_id, version, layout, opening = rest
    content = Content(text, unpacked_ids(token_ids), unpack_layout(layout))
    if status in ("queued", "running"):
        content = content.plus(journal_content(database, message_id))
    seed = None if seed is None else int(seed)
    return StoredMessage(
        message_id,
        chat_id,
        role,
        content.text,
        status,
        created_at_s,
        content.token_ids,
        reason,
        error,
        seed,
        model,
        backend,
        parent_id,
        version,
        content.layout,
        opening,
    )


def journal_content(database: Database, message_id: int) -> Content:
    """Return what the journal holds of a message."""
    texts: list[str] = []
    token_ids = array("i")
    layout: list[Span | Note] = []
    sql = "SELECT text, token_ids, note FROM journal WHERE message_id = ? ORDER BY id"
    for text, packed, note in database.read(sql, message_id):
        if note:
            layout.append(Note(note))
            continue
        ids = unpacked_ids(packed)
        texts.append(text)
        token_ids += ids
        layout.append(Span(len(text), len(ids)))
    return Content("".join(texts), token_ids, tuple(layout))
