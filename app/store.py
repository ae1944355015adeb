"""Chats, messages and replies as they grow, in one SQLite file (WAL), byte for byte.

A reply being written is a journal: short rows appended at least once a second, folded into its message at the end. The
store does not know who writes or reads; every method is thread-safe.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from app.store_file import open_database, set_aside, store_error
from backends.errors import BadRequestError

MessageStatus = Literal["queued", "running", "complete", "cancelled", "cut", "error"]
"""queued and running: being written in this process. complete: the model ended it, or its length limit did.
cancelled: a person stopped it. cut: the application or machine went down in the middle. error: see `error`."""


@dataclass(frozen=True)
class Chat:
    """A chat's row in the list. Times are seconds since 1970, UTC; `folder` is a name, empty for none."""

    id: int
    title: str
    pinned: bool
    created_at_s: float
    updated_at_s: float
    folder: str = ""


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


class Store:
    """One connection and one lock: a desktop has one writer, and reads are short.

    Args:
        path: of the database; made if it is not there. A damaged one is set aside, see `notices`.

    Raises:
        StoreError: the file cannot be opened at all, or a newer version wrote it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notices: list[str] = []
        self._lock = threading.RLock()
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._connection = open_database(path)
        except sqlite3.OperationalError as error:
            raise store_error(path, error) from error
        except sqlite3.DatabaseError:
            kept_as = set_aside(path)
            self.notices.append(
                f"The chats in {path.name} were damaged; the file is kept as {kept_as} and a new one begun."
            )
            self._connection = open_database(path)

    def close(self) -> None:
        """Close the file. Twice is fine."""
        with self._lock:
            self._connection.close()

    # Chats

    def chats(self, query: str = "") -> list[Chat]:
        """Return chats whose title contains the query, in any case; pinned first, then the newest."""
        sql = f"""{_SELECT_CHAT}
                 WHERE instr(casefold(title), casefold(?)) ORDER BY pinned DESC, updated_at_s DESC, id DESC"""
        return [_chat(row) for row in self._read(sql, query)]

    def chat(self, chat_id: int) -> Chat:
        """Return a chat. Raises BadRequestError if there is none."""
        rows = self._read(f"{_SELECT_CHAT} WHERE id = ?", chat_id)
        if not rows:
            raise BadRequestError("This chat is no longer there.", "It was deleted; choose another or start a new one.")
        return _chat(rows[0])

    def add_chat(self, title: str, settings: str) -> Chat:
        """Add an empty chat."""
        now_s = time.time()
        with self._writing() as connection:
            cursor = connection.execute(
                "INSERT INTO chats (title, settings, created_at_s, updated_at_s) VALUES (?, ?, ?, ?)",
                (title, settings, now_s, now_s),
            )
        return self.chat(_row_id(cursor))

    def rename_chat(self, chat_id: int, title: str) -> None:
        """Set a chat's title."""
        self._write("UPDATE chats SET title = ? WHERE id = ?", title, chat_id)

    def pin_chat(self, chat_id: int, pinned: bool) -> None:
        """Pin or unpin a chat."""
        self._write("UPDATE chats SET pinned = ? WHERE id = ?", int(pinned), chat_id)

    def file_chat(self, chat_id: int, folder: str) -> None:
        """Put a chat into a folder; an empty name takes it out."""
        self._write("UPDATE chats SET folder = ? WHERE id = ?", folder, chat_id)

    def delete_chat(self, chat_id: int) -> None:
        """Delete a chat and all that belongs to it; none is fine."""
        self._write("DELETE FROM chats WHERE id = ?", chat_id)

    def chat_settings(self, chat_id: int) -> str:
        """Return the settings a chat was given, as the text they were given in."""
        rows = self._read("SELECT settings FROM chats WHERE id = ?", chat_id)
        return str(rows[0][0]) if rows else ""

    def keep_chat_settings(self, chat_id: int, settings: str) -> None:
        """Keep a chat's settings."""
        self._write("UPDATE chats SET settings = ? WHERE id = ?", settings, chat_id)

    # Messages

    def messages(self, chat_id: int) -> list[StoredMessage]:
        """Return a chat's messages, oldest first, without those set aside; running replies with their journal."""
        with self._lock:
            rows = self._read(f"{_SELECT_MESSAGE} WHERE chat_id = ? AND set_aside = 0 ORDER BY id", chat_id)
            return [self._message(row) for row in rows]

    def message(self, message_id: int) -> StoredMessage | None:
        """Return one message, set aside or not; None if there is none."""
        with self._lock:
            rows = self._read(f"{_SELECT_MESSAGE} WHERE id = ?", message_id)
            return self._message(rows[0]) if rows else None

    def add_turn(
        self, chat_id: int, text: str | None, title: str | None = None, replaces_from: int | None = None
    ) -> int:
        """Add the user's text (None adds none) and an empty queued reply; return the reply's id.

        In the same step the chat gets `title`, and the message `replaces_from` and all later ones are set aside: they
        stay in the file and are no longer among `messages`.
        """
        now_s = time.time()
        insert = "INSERT INTO messages (chat_id, role, text, status, created_at_s) VALUES (?, ?, ?, ?, ?)"
        with self._writing() as connection:
            connection.execute("UPDATE chats SET updated_at_s = ? WHERE id = ?", (now_s, chat_id))
            if title is not None:
                connection.execute("UPDATE chats SET title = ? WHERE id = ?", (title, chat_id))
            if replaces_from is not None:
                connection.execute(
                    "UPDATE messages SET set_aside = 1 WHERE chat_id = ? AND id >= ?", (chat_id, replaces_from)
                )
            if text is not None:
                connection.execute(insert, (chat_id, "user", text, "complete", now_s))
            return _row_id(connection.execute(insert, (chat_id, "assistant", "", "queued", now_s)))

    def mark(
        self,
        message_id: int,
        status: MessageStatus,
        backend: str = "",
        model_name: str = "",
        seed: int | None = None,
    ) -> None:
        """Set the status of a reply that begins or goes on, and what writes it; empty and None leave what was there."""
        self._write(
            """UPDATE messages SET status = ?, finish_reason = '', error = '',
               backend = coalesce(nullif(?, ''), backend), model_name = coalesce(nullif(?, ''), model_name),
               seed = coalesce(?, seed) WHERE id = ?""",
            status,
            backend,
            model_name,
            None if seed is None else str(seed),
            message_id,
        )

    def append(self, message_id: int, text: str, token_ids: array[int]) -> None:
        """Append to a reply's journal; on disk when this returns."""
        self._write(
            "INSERT INTO journal (message_id, text, token_ids) VALUES (?, ?, ?)", message_id, text, _packed(token_ids)
        )

    def finish(
        self, message_id: int, status: MessageStatus, finish_reason: str = "", error: str = "", seed: int | None = None
    ) -> None:
        """Fold the journal into the message and set how it ended; a message that was deleted is fine."""
        with self._writing() as connection:
            message = self.message(message_id)
            if message is None:
                return
            seed = message.seed if seed is None else seed
            connection.execute(
                """UPDATE messages SET text = ?, token_ids = ?, status = ?, finish_reason = ?, error = ?, seed = ?
                   WHERE id = ?""",
                (
                    message.text,
                    _packed(message.token_ids),
                    status,
                    finish_reason,
                    error,
                    None if seed is None else str(seed),
                    message_id,
                ),
            )
            connection.execute("DELETE FROM journal WHERE message_id = ?", (message_id,))
            connection.execute("UPDATE chats SET updated_at_s = ? WHERE id = ?", (time.time(), message.chat_id))

    def mark_running_as_cut(self) -> int:
        """Fold and mark every reply that a former process left unfinished; return how many there were.

        A reply that was only waiting, or had no text yet, is marked too: it is for the person to ask again.
        """
        with self._lock:
            rows = self._read("SELECT id FROM messages WHERE status IN ('queued', 'running')")
            for (message_id,) in rows:
                self.finish(message_id, "cut")
            return len(rows)

    # Figures and whatever else is kept

    def keep_metrics(self, message_id: int, packed: bytes) -> None:
        """Keep the figures of a reply, in place of earlier ones; none if the message was deleted."""
        self._write(
            """INSERT INTO reply_metrics (message_id, packed) SELECT id, ? FROM messages WHERE id = ?
               ON CONFLICT (message_id) DO UPDATE SET packed = excluded.packed""",
            packed,
            message_id,
        )

    def metrics(self, message_id: int) -> bytes | None:
        """Return the figures of a reply; None if there are none."""
        rows = self._read("SELECT packed FROM reply_metrics WHERE message_id = ?", message_id)
        return bytes(rows[0][0]) if rows else None

    def keep(self, name: str, value: str) -> None:
        """Keep a value of the application under a name."""
        self._write("INSERT OR REPLACE INTO kept (name, value) VALUES (?, ?)", name, value)

    def kept(self, name: str) -> str | None:
        """Return a kept value; None if there is none."""
        rows = self._read("SELECT value FROM kept WHERE name = ?", name)
        return str(rows[0][0]) if rows else None

    def _message(self, row: tuple[Any, ...]) -> StoredMessage:
        message_id, chat_id, role, text, token_ids, status, created_at_s, reason, error, seed, model, backend = row
        ids = array("i", token_ids or b"")
        if status in ("queued", "running"):
            journal = self._read("SELECT text, token_ids FROM journal WHERE message_id = ? ORDER BY id", message_id)
            text = "".join([text, *(each for each, _ in journal)])
            for _, more in journal:
                ids.frombytes(more)
        seed = None if seed is None else int(seed)
        return StoredMessage(
            message_id, chat_id, role, text, status, created_at_s, ids, reason, error, seed, model, backend
        )

    def _read(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                return self._connection.execute(sql, parameters).fetchall()
            except sqlite3.Error as error:
                raise store_error(self.path, error) from error

    def _write(self, sql: str, *parameters: object) -> None:
        with self._writing() as connection:
            connection.execute(sql, parameters)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction under the lock: all of it is on disk afterwards, or none."""
        with self._lock:
            try:
                with self._connection:
                    self._connection.execute("BEGIN IMMEDIATE")
                    yield self._connection
            except sqlite3.Error as error:
                raise store_error(self.path, error) from error


_SELECT_CHAT = "SELECT id, title, pinned, created_at_s, updated_at_s, folder FROM chats"
_SELECT_MESSAGE = """SELECT id, chat_id, role, text, token_ids, status, created_at_s, finish_reason, error, seed,
                            model_name, backend FROM messages"""


def _chat(row: tuple[Any, ...]) -> Chat:
    chat_id, title, pinned, created_at_s, updated_at_s, folder = row
    return Chat(chat_id, title, bool(pinned), created_at_s, updated_at_s, folder)


def _row_id(cursor: sqlite3.Cursor) -> int:
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def _packed(token_ids: array[int]) -> bytes:
    return token_ids.tobytes()
