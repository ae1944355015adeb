"""Chats as Open WebUI exports them: a tree of messages by id, reasoning inside the text.

Siblings (answers regenerated, or by several models side by side) stay variants. A reply's reasoning is a block of HTML
in its text, `<details type="reasoning">`, quoted line by line, and escaped by newer versions; it is reasoning here too.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from typing import Any

from app.archive import BEGINNING, ArchivedChat, ArchivedMessage, LeftOut
from app.imported_parts import LeftOutCount, dict_of, from_the_roots, list_of, reply_text, timestamp_s
from app.input_rules import clean_text, title_from

Json = dict[str, Any]

_REASONING = re.compile(
    r'^<details type="reasoning"[^>]{0,500}>\s*(?:<summary>[^<]{0,500}</summary>)?\n?(.*?)(?:^</details>\s*|\Z)',
    re.DOTALL | re.MULTILINE,
)


def is_open_webui(chat: object) -> bool:
    """Tell whether this is an entry of an export, or the chat inside one."""
    inner = chat.get("chat", chat) if isinstance(chat, dict) else None
    return isinstance(inner, dict) and ("history" in inner or isinstance(inner.get("messages"), list))


def from_open_webui(entry: Json) -> ArchivedChat:
    """Read one entry: {"title": ..., "chat": {"title", "history": {"messages", "currentId"}, "messages"}, ...}."""
    inner = entry.get("chat", entry)
    nodes = _nodes(inner)
    messages, leaf = _tree(nodes, _current(inner, nodes))
    title = next((each for each in (entry.get("title"), inner.get("title")) if isinstance(each, str) and each), "")
    system = _system(inner, nodes)
    return ArchivedChat(
        title=clean_text(title) or title_from(next((message.text for message in messages), "")),
        messages=messages,
        leaf=None if leaf == len(messages) - 1 else leaf,
        pinned=entry.get("pinned") is True,
        created_at_s=timestamp_s(entry.get("created_at", inner.get("timestamp"))),
        updated_at_s=timestamp_s(entry.get("updated_at")),
        settings=json.dumps({"system_prompt": clean_text(system)}) if system else "",
        left_out=_left_out(nodes),
    )


def _left_out(nodes: dict[str, Json]) -> tuple[LeftOut, ...]:
    count = LeftOutCount()
    for node in nodes.values():
        count.add("attached file", count=len(list_of(node.get("files"))))
        parts = map(dict_of, list_of(node.get("content")))
        count.add("picture", count=sum(part.get("type") == "image_url" for part in parts))
        if node.get("role") not in ("user", "assistant", "system"):
            count.add("message of another kind", "messages of other kinds")
    return count.all()


def _nodes(inner: Json) -> dict[str, Json]:
    """Return the messages by id; a chat without a tree is a chain of its messages."""
    history = inner.get("history")
    by_id = history.get("messages") if isinstance(history, dict) else None
    if isinstance(by_id, dict) and by_id:
        return {str(id_): message for id_, message in by_id.items() if isinstance(message, dict)}
    listed = inner.get("messages")
    listed = [message for message in listed if isinstance(message, dict)] if isinstance(listed, list) else []
    return {str(number): {**each, "parentId": str(number - 1)} for number, each in enumerate(listed)}


def _current(inner: Json, nodes: dict[str, Json]) -> str:
    history = inner.get("history")
    history = history if isinstance(history, dict) else {}
    current = str(history.get("currentId") or history.get("current_id"))
    return current if current in nodes else next(reversed(nodes), "")


def _tree(nodes: dict[str, Json], current: str) -> tuple[tuple[ArchivedMessage, ...], int | None]:
    """Return all messages, each after the one it follows, and the place of the current one (or of what it follows)."""
    messages: list[ArchivedMessage] = []
    places: dict[str, int] = {}  # of a message; of the one before it where it is none of ours
    for id_ in from_the_roots({id_: str(node.get("parentId")) for id_, node in nodes.items()}):
        follows = places.get(str(nodes[id_].get("parentId")), BEGINNING)
        if nodes[id_].get("role") not in ("user", "assistant"):
            places[id_] = follows
            continue
        places[id_] = len(messages)
        messages.append(_message(nodes[id_], None if follows == len(messages) - 1 else follows))
    leaf = places.get(current, BEGINNING)
    return tuple(messages), None if leaf == BEGINNING else leaf


def _message(node: Json, follows: int | None) -> ArchivedMessage:
    is_reply = node["role"] == "assistant"
    error = _error(node) if is_reply else ""
    return ArchivedMessage(
        role="assistant" if is_reply else "user",
        text=clean_text(_reply(node) if is_reply else _content(node)),
        follows=follows,
        status="error" if error else "complete",
        error=error,
        created_at_s=timestamp_s(node.get("timestamp")),
        model_name=_model_name(node),
    )


def _reply(node: Json) -> str:
    """Return a reply's text with its reasoning before the answer, between marks that do not occur in it."""
    content, output = _content(node), node.get("output")
    items = [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []
    thoughts = [_unquoted(found[1]) for found in _REASONING.finditer(content)]
    answer = _REASONING.sub("", content) if thoughts else content
    if not thoughts:
        thoughts = [_joined(item.get("summary") or item.get("content")) for item in items if _is(item, "reasoning")]
    if not content:
        answer = "".join(_joined(item.get("content")) for item in items if _is(item, "message"))
    return reply_text("\n\n".join(filter(None, (thought.strip() for thought in thoughts))), answer)


def _unquoted(block: str) -> str:
    """Return reasoning without the quote mark that Open WebUI puts before every line."""
    lines = block.strip("\n").split("\n")
    if lines[0].startswith("&gt;"):
        lines = [html.unescape(line) for line in lines]
    return "\n".join("" if line == ">" else line.removeprefix("> ") for line in lines)


def _is(item: Json, kind: str) -> bool:
    return item.get("type") == kind


def _content(node: Mapping[str, Any]) -> str:
    content = node.get("content")
    return content if isinstance(content, str) else _joined(content)


def _joined(parts: object) -> str:
    """Return the text of a list of parts; pictures and the like have none."""
    parts = parts if isinstance(parts, list) else []
    return "".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))


def _system(inner: Json, nodes: dict[str, Json]) -> str:
    params = inner.get("params")
    said = [inner.get("system"), params.get("system") if isinstance(params, dict) else None]
    said += [_content(node) for node in nodes.values() if node.get("role") == "system"]
    return next((each for each in said if isinstance(each, str) and each), "")


def _error(node: Json) -> str:
    error = node.get("error")
    error = error.get("content") if isinstance(error, dict) else error
    return clean_text(error) if isinstance(error, str) else ""


def _model_name(node: Mapping[str, Any]) -> str:
    name = node.get("modelName") or node.get("model")
    return clean_text(name) if isinstance(name, str) else ""
