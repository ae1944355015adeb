"""Chats, messages and replies as they grow, in one SQLite file (WAL), byte for byte.

A reply being written is a journal: short rows appended at least once a second, folded into its message at the end. The
messages of a chat are a tree (`app.chat_tree`); what is called its messages here is the path to the chat's leaf. The
store does not know who writes or reads; every method is thread-safe.
"""

from __future__ import annotations

import json
import time
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from app.chat_tree import ChatTree
from app.content import Content, pack_layout
from app.database import Database, packed_ids, row_id
from app.journal import Journal, Written
from app.message_rows import SELECT_MESSAGE, message_from
from app.message_rows import MessageStatus as MessageStatus
from app.message_rows import StoredMessage as StoredMessage
from backends.errors import BadRequestError

ChatKind = Literal["chat", "notebook"]
"""chat: turns that a template puts together. notebook: one document, given to the model as it stands."""


@dataclass(frozen=True)
class Chat:
    """A chat's row in the list. Times are seconds since 1970, UTC; `folder` is a name, empty for none.

    `leaf_id` is the last message of the path on screen; None for an empty chat.
    """

    id: int
    title: str
    pinned: bool
    created_at_s: float
    updated_at_s: float
    folder: str = ""
    kind: ChatKind = "chat"
    leaf_id: int | None = None


class Store:
    """What is kept.

    Args:
        path: of the database; made if it is not there. A damaged one is set aside, see `notices`.

    Attributes:
        tree: the messages of chats as trees.
        journal: of the replies being written.

    Raises:
        StoreError: the file cannot be opened at all, or a newer version wrote it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database = Database(path)
        self.notices = self.database.notices
        self.journal = Journal(self.database)
        self.tree = ChatTree(self.database)

    def close(self) -> None:
        """Close the file. Twice is fine."""
        self.database.close()

    # Chats

    def chats(self, query: str = "") -> list[Chat]:
        """Return chats whose title contains the query, in any case; pinned first, then the newest."""
        # every tab asks for all of them once a second, and there can be thousands
        where, given = ("WHERE instr(folded(title), folded(?))", (query,)) if query else ("", ())
        sql = f"{_SELECT_CHAT} {where} ORDER BY pinned DESC, updated_at_s DESC, id DESC"
        return [_chat(row) for row in self.database.read(sql, *given)]

    def chat(self, chat_id: int) -> Chat:
        """Return a chat. Raises BadRequestError if there is none."""
        rows = self.database.read(f"{_SELECT_CHAT} WHERE id = ?", chat_id)
        if not rows:
            raise BadRequestError("This chat is no longer there.", "It was deleted; choose another or start a new one.")
        return _chat(rows[0])

    def add_chat(self, title: str, settings: str, kind: ChatKind = "chat") -> Chat:
        """Add an empty chat."""
        now_s = time.time()
        with self.database.writing() as connection:
            cursor = connection.execute(
                "INSERT INTO chats (title, settings, kind, created_at_s, updated_at_s) VALUES (?, ?, ?, ?, ?)",
                (title, settings, kind, now_s, now_s),
            )
        return self.chat(row_id(cursor))

    def rename_chat(self, chat_id: int, title: str) -> None:
        """Set a chat's title."""
        self.database.write("UPDATE chats SET title = ? WHERE id = ?", title, chat_id)

    def pin_chat(self, chat_id: int, pinned: bool) -> None:
        """Pin or unpin a chat."""
        self.database.write("UPDATE chats SET pinned = ? WHERE id = ?", int(pinned), chat_id)

    def file_chat(self, chat_id: int, folder: str) -> None:
        """Put a chat into a folder; an empty name takes it out."""
        self.database.write("UPDATE chats SET folder = ? WHERE id = ?", folder, chat_id)

    def rename_folder(self, folder: str, name: str) -> None:
        """Put all chats of a folder into another; an empty name takes them out."""
        self.database.write("UPDATE chats SET folder = ? WHERE folder = ?", name, folder)

    def delete_chat(self, chat_id: int) -> None:
        """Delete a chat and all that belongs to it; none is fine."""
        self.database.write("DELETE FROM chats WHERE id = ?", chat_id)

    def chat_settings(self, chat_id: int) -> str:
        """Return the settings a chat was given, as the text they were given in."""
        rows = self.database.read("SELECT settings FROM chats WHERE id = ?", chat_id)
        return str(rows[0][0]) if rows else ""

    def keep_chat_settings(self, chat_id: int, settings: str) -> None:
        """Keep a chat's settings."""
        self.database.write("UPDATE chats SET settings = ? WHERE id = ?", settings, chat_id)

    # Messages

    def messages(self, chat_id: int) -> list[StoredMessage]:
        """Return the messages on the way to the chat's leaf, oldest first; running replies with their journal."""
        with self.database.holding():
            return self._on_path(self.tree.path(chat_id))

    def messages_up_to(self, message_id: int) -> list[StoredMessage]:
        """Return a message with all before it, whatever the chat's leaf is; empty if it is gone."""
        with self.database.holding():
            return self._on_path(self.tree.path_to(message_id))

    def message(self, message_id: int) -> StoredMessage | None:
        """Return one message, on the current path or not; None if there is none."""
        with self.database.holding():
            rows = self.database.read(f"{SELECT_MESSAGE} WHERE id = ?", message_id)
            return message_from(self.database, rows[0]) if rows else None

    def add_turn(
        self, chat_id: int, text: str | None, title: str | None = None, replaces_from: int | None = None
    ) -> int:
        """Add the user's text (None adds none) and an empty queued reply; return the reply's id.

        They follow the chat's leaf, or stand beside the message `replaces_from`, which stays in the tree as another
        variant; undoing then returns to it. In the same step the chat gets `title`.
        """
        with self.database.writing() as connection:
            if title is not None:
                connection.execute("UPDATE chats SET title = ? WHERE id = ?", (title, chat_id))
            if replaces_from is None:
                parent_id = self.tree.leaf(chat_id)
            else:
                parent_id = self.tree.step_aside(chat_id, replaces_from)
            if text is not None:
                parent_id = self.tree.add(chat_id, "user", parent_id, Content(text), "complete")
            return self.tree.add(chat_id, "assistant", parent_id, Content(), "queued")

    def add_beside(self, message_id: int, num_replies: int) -> list[int]:
        """Add empty queued replies as variants of one, which stays on screen; return their ids."""
        reply = self.message(message_id)
        if reply is None or num_replies == 0:
            return []
        with self.database.writing():
            ids = [
                self.tree.add(reply.chat_id, "assistant", reply.parent_id, Content(), "queued")
                for _ in range(num_replies)
            ]
            self.tree.select(message_id)
        return ids

    def mark(
        self,
        message_id: int,
        status: MessageStatus,
        backend: str = "",
        model_name: str = "",
        seed: int | None = None,
        opening: str = "",
    ) -> None:
        """Set the status of a reply that begins or goes on, and what writes it; empty and None leave what was there.

        The opening is that of a reply's first word: one that goes on keeps its own, and documents have none.
        """
        self.database.write(
            """UPDATE messages SET status = ?, finish_reason = '', error = '',
               backend = coalesce(nullif(?, ''), backend), model_name = coalesce(nullif(?, ''), model_name),
               seed = coalesce(?, seed), opening = CASE WHEN text = '' AND chat_id IN (
                   SELECT id FROM chats WHERE kind = 'chat') THEN ? ELSE opening END WHERE id = ?""",
            status,
            backend,
            model_name,
            None if seed is None else str(seed),
            opening,
            message_id,
        )

    def keep_opening(self, message_id: int, opening: str) -> None:
        """Set the mark of reasoning of a reply that begins as another one did."""
        self.database.write("UPDATE messages SET opening = ? WHERE id = ?", opening, message_id)

    def begin_growing(self, message_id: int, content: Content, behind: Content) -> None:
        """Queue a message to be gone on with: after `content`, and in front of `behind` if it has any text."""
        with self.database.writing() as connection:
            self.tree.begin_growing(message_id)
            if behind.text:
                connection.execute(
                    "UPDATE messages SET text = ?, token_ids = ?, layout = ? WHERE id = ?",
                    (content.text, packed_ids(content.token_ids), pack_layout(content.layout), message_id),
                )
                self.journal.put_behind(message_id, behind)
            self.mark(message_id, "queued")

    def append(self, message_id: int, text: str, token_ids: array[int]) -> None:
        """Append to a reply's journal; on disk when this returns."""
        self.journal.append(message_id, [Written(self.journal.num_chars(message_id), text, token_ids)])

    def finish(
        self, message_id: int, status: MessageStatus, finish_reason: str = "", error: str = "", seed: int | None = None
    ) -> None:
        """Fold the journal into the message and set how it ended; a message that was deleted is fine."""
        with self.database.writing() as connection:
            message = self.message(message_id)
            if message is None:
                return
            content = message.content.plus(self.journal.behind(message_id))
            seed = message.seed if seed is None else seed
            connection.execute(
                """UPDATE messages SET text = ?, token_ids = ?, layout = ?, status = ?, finish_reason = ?, error = ?,
                   seed = ? WHERE id = ?""",
                (
                    content.text,
                    packed_ids(content.token_ids),
                    pack_layout(content.layout),
                    status,
                    finish_reason,
                    error,
                    None if seed is None else str(seed),
                    message_id,
                ),
            )
            self.journal.clear(message_id)
            connection.execute("UPDATE chats SET updated_at_s = ? WHERE id = ?", (time.time(), message.chat_id))

    def mark_running_as_cut(self) -> int:
        """Fold and mark every reply that a former process left unfinished; return how many there were.

        A reply that was only waiting, or had no text yet, is marked too: it is for the person to ask again.
        """
        with self.database.holding():
            rows = self.database.read("SELECT id FROM messages WHERE status IN ('queued', 'running')")
            for (message_id,) in rows:
                self.finish(message_id, "cut")
            return len(rows)

    # Figures and whatever else is kept

    def keep_metrics(self, message_id: int, packed: bytes) -> None:
        """Keep the figures of a reply, in place of earlier ones; none if the message was deleted."""
        self.database.write(
            """INSERT INTO reply_metrics (message_id, packed) SELECT id, ? FROM messages WHERE id = ?
               ON CONFLICT (message_id) DO UPDATE SET packed = excluded.packed""",
            packed,
            message_id,
        )

    def metrics(self, message_id: int) -> bytes | None:
        """Return the figures of a reply; None if there are none."""
        rows = self.database.read("SELECT packed FROM reply_metrics WHERE message_id = ?", message_id)
        return bytes(rows[0][0]) if rows else None

    def keep(self, name: str, value: str) -> None:
        """Keep a value of the application under a name."""
        self.database.write("INSERT OR REPLACE INTO kept (name, value) VALUES (?, ?)", name, value)

    def kept(self, name: str) -> str | None:
        """Return a kept value; None if there is none."""
        rows = self.database.read("SELECT value FROM kept WHERE name = ?", name)
        return str(rows[0][0]) if rows else None

    def _on_path(self, message_ids: list[int]) -> list[StoredMessage]:
        rows = self.database.read(
            f"{SELECT_MESSAGE} WHERE id IN (SELECT value FROM json_each(?))", json.dumps(message_ids)
        )
        found = {row[0]: message_from(self.database, row) for row in rows}
        return [found[message_id] for message_id in message_ids]


_SELECT_CHAT = "SELECT id, title, pinned, created_at_s, updated_at_s, folder, kind, leaf_id FROM chats"


def _chat(row: tuple[Any, ...]) -> Chat:
    chat_id, title, pinned, created_at_s, updated_at_s, folder, kind, leaf_id = row
    return Chat(chat_id, title, bool(pinned), created_at_s, updated_at_s, folder, kind, leaf_id)
