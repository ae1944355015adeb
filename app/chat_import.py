"""Chats from files: Ringside's own, text-generation-webui's, Open WebUI's, and plain text.

Which one it is shows in the content; the name only titles what has no title of its own.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, Literal

from app import chat_json
from app.archive import ArchivedChat, ArchivedMessage
from app.input_rules import clean_text, title_from
from backends.errors import BadRequestError

MAX_CHARS = 200_000_000

_HIDDEN_START = "<|BEGIN-VISIBLE-CHAT|>"
"""What text-generation-webui puts where a character greets first: not a message."""

Json = dict[str, Any]


def read_chats(name: str, content: bytes | str) -> list[ArchivedChat]:
    """Return the chats in a file.

    Args:
        name: of the file.
        content: text in UTF-8, with or without a byte order mark.

    Raises:
        BadRequestError: it is not text, or JSON of no kind known here, or has no messages; in one sentence.
    """
    text = _decoded(name, content)
    if not text.strip():
        raise BadRequestError(f"{name} is empty.", "Choose another file.")
    if text.lstrip()[:1] in ("{", "[") or PurePath(name).suffix.lower() == ".json":
        chats = _from_json(name, text)
    else:
        chats = [ArchivedChat(_title(name), (ArchivedMessage("user", clean_text(text)),))]
    if not any(chat.messages for chat in chats):
        raise BadRequestError(f"{name} holds no messages.", "Choose another file.")
    return chats


def _from_json(name: str, text: str) -> list[ArchivedChat]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        if PurePath(name).suffix.lower() != ".json":  # a text that happens to begin with a bracket
            return [ArchivedChat(_title(name), (ArchivedMessage("user", clean_text(text)),))]
        raise BadRequestError(f"{name} is not complete JSON: {error}.", "Export it again.") from error
    if isinstance(content, dict):
        if content.get("format") == chat_json.FORMAT:
            return chat_json.from_file(content)
        if pairs := content.get("internal", content.get("data")):
            return [_from_text_generation_webui(name, pairs, content)]
    chats = [content] if isinstance(content, dict) else content
    if isinstance(chats, list) and chats and all(_is_open_webui(chat) for chat in chats):
        return [_from_open_webui(chat) for chat in chats]
    raise BadRequestError(
        f"{name} is not a file of chats that Ringside knows.",
        "It reads its own JSON, that of text-generation-webui and Open WebUI, and plain text.",
    )


def _from_text_generation_webui(name: str, pairs: object, content: Json) -> ArchivedChat:
    """Read {"internal": [[asked, answered], ...], "visible": ..., "metadata": {"user_0": {"timestamp": ...}}}.

    "internal" is what the model saw and said; "visible" is the same escaped for a web page. Older files call them
    "data" and "data_visible".
    """
    metadata = content.get("metadata")
    messages: list[ArchivedMessage] = []
    for number, pair in enumerate(pairs if isinstance(pairs, list) else [pairs]):
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(each, str) for each in pair):
            raise BadRequestError(f"{name} breaks off at turn {number + 1}: it is not a pair of texts.")
        asked, answered = pair
        if asked and asked != _HIDDEN_START:
            messages.append(_message("user", asked, _written_at_s(metadata, f"user_{number}")))
        if answered:
            messages.append(_message("assistant", answered, _written_at_s(metadata, f"assistant_{number}")))
    return ArchivedChat(_title(name), tuple(messages))


def _written_at_s(metadata: object, key: str) -> float:
    """Return when a turn was written, from text-generation-webui's "Aug 05, 2025 21:40" in local time; 0 if unknown."""
    entry = metadata.get(key) if isinstance(metadata, dict) else None
    written = entry.get("timestamp") if isinstance(entry, dict) else None
    try:
        return time.mktime(time.strptime(str(written), "%b %d, %Y %H:%M"))
    except (ValueError, OverflowError):
        return 0.0


def _is_open_webui(chat: object) -> bool:
    inner = chat.get("chat", chat) if isinstance(chat, dict) else None
    return isinstance(inner, dict) and ("history" in inner or isinstance(inner.get("messages"), list))


def _from_open_webui(entry: Json) -> ArchivedChat:
    """Read one entry of an Open WebUI export: {"title": ..., "chat": {"title", "history", "messages"}, ...}.

    The history is a tree of messages by id; the branch that ends at "currentId" is the conversation.
    """
    inner = entry.get("chat", entry)
    messages = tuple(
        _message(role, _content(each), _timestamp_s(each.get("timestamp")), _model_name(each))
        for each in _open_webui_branch(inner)
        if (role := _role(each.get("role"))) is not None
    )
    title = next((each for each in (entry.get("title"), inner.get("title")) if isinstance(each, str) and each), "")
    system = inner.get("system") or next((_content(each) for each in _systems(inner)), "")
    return ArchivedChat(
        title=clean_text(title) or title_from(next((message.text for message in messages), "")),
        messages=messages,
        pinned=entry.get("pinned") is True,
        created_at_s=_timestamp_s(entry.get("created_at", inner.get("timestamp"))),
        updated_at_s=_timestamp_s(entry.get("updated_at")),
        settings=json.dumps({"system_prompt": clean_text(system)}) if isinstance(system, str) and system else "",
    )


def _open_webui_branch(inner: Json) -> list[Json]:
    history = inner.get("history")
    by_id = history.get("messages") if isinstance(history, dict) else None
    if isinstance(history, dict) and isinstance(by_id, dict) and by_id:
        current = history.get("currentId") or history.get("current_id") or next(reversed(by_id))
        branch: list[Json] = []
        while isinstance(message := by_id.get(current), dict) and len(branch) < len(
            by_id
        ):  # no circle goes on for ever
            branch.insert(0, message)
            current = message.get("parentId")
        return branch
    return [message for message in inner.get("messages", []) if isinstance(message, dict)]


def _systems(inner: Json) -> Iterator[Json]:
    return (message for message in _open_webui_branch(inner) if message.get("role") == "system")


def _role(role: object) -> Literal["user", "assistant"] | None:
    if role == "user":
        return "user"
    return "assistant" if role == "assistant" else None


def _content(message: Mapping[str, Any]) -> str:
    """Return a message's text: a string, or the text parts of a list of parts."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _model_name(message: Mapping[str, Any]) -> str:
    name = message.get("modelName") or message.get("model")
    return clean_text(name) if isinstance(name, str) else ""


def _message(role: Literal["user", "assistant"], text: str, at_s: float, model_name: str = "") -> ArchivedMessage:
    return ArchivedMessage(role, clean_text(text), created_at_s=at_s, model_name=model_name)


def _timestamp_s(value: object) -> float:
    """Return a time in seconds; versions of Open WebUI wrote seconds, milliseconds and nanoseconds."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        return 0.0
    while value > 1e11:
        value /= 1_000
    return float(value)


def _decoded(name: str, content: bytes | str) -> str:
    if len(content) > MAX_CHARS:
        raise BadRequestError(f"{name} is larger than {MAX_CHARS / 1e6:.0f} MB.", "Split it first.")
    if isinstance(content, str):
        return content.removeprefix("\ufeff")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadRequestError(
            f"{name} is not a text file in UTF-8 (byte {error.start}).", "Choose a text or JSON file."
        ) from error
    if "\0" in text[:4096]:
        raise BadRequestError(f"{name} is not a text file.", "Choose a text or JSON file.")
    return text


def _title(name: str) -> str:
    return title_from(PurePath(name).stem.replace("_", " ")) or "Imported"
