"""Chats as text-generation-webui keeps them: pairs of texts, with former versions beside them in newer files."""

from __future__ import annotations

import time
from typing import Any, Literal

from app.archive import BEGINNING, ArchivedChat, ArchivedMessage
from app.input_rules import clean_text
from backends.errors import BadRequestError

_HIDDEN_START = "<|BEGIN-VISIBLE-CHAT|>"
"""What stands where a character greets first: not a message."""

Json = dict[str, Any]


def from_textgen(name: str, title: str, content: Json) -> ArchivedChat:
    """Read {"internal": [[asked, answered], ...], "visible": ..., "metadata": {"user_0": {"timestamp": ...}}}.

    "internal" is what the model saw and said; "visible" is the same escaped for a web page. Older files call them
    "data" and "data_visible".

    Raises:
        BadRequestError: a turn is not a pair of texts.
    """
    pairs = content.get("internal", content.get("data"))
    metadata = content.get("metadata")
    turns = _Turns(metadata if isinstance(metadata, dict) else {})
    for number, pair in enumerate(pairs if isinstance(pairs, list) else [pairs]):
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(each, str) for each in pair):
            raise BadRequestError(f"{name} breaks off at turn {number + 1}: it is not a pair of texts.")
        asked, answered = pair
        if asked and asked != _HIDDEN_START:
            turns.add("user", asked, f"user_{number}")
        if answered:
            turns.add("assistant", answered, f"assistant_{number}")
    leaf = turns.last
    return ArchivedChat(
        title, tuple(turns.messages), leaf=None if leaf in (BEGINNING, len(turns.messages) - 1) else leaf
    )


class _Turns:
    """Messages one after the other, each with its former versions as variants.

    Attributes:
        last: place of the message on screen that the next one follows.
    """

    def __init__(self, metadata: Json) -> None:
        self.messages: list[ArchivedMessage] = []
        self.last = BEGINNING
        self._metadata = metadata

    def add(self, role: Literal["user", "assistant"], text: str, key: str) -> None:
        entry = self._metadata.get(key)
        entry = entry if isinstance(entry, dict) else {}
        texts, current = _versions(entry, text)
        follows = self.last
        for number, (version, written) in enumerate(texts):
            if number == current:
                self.last = len(self.messages)
            self.messages.append(
                ArchivedMessage(
                    role,
                    clean_text(version),
                    follows=None if follows == len(self.messages) - 1 else follows,
                    created_at_s=_written_at_s(written),
                    model_name=clean_text(str(entry.get("model_name") or "")) if role == "assistant" else "",
                )
            )


def _versions(entry: Json, text: str) -> tuple[list[tuple[str, object]], int]:
    """Return the texts a turn has had, each with when it was written, and which of them is on screen."""
    kept = entry.get("versions")
    versions = [
        (version["content"], version.get("timestamp"))
        for version in (kept if isinstance(kept, list) else [])
        if isinstance(version, dict) and isinstance(version.get("content"), str) and version["content"]
    ]
    shown = (text, entry.get("timestamp"))
    current = next((at for at, (version, _) in enumerate(versions) if version == text), None)
    if current is None:
        return [*versions, shown], len(versions)
    return versions, current


def _written_at_s(written: object) -> float:
    """Return when a turn was written, from "Aug 05, 2025 21:40" in local time; 0 if unknown."""
    try:
        return time.mktime(time.strptime(str(written), "%b %d, %Y %H:%M"))
    except (ValueError, OverflowError):
        return 0.0
