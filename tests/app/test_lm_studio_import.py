"""LM Studio's conversation files, reduced to what matters.

Fields as YorkieDev/lm-studio-conversation-converter (script.js) reads them, and as files others write for it hold them:
versions, steps, `style` of thinking, `genInfo`, `lastUsedModel`, `perChatPredictionConfig`, calls of tools.
"""

from __future__ import annotations

import json
from typing import Any

from app.archive import ArchivedChat
from app.chat_import import read_chats
from app.imported_parts import left_out_words
from models.reasoning import split as split_reasoning


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def single(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "singleStep", "role": role, "content": list(parts)}


def block(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "contentBlock", "content": list(parts), **more}


def multi(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "multiStep", "role": "assistant", "steps": list(steps), **more}


def entry(*versions: dict[str, Any], selected: int = 0) -> dict[str, Any]:
    return {"versions": list(versions), "currentlySelected": selected}


def read(*messages: dict[str, Any], **more: Any) -> ArchivedChat:
    content = {"name": "Mills", "pinned": True, "createdAt": 1754422800123, "messages": messages, **more}
    (chat,) = read_chats("1754422800123.conversation.json", json.dumps(content))
    return chat


def test_versions_reasoning_models_and_the_system_prompt_come_along_and_the_rest_is_counted() -> None:
    thinking = block(text("Wheels."), style={"type": "thinking", "ended": True}, prefix="<think>", suffix="</think>")
    chat = read(
        entry(single("user", text("Of mills?"), {"type": "file", "fileIdentifier": "a.pdf"})),
        entry(
            multi(block(text("They grind.")), senderInfo={"senderName": "qwen"}),
            multi(
                thinking,
                block({"type": "toolCallRequest", "name": "search"}),
                block({"type": "toolCallResult", "content": "found"}),
                block(text("They turn."), genInfo={"identifier": "gemma", "stats": {}}),
                {"type": "debugInfoBlock", "debugInfo": "x"},
            ),
            selected=1,
        ),
        entry(single("user", text("Thanks."))),
        entry(multi(block(text("Gladly.")))),
        lastUsedModel={"identifier": "last"},
        perChatPredictionConfig={"fields": [{"key": "llm.prediction.systemPrompt", "value": "Be brief."}]},
        assistantLastMessagedAt=1754422900000,
    )
    assert (chat.title, chat.pinned) == ("Mills", True)
    assert (round(chat.created_at_s), chat.updated_at_s) == (1754422800, 1754422900.0)
    assert json.loads(chat.settings) == {"system_prompt": "Be brief."}
    assert [message.role for message in chat.shown] == ["user", "assistant", "user", "assistant"]
    split = split_reasoning(chat.shown[1].text)
    assert (split.reasoning, split.answer) == ("Wheels.", "They turn.")
    assert next(message.text for message in chat.messages if message.follows == 0) == "They grind."
    assert [message.model_name for message in chat.messages] == ["", "qwen", "gemma", "", "last"]
    assert left_out_words([chat]) == "1 attached file, 1 call of a tool, 1 result of a tool"


def test_what_is_odd_is_read_as_far_as_it_goes() -> None:
    chat = read(
        entry(single("system", text("Be kind."))),
        entry(single("user", text("Hi")), selected=7),
        entry({"role": "assistant", "content": "plain"}),
        entry(),
        entry({"role": "narrator"}),
        name=5,
    )
    assert [(message.role, message.text) for message in chat.shown] == [("user", "Hi"), ("assistant", "plain")]
    assert chat.title == "Hi"
    assert json.loads(chat.settings) == {"system_prompt": "Be kind."}
