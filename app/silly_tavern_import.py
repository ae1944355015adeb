"""Chats as SillyTavern keeps them: a line of JSON for the chat, then one for each message.

Swipes are variants. What the program says about itself (`is_system` with a kind, comments) is left out and counted; a
message that was only hidden from the model is one here, and a narrator's line is the user's.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from app.archive import BEGINNING, ArchivedChat, ArchivedMessage
from app.imported_parts import LeftOutCount, dict_of, list_of, reply_text, text_of, timestamp_s
from app.input_rules import clean_text

Json = dict[str, Any]

_NARRATOR = "narrator"
_HUMANIZED = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2}) ?@(\d{1,2})h ?(\d{1,2})m ?(\d{1,2})s")


def is_silly_tavern(text: str) -> bool:
    """Tell whether a text is such a file: its first line names the chat or is a message."""
    try:
        first = dict_of(json.loads(text.lstrip().split("\n", 1)[0]))
    except (ValueError, RecursionError):
        return False
    is_header = "chat_metadata" in first or {"user_name", "character_name"} <= first.keys()
    return is_header or ("mes" in first and "is_user" in first)


def from_silly_tavern(title: str, text: str) -> ArchivedChat:
    """Read lines of {"name", "is_user", "is_system", "send_date", "mes", "extra", "swipes", "swipe_id", ...}."""
    left_out = LeftOutCount()
    lines = list(_lines(text, left_out))
    header = lines.pop(0) if lines and "mes" not in lines[0] else {}
    speakers = {text_of(line.get("name")) for line in lines if not line.get("is_user") and not _kind(line)}
    turns = _Turns(left_out, names_speakers=len(speakers) > 1)
    for line in lines:
        turns.add(line)
    last = turns.last
    return ArchivedChat(
        title,
        tuple(turns.messages),
        leaf=None if last in (BEGINNING, len(turns.messages) - 1) else last,
        created_at_s=_written_at_s(header.get("create_date")),
        left_out=left_out.all(),
    )


def _lines(text: str, left_out: LeftOutCount) -> Iterator[Json]:
    for line in filter(str.strip, text.split("\n")):
        try:
            content = json.loads(line)
        except (ValueError, RecursionError):
            content = None
        if isinstance(content, dict):
            yield content
        else:
            left_out.add("broken line")


class _Turns:
    """Messages one after the other, each with its swipes as variants.

    Attributes:
        last: place of the message on screen that the next one follows.
    """

    def __init__(self, left_out: LeftOutCount, *, names_speakers: bool) -> None:
        self.messages: list[ArchivedMessage] = []
        self.last = BEGINNING
        self._left_out = left_out
        self._names_speakers = names_speakers

    def add(self, line: Json) -> None:
        """Take a line, or count it if it is none of the chat."""
        kind = _kind(line)
        if kind == "comment":
            self._left_out.add("comment")
        elif kind and kind != _NARRATOR and line.get("is_system") is True:
            self._left_out.add("message of the program", "messages of the program")
        else:
            self._add_versions(line, is_reply=line.get("is_user") is not True and kind != _NARRATOR)

    def _add_versions(self, line: Json, *, is_reply: bool) -> None:
        follows = self.last
        versions = list(_versions(line))
        for text, written, extra, is_shown in versions:
            media = [extra.get("image"), extra.get("video"), extra.get("file")]
            self._left_out.add("attached file", count=sum(map(bool, media)) + len(list_of(extra.get("files"))))
            self._left_out.add("picture", count=len(list_of(extra.get("media"))))
            named = f"{text_of(line.get('name'))}: {text}" if is_reply and self._names_speakers else text
            if not named.strip() and not text_of(extra.get("reasoning")):
                continue
            if is_shown:
                self.last = len(self.messages)
            self.messages.append(
                ArchivedMessage(
                    "assistant" if is_reply else "user",
                    clean_text(reply_text(text_of(extra.get("reasoning")), named) if is_reply else named),
                    follows=follows,
                    created_at_s=_written_at_s(written),
                    model_name=clean_text(text_of(extra.get("model"))) if is_reply else "",
                )
            )


def _versions(line: Json) -> Iterator[tuple[str, object, Json, bool]]:
    """Yield each swipe: its text, when it was written, what is known of it, and whether it is on screen."""
    shown = text_of(line.get("mes"))
    texts = [text_of(swipe) or text_of(dict_of(swipe).get("mes")) for swipe in list_of(line.get("swipes"))]
    infos = [dict_of(info) for info in list_of(line.get("swipe_info"))]
    current = line.get("swipe_id")
    if not isinstance(current, int) or not 0 <= current < len(texts):
        current = texts.index(shown) if shown in texts else len(texts)
        texts[current:] = texts[current:] or [shown]
    for number, text in enumerate(texts):
        if number == current:  # the message itself is what is kept up to date
            yield shown, line.get("send_date"), dict_of(line.get("extra")), True
        else:
            info = infos[number] if number < len(infos) else {}
            yield text, info.get("send_date"), dict_of(info.get("extra")), False


def _kind(line: Json) -> str:
    return text_of(dict_of(line.get("extra")).get("type"))


def _written_at_s(written: object) -> float:
    """Return a time in seconds; 0 if unknown.

    Versions wrote milliseconds since 1970, "June 19, 2023 2:20pm", "2024-6-5 @14h 56m 50s 682ms" (both local time) and
    ISO 8601.
    """
    said = text_of(written).strip()
    if not said or said.isdecimal():
        return timestamp_s(float(said) if said else written)
    try:
        return max(_parsed_s(said), 0.0)
    except (ValueError, OverflowError, OSError):
        return 0.0


def _parsed_s(said: str) -> float:
    if humanized := _HUMANIZED.match(said):
        return datetime(*map(int, humanized.groups())).timestamp()  # type: ignore[arg-type]
    if said[0].isdecimal():
        return datetime.fromisoformat(said.replace("Z", "+00:00")).timestamp()
    return time.mktime(time.strptime(said, "%B %d, %Y %I:%M%p"))
