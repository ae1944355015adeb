"""Conversations as LM Studio keeps them: messages with their versions, a reply in steps.

Steps in the style of thinking are reasoning; calls of tools, their results and attached files are counted.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from app.archive import BEGINNING, ArchivedChat, ArchivedMessage
from app.imported_parts import LeftOutCount, dict_of, list_of, reply_text, text_of, timestamp_s
from app.input_rules import clean_text, title_from

Json = dict[str, Any]

_SYSTEM_PROMPT = "llm.prediction.systemPrompt"


def is_lm_studio(content: object) -> bool:
    """Tell whether this is a conversation file."""
    messages = list_of(dict_of(content).get("messages"))
    return bool(messages) and all("versions" in dict_of(message) for message in messages)


def from_lm_studio(title: str, content: Json) -> ArchivedChat:
    """Read {"name", "pinned", "createdAt", "messages": [{"versions": [...], "currentlySelected": 0}, ...], ...}."""
    left_out = LeftOutCount()
    model = text_of(dict_of(content.get("lastUsedModel")).get("identifier"))
    system = [text_of(content.get("systemPrompt")), *_configured_prompts(content)]
    messages: list[ArchivedMessage] = []
    last = BEGINNING
    for entry in map(dict_of, list_of(content.get("messages"))):
        follows, selected = last, entry.get("currentlySelected", 0)
        for number, version in enumerate(map(dict_of, list_of(entry.get("versions")))):
            role = text_of(version.get("role")) or text_of(entry.get("role"))
            if role == "system":
                system.append(_text(version, left_out))
            elif role in ("user", "assistant"):
                message = _message("assistant" if role == "assistant" else "user", version, follows, model, left_out)
                last = len(messages) if number == selected or last == follows else last
                messages.append(message)
    prompt = clean_text(next(filter(None, system), ""))
    return ArchivedChat(
        title=clean_text(text_of(content.get("name"))) or title_from(messages[0].text if messages else "") or title,
        messages=tuple(messages),
        leaf=None if last in (BEGINNING, len(messages) - 1) else last,
        pinned=content.get("pinned") is True,
        created_at_s=timestamp_s(content.get("createdAt")),
        updated_at_s=max(timestamp_s(content.get(f"{who}LastMessagedAt")) for who in ("user", "assistant")),
        settings=json.dumps({"system_prompt": prompt}) if prompt else "",
        left_out=left_out.all(),
    )


def _configured_prompts(content: Json) -> list[str]:
    fields = list_of(dict_of(content.get("perChatPredictionConfig")).get("fields"))
    return [text_of(field.get("value")) for field in map(dict_of, fields) if field.get("key") == _SYSTEM_PROMPT]


def _message(
    role: Literal["user", "assistant"], version: Json, follows: int, last_model: str, left_out: LeftOutCount
) -> ArchivedMessage:
    steps = [dict_of(step) for step in list_of(version.get("steps"))]
    if not steps:
        text = _text(version, left_out)
    else:
        blocks = [(step, _text(step, left_out)) for step in steps]
        thoughts = [text for step, text in blocks if _is_thinking(step)]
        answers = [text for step, text in blocks if not _is_thinking(step)]
        text = reply_text("\n\n".join(filter(None, thoughts)), "\n\n".join(filter(None, answers)))
    return ArchivedMessage(
        role,
        clean_text(text),
        follows=follows,
        created_at_s=timestamp_s(version.get("createdAt")),
        model_name=clean_text(_model(version, steps) or last_model) if role == "assistant" else "",
    )


def _is_thinking(step: Json) -> bool:
    return dict_of(step.get("style")).get("type") == "thinking"


def _model(version: Json, steps: list[Json]) -> str:
    named = [dict_of(step.get("genInfo")) for step in steps]
    models = [text_of(info.get("identifier")) or text_of(info.get("indexedModelIdentifier")) for info in named]
    return next(filter(None, [*models, text_of(dict_of(version.get("senderInfo")).get("senderName"))]), "")


def _text(block: Json, left_out: LeftOutCount) -> str:
    content = block.get("content")
    if isinstance(content, str):
        return content
    texts = []
    for part in map(dict_of, list_of(content)):
        match part.get("type"):
            case "text":
                texts.append(text_of(part.get("text")))
            case "file":
                left_out.add("attached file")
            case "toolCallRequest":
                left_out.add("call of a tool", "calls of tools")
            case "toolCallResult":
                left_out.add("result of a tool", "results of tools")
            case _:
                left_out.add("part of another kind", "parts of other kinds")
    return "".join(texts)
