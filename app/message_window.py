"""A chat's messages as the page gets them: whole near the reader, elsewhere only what keeps their room.

A chat of thousands of messages costs what its end costs; the page asks for more as the reader comes near it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from app.page_data import Json, message_data
from app.reading_routes import LONG_CHARS, PAGE_CHARS, SHORT_REPLY_CHARS, outline_data, text_source
from app.service import Service
from app.store import StoredMessage
from app.transcripts import Transcripts
from backends.errors import BadRequestError

NUM_NEWEST = 32
"""Messages at the end of a chat that are always given whole; more than a screen holds."""

MAX_WHOLE = 128
"""Messages given whole besides, in one answer."""


class MessageWindow:
    """Messages of one service, with the blocks of their replies from `transcripts`."""

    def __init__(self, service: Service, transcripts: Transcripts) -> None:
        self._service = service
        self._transcripts = transcripts

    def of_chat(self, chat_id: int, known: int = 0, near: range = range(0)) -> list[Json]:
        """Return all messages of a chat: the newest ones and those at the places `near` whole, the others in brief.

        Replies after message `known` come with blocks, those near the reader first, as far as they fit one answer; the
        page fetches the rest. In a chat of very much text, the longer ones come as outlines.
        """
        messages = self._service.messages(chat_id)
        places = range(len(messages))
        newest = places[-NUM_NEWEST:]
        whole = [*reversed(places[near.start : near.stop][:MAX_WHOLE]), *reversed(newest)]
        is_long = sum(len(message.text) for message in messages) > LONG_CHARS
        rows = self._whole([messages[place] for place in dict.fromkeys(whole)], known, is_long)
        return [rows.get(message.id) or self._brief(message) for message in messages]

    def of_ids(self, ids: Iterable[int]) -> list[Json]:
        """Return messages whole; those that are gone are left out."""
        found = [message for message in map(self._message, list(ids)[:MAX_WHOLE]) if message is not None]
        return list(self._whole(found, known=0, is_long=True).values())

    def _whole(self, messages: Sequence[StoredMessage], known: int, is_long: bool) -> dict[int, Json]:
        rows = {}
        budget_chars = PAGE_CHARS
        for message in messages:
            row = {**message_data(message), "edition": self._service.num_edits(message.id)}
            rows[message.id] = row
            if message.role != "assistant":
                continue
            row["long"] = is_long and len(message.text) > SHORT_REPLY_CHARS
            if message.id > known and budget_chars > 0:
                budget_chars -= self._add_text(row, message, budget_chars)
        return rows

    def _add_text(self, row: Json, message: StoredMessage, max_chars: int) -> int:
        """Put a reply's blocks or its outline into its row; return about how many characters that took."""
        source = text_source(self._service, message.id, message)
        if row["long"]:
            row["outline"] = outline_data(self._transcripts, message.id, source, 0)
            return PAGE_CHARS // 4
        slice_ = self._transcripts.slice(message.id, source, max_chars=max_chars)
        row["blocks"], row["open"] = slice_.blocks, slice_.open_html
        return sum(map(len, slice_.blocks)) + len(slice_.open_html or "")

    def _brief(self, message: StoredMessage) -> Json:
        return {
            "id": message.id,
            "role": message.role,
            "num_chars": len(message.text),
            "edition": self._service.num_edits(message.id),
            "brief": True,
        }

    def _message(self, message_id: int) -> StoredMessage | None:
        try:
            return self._service.message(message_id)
        except BadRequestError:
            return None
