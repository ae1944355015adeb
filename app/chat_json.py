"""Ringside's own file of chats: JSON, versioned, with everything that is kept, so that nothing is lost on the way.

    {"format": "ringside-chats", "version": 1, "chats": [
        {"title": "...", "folder": "", "pinned": false, "created_at_s": 0, "updated_at_s": 0, "settings": {...},
         "messages": [{"role": "assistant", "text": "...", "status": "complete", "token_ids": [...],
                       "metrics": {...}, ...}]}]}

Names that a version does not know are ignored, so a later one may add some; a changed meaning is a new version.
"""

from __future__ import annotations

import json
import zlib
from array import array
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, get_args

from app.archive import BEGINNING, ArchivedChat, ArchivedMessage
from app.content import Layout, Note, Span
from app.input_rules import clean_text
from app.message_rows import MessageStatus
from app.store import ChatKind
from backends.errors import BadRequestError
from models.reasoning import PAIRS

FORMAT = "ringside-chats"
VERSION = 1

Json = dict[str, Any]


def to_file(chats: Iterable[ArchivedChat]) -> str:
    """Return chats as the text of a file."""
    content = {"format": FORMAT, "version": VERSION, "chats": [_chat_data(chat) for chat in chats]}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def from_file(content: Json) -> list[ArchivedChat]:
    """Read what `to_file` wrote, already decoded from JSON.

    Raises:
        BadRequestError: a newer version wrote it, or something in it is not what it should be.
    """
    version = content.get("version")
    if version != VERSION:
        raise BadRequestError(
            f"This file of chats has version {version!r}; this Ringside reads version {VERSION}.", "Update Ringside."
        )
    chats = _expect(list, content.get("chats"), "chats")
    return [_chat(_expect(dict, chat, "chats")) for chat in chats]


def _chat_data(chat: ArchivedChat) -> Json:
    return {
        "title": chat.title,
        "kind": chat.kind,
        "folder": chat.folder,
        "pinned": chat.pinned,
        "created_at_s": chat.created_at_s,
        "updated_at_s": chat.updated_at_s,
        "settings": _shareable(chat.settings),
        "leaf": chat.leaf,
        "messages": [_message_data(message) for message in chat.messages],
    }


def _message_data(message: ArchivedMessage) -> Json:
    data: Json = {
        "role": message.role,
        "text": message.text,
        "status": message.status,
        "created_at_s": message.created_at_s,
    }
    rest: Json = {
        "opening": message.opening,
        "finish_reason": message.finish_reason,
        "error": message.error,
        "seed": message.seed,
        "model": message.model_name,
        "backend": message.backend,
        "follows": message.follows,
        "token_ids": list(message.token_ids),
        "layout": [
            each.text if isinstance(each, Note) else [each.num_chars, each.num_tokens] for each in message.layout
        ],
        "metrics": _unpacked(message.packed_metrics),
    }
    return data | {name: value for name, value in rest.items() if value not in ("", [], None)}


def _shareable(settings: str) -> Json:
    """Return settings without the model's path: where files lie on this machine is nobody else's business."""
    try:
        table = json.loads(settings)
    except ValueError:
        return {}
    if not isinstance(table, dict):
        return {}
    model = str(table.get("model", ""))
    if PurePosixPath(model).is_absolute() or PureWindowsPath(model).is_absolute():
        del table["model"]
    return table


def _chat(data: Json) -> ArchivedChat:
    messages = [
        _message(_expect(dict, each, "messages"), place) for place, each in enumerate(_get(data, "messages", list, []))
    ]
    settings = _get(data, "settings", dict, {})
    kind = data.get("kind", "chat")
    if kind not in get_args(ChatKind):
        raise _wrong("kind", kind)
    return ArchivedChat(
        title=clean_text(_get(data, "title", str, "")),
        messages=tuple(messages),
        leaf=_place(data, "leaf", 0, len(messages)),
        kind=kind,
        folder=clean_text(_get(data, "folder", str, "")),
        pinned=_get(data, "pinned", bool, False),
        created_at_s=_seconds(data, "created_at_s"),
        updated_at_s=_seconds(data, "updated_at_s"),
        settings=json.dumps(settings) if settings else "",
    )


def _message(data: Json, place: int) -> ArchivedMessage:
    role = data.get("role")
    if role not in ("user", "assistant"):
        raise _wrong("role", role)
    status = data.get("status", "complete")
    if status not in get_args(MessageStatus):
        raise _wrong("status", status)
    text, token_ids = clean_text(_get(data, "text", str, "")), _token_ids(_get(data, "token_ids", list, []))
    return ArchivedMessage(
        role=role,
        text=text,
        follows=_place(data, "follows", BEGINNING, place),
        status=status,
        token_ids=token_ids,
        layout=_layout(_get(data, "layout", list, []), len(text), len(token_ids)),
        opening=_opening(data.get("opening", "")),
        finish_reason=_get(data, "finish_reason", str, ""),
        error=_get(data, "error", str, ""),
        seed=_seed(data.get("seed")),
        model_name=_get(data, "model", str, ""),
        backend=_get(data, "backend", str, ""),
        created_at_s=_seconds(data, "created_at_s"),
        packed_metrics=_packed(data.get("metrics")),
    )


def _unpacked(packed: bytes | None) -> Json | None:
    if packed is None:
        return None
    try:
        content = json.loads(zlib.decompress(packed))
    except (ValueError, zlib.error):  # damaged figures are no reason to lose the chat
        return None
    return content if isinstance(content, dict) else None


def _packed(metrics: object) -> bytes | None:
    if metrics is None:
        return None
    return zlib.compress(json.dumps(_expect(dict, metrics, "metrics"), separators=(",", ":")).encode())


def _token_ids(values: list[Any]) -> array[int]:
    try:
        return array("i", values)
    except (TypeError, OverflowError):
        raise _wrong("token_ids", "what is not a list of whole numbers") from None


def _layout(rows: list[Any], num_chars: int, num_tokens: int) -> Layout:
    """Read stretches; they have to add up to the text and the ids, or an edit would cut at the wrong place."""
    layout: list[Span | Note] = []
    for row in rows:
        if isinstance(row, str):
            layout.append(Note(clean_text(row)))
        elif isinstance(row, list) and len(row) == 2 and all(type(count) is int and count >= 0 for count in row):
            layout.append(Span(*row))
        else:
            raise _wrong("layout", row)
    spans = [each for each in layout if isinstance(each, Span)]
    sums = sum(each.num_chars for each in spans), sum(each.num_tokens for each in spans)
    if layout and sums != (num_chars, num_tokens):
        raise _wrong("layout", f"{sums[0]} characters and {sums[1]} ids where there are {num_chars} and {num_tokens}")
    return tuple(layout)


def _place(data: Mapping[str, Any], name: str, low: int, end: int) -> int | None:
    """Return the place of a message, at least `low` and before `end`; None if there is none."""
    value = data.get(name)
    if value is None or (type(value) is int and low <= value < end):
        return value
    raise _wrong(name, value)


def _opening(value: object) -> str:
    if value == "" or value in PAIRS:
        return str(value)
    raise _wrong("opening", value)


def _seed(value: object) -> int | None:
    if value is None or (type(value) is int and 0 <= value < 2**64):
        return value
    raise _wrong("seed", value)


def _seconds(data: Mapping[str, Any], name: str) -> float:
    value = data.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e11:
        raise _wrong(name, value)
    return float(value)


def _get(data: Mapping[str, Any], name: str, kind: type, default: Any) -> Any:
    return _expect(kind, data.get(name, default), name)


def _expect(kind: type, value: object, name: str) -> Any:
    if isinstance(value, kind):
        return value
    raise _wrong(name, value)


def _wrong(name: str, value: object) -> BadRequestError:
    said = repr(value)
    said = said if len(said) <= 60 else f"{said[:57]}..."
    return BadRequestError(f"This file of chats is not as Ringside writes it: {name} is {said}.", "Export it again.")
