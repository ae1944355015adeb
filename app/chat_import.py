"""Chats from files: Ringside's own, those of other programs, and plain text.

Which one it is shows in the content; the name only titles what has no title of its own.
"""

from __future__ import annotations

import json
from pathlib import PurePath

from app import chat_json
from app.archive import ArchivedChat, ArchivedMessage
from app.chatgpt_import import from_chatgpt, is_chatgpt
from app.imported_parts import PROGRAMS
from app.input_rules import clean_text, title_from
from app.kobold_import import from_kobold, is_kobold
from app.lm_studio_import import from_lm_studio, is_lm_studio
from app.open_webui_import import from_open_webui, is_open_webui
from app.silly_tavern_import import from_silly_tavern, is_silly_tavern
from app.textgen_import import from_textgen
from backends.errors import BadRequestError

MAX_CHARS = 200_000_000

_JSON_SUFFIXES = (".json", ".jsonl")


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
    if is_silly_tavern(text):
        chats = [from_silly_tavern(_title(name), text)]
    elif text.lstrip()[:1] in ("{", "[") or _is_named_json(name):
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
        if not _is_named_json(name):  # a text that happens to begin with a bracket
            return [ArchivedChat(_title(name), (ArchivedMessage("user", clean_text(text)),))]
        raise BadRequestError(f"{name} is not complete JSON: {error}.", "Export it again.") from error
    if isinstance(content, dict):
        if content.get("format") == chat_json.FORMAT:
            return chat_json.from_file(content)
        if content.get("internal", content.get("data")):
            return [from_textgen(name, _title(name), content)]
        if is_kobold(content):
            return from_kobold(_title(name), content)
        if is_lm_studio(content):
            return [from_lm_studio(_title(name), content)]
    chats = [content] if isinstance(content, dict) else content
    if isinstance(chats, list) and chats and all(is_chatgpt(chat) for chat in chats):
        return [from_chatgpt(chat) for chat in chats]
    if isinstance(chats, list) and chats and all(is_open_webui(chat) for chat in chats):
        return [from_open_webui(chat) for chat in chats]
    raise BadRequestError(
        f"{name} is not a file of chats that Ringside knows.",
        f"It reads its own JSON, that of {PROGRAMS}, and plain text.",
    )


def _is_named_json(name: str) -> bool:
    return PurePath(name).suffix.lower() in _JSON_SUFFIXES


def _decoded(name: str, content: bytes | str) -> str:
    if len(content) > MAX_CHARS:
        raise BadRequestError(f"{name} is larger than {MAX_CHARS / 1e6:.0f} MB.", "Split it first.")
    try:
        text = content.removeprefix("\ufeff") if isinstance(content, str) else content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadRequestError(
            f"{name} is not a text file in UTF-8 (byte {error.start}).", "Choose a text or JSON file."
        ) from error
    if "\0" in text[:4096]:
        raise BadRequestError(f"{name} is not a text file.", "Choose a text or JSON file.")
    return text


def _title(name: str) -> str:
    return title_from(PurePath(name).stem.replace("_", " ")) or "Imported"
