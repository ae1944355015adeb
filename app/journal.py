"""The journal: replies as they grow, in short rows that can be read by offset whatever their number.

While a reply is written in the middle of a text, what stands behind it waits here too.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from app.content import Content, pack_layout, unpack_layout
from app.database import Database, packed_ids, unpacked_ids


@dataclass(frozen=True)
class Written:
    """A piece of a reply to be kept: text with its ids from a character of the message on, or a note there."""

    start_chars: int
    text: str
    token_ids: array[int]
    note: str = ""


class Journal:
    """Rows of all replies being written. Offsets count the characters of the whole message."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def append(self, message_id: int, pieces: Sequence[Written]) -> None:
        """Append pieces; all on disk when this returns, or none. Raises StoreError."""
        with self._database.writing() as connection:
            connection.executemany(
                "INSERT INTO journal (message_id, start_chars, text, token_ids, note) VALUES (?, ?, ?, ?, ?)",
                [(message_id, each.start_chars, each.text, packed_ids(each.token_ids), each.note) for each in pieces],
            )

    def num_chars(self, message_id: int) -> int:
        """Return the characters of a message so far."""
        rows = self._database.read(
            "SELECT start_chars, text FROM journal WHERE message_id = ? ORDER BY id DESC LIMIT 1", message_id
        )
        if not rows:
            rows = self._database.read("SELECT 0, text FROM messages WHERE id = ?", message_id)
        return sum(start + len(text) for start, text in rows)

    def text(self, message_id: int, start: int, end: int) -> str:
        """Return the characters [start, end) of a message, as far as they are kept."""
        with self._database.holding():
            rows = self._database.read(_PIECES, message_id, message_id, start, end)
            first = rows[0][0] if rows else None
            kept = ""
            if first is None or start < first:
                message = self._database.read("SELECT text FROM messages WHERE id = ?", message_id)
                kept = message[0][0][start:end] if message else ""
        joined = "".join(text for _, text in rows)
        return kept + joined[max(0, start - (first or 0)) : max(0, end - (first or 0))]

    def put_behind(self, message_id: int, content: Content) -> None:
        """Keep what stands behind the place where a reply is about to be written."""
        self._database.write(
            "INSERT OR REPLACE INTO text_behind (message_id, text, token_ids, layout) VALUES (?, ?, ?, ?)",
            message_id,
            content.text,
            packed_ids(content.token_ids),
            pack_layout(content.layout),
        )

    def behind(self, message_id: int) -> Content:
        """Return what stands behind the place where a reply is written; empty if it is written at the end."""
        rows = self._database.read("SELECT text, token_ids, layout FROM text_behind WHERE message_id = ?", message_id)
        if not rows:
            return Content()
        text, token_ids, layout = rows[0]
        return Content(text, unpacked_ids(token_ids), unpack_layout(layout))

    def clear(self, message_id: int) -> None:
        """Forget everything about a message: it has been folded."""
        with self._database.writing() as connection:
            connection.execute("DELETE FROM journal WHERE message_id = ?", (message_id,))
            connection.execute("DELETE FROM text_behind WHERE message_id = ?", (message_id,))


# The row before the first wanted character begins at or before it; NULL (nothing kept so early) compares as none.
_PIECES = """
    SELECT start_chars, text FROM journal
    WHERE message_id = ? AND note = ''
        AND start_chars >= coalesce((SELECT max(start_chars) FROM journal WHERE message_id = ? AND start_chars <= ?), 0)
        AND start_chars < ?
    ORDER BY id"""
