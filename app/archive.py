"""Whole chats as values: read out of a store for export, and added to one from an import or another store.

What the values look like in files is the business of `app.chat_json` and its neighbours.
"""

from __future__ import annotations

import sqlite3
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from app.content import Layout, pack_layout
from app.database import Database, packed_ids, row_id
from app.input_rules import MAX_FOLDER_CHARS, MAX_TITLE_CHARS, title_from
from app.journal import Journal
from app.message_rows import SELECT_MESSAGE, MessageStatus, StoredMessage, message_from
from app.store import ChatKind
from backends.errors import BadRequestError

BEGINNING = -1
"""What a message follows that begins its chat."""


@dataclass(frozen=True)
class ArchivedMessage:
    """One turn with all that is kept of it; see `StoredMessage`.

    Attributes:
        follows: place in the chat of the message it follows; None for the one before it, as usual. Messages that follow
            the same one are variants.
        packed_metrics: figures of a reply as `MetricsRecord.pack` gives them; None without any.
    """

    role: Literal["user", "assistant"]
    text: str
    follows: int | None = None
    status: MessageStatus = "complete"
    token_ids: array[int] = field(default_factory=lambda: array("i"))
    layout: Layout = ()
    opening: str = ""
    finish_reason: str = ""
    error: str = ""
    seed: int | None = None
    model_name: str = ""
    backend: str = ""
    created_at_s: float = 0.0
    packed_metrics: bytes | None = None


@dataclass(frozen=True)
class LeftOut:
    """Things of one kind that a file holds and a chat here has no place for; the kind is named for one and several."""

    one: str
    several: str
    count: int


@dataclass(frozen=True)
class ArchivedChat:
    """A chat with its messages, oldest first. Times are seconds since 1970, UTC; 0 where they are not known.

    Attributes:
        leaf: place of the last message on screen; None for the last of all.
        settings: flat JSON, see `app.chat_settings`; empty for none.
        left_out: of the file it was read from; this is said once and not kept.
    """

    title: str
    messages: tuple[ArchivedMessage, ...]
    leaf: int | None = None
    kind: ChatKind = "chat"
    folder: str = ""
    pinned: bool = False
    created_at_s: float = 0.0
    updated_at_s: float = 0.0
    settings: str = ""
    left_out: tuple[LeftOut, ...] = ()

    @property
    def shown(self) -> list[ArchivedMessage]:
        """The messages on screen: the way to the leaf."""
        path: list[ArchivedMessage] = []
        place = len(self.messages) - 1 if self.leaf is None else self.leaf
        while place > BEGINNING:
            message = self.messages[place]
            path.insert(0, message)
            place = place - 1 if message.follows is None else message.follows
        return path


class Archive:
    """The chats in one store, those of a running application too: what is being written comes as far as it is kept."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def chat_ids(self) -> list[int]:
        """Return the ids of all chats, oldest first."""
        return [row[0] for row in self._database.read("SELECT id FROM chats ORDER BY id")]

    def chat(self, chat_id: int) -> ArchivedChat:
        """Read a chat, as it is at one moment, without what was deleted.

        Raises:
            BadRequestError: there is none.
            StoreError: the file cannot be read.
        """
        with self._database.holding():
            rows = self._database.read(_SELECT_CHAT, chat_id)
            if not rows:
                raise BadRequestError("This chat is no longer there.", "It was deleted; choose another.")
            title, leaf_id, kind, folder, pinned, created_at_s, updated_at_s, settings = rows[0]
            found = [message_from(self._database, row) for row in self._database.read(_SELECT_MESSAGES, chat_id)]
            metrics = dict(self._database.read(_SELECT_METRICS, chat_id))
            places = {message.id: place for place, message in enumerate(found)}
            messages = tuple(self._archived(message, places, metrics.get(message.id)) for message in found)
        leaf = places.get(leaf_id)
        leaf = None if leaf == len(found) - 1 else leaf
        return ArchivedChat(title, messages, leaf, kind, folder, bool(pinned), created_at_s, updated_at_s, settings)

    def add(self, chats: Sequence[ArchivedChat]) -> list[int]:
        """Add chats, all or none of them; return their new ids. Raises StoreError."""
        with self._database.writing() as connection:
            return [_add(connection, _named(chat)) for chat in chats]

    def _archived(self, message: StoredMessage, places: dict[int, int], packed: bytes | None) -> ArchivedMessage:
        content = message.content.plus(Journal(self._database).behind(message.id))
        follows = BEGINNING if message.parent_id is None else places.get(message.parent_id, BEGINNING)
        return ArchivedMessage(
            role=message.role,
            text=content.text,
            follows=None if follows == places[message.id] - 1 else follows,
            status=message.status,
            token_ids=content.token_ids,
            layout=content.layout,
            opening=message.opening,
            finish_reason=message.finish_reason,
            error=message.error,
            seed=message.seed,
            model_name=message.model_name,
            backend=message.backend,
            created_at_s=message.created_at_s,
            packed_metrics=packed,
        )


_SELECT_CHAT = """SELECT title, leaf_id, kind, folder, pinned, created_at_s, updated_at_s, settings
                  FROM chats WHERE id = ?"""
_SELECT_MESSAGES = f"{SELECT_MESSAGE} WHERE chat_id = ? AND set_aside = 0 ORDER BY id"
_SELECT_METRICS = """SELECT message_id, packed FROM reply_metrics JOIN messages ON messages.id = message_id
                     WHERE chat_id = ?"""


def _named(chat: ArchivedChat) -> ArchivedChat:
    """Return a chat with names as they may be here: every list of chats carries them."""
    title, folder = title_from(chat.title, MAX_TITLE_CHARS), title_from(chat.folder, MAX_FOLDER_CHARS)
    return replace(chat, title=title, folder=folder)


def _add(connection: sqlite3.Connection, chat: ArchivedChat) -> int:
    created_at_s = chat.created_at_s or time.time()
    chat_id = row_id(
        connection.execute(
            """INSERT INTO chats (title, kind, folder, pinned, created_at_s, updated_at_s, settings)
               VALUES (?, ?, ?, ?, ?, ?, ?)""",
            (
                chat.title,
                chat.kind,
                chat.folder,
                int(chat.pinned),
                created_at_s,
                chat.updated_at_s or created_at_s,
                chat.settings,
            ),
        )
    )
    ids: list[int] = []
    for message in chat.messages:
        follows = len(ids) - 1 if message.follows is None else message.follows
        parent_id = None if follows == BEGINNING else ids[follows]
        ids.append(_add_message(connection, chat_id, parent_id, message, created_at_s))
    if ids:
        leaf_id = ids[-1 if chat.leaf is None else chat.leaf]
        connection.execute("UPDATE chats SET leaf_id = ? WHERE id = ?", (leaf_id, chat_id))
    return chat_id


def _add_message(
    connection: sqlite3.Connection,
    chat_id: int,
    parent_id: int | None,
    message: ArchivedMessage,
    chat_created_at_s: float,
) -> int:
    values: dict[str, Any] = {
        "chat_id": chat_id,
        "parent_id": parent_id,
        "role": message.role,
        "text": message.text,
        # nobody is writing it here, whatever was going on where it comes from
        "status": "cut" if message.status in ("queued", "running") else message.status,
        "token_ids": packed_ids(message.token_ids),
        "layout": pack_layout(message.layout),
        "opening": message.opening,
        "finish_reason": message.finish_reason,
        "error": message.error,
        "seed": None if message.seed is None else str(message.seed),
        "model_name": message.model_name,
        "backend": message.backend,
        "created_at_s": message.created_at_s or chat_created_at_s,
    }
    names, slots = ", ".join(values), ", ".join("?" * len(values))
    message_id = row_id(connection.execute(f"INSERT INTO messages ({names}) VALUES ({slots})", tuple(values.values())))
    if message.packed_metrics is not None:
        connection.execute("INSERT INTO reply_metrics VALUES (?, ?)", (message_id, message.packed_metrics))
    return message_id
