"""ChatGPT's conversations.json, reduced to what matters.

Fields as in exports that others describe or keep: the tree, roles, times and models in mitkury/chatgpt-export-parser
(docs/chatgpt-data-export-format.md); `thoughts`, `reasoning_recap`, `user_editable_context` and the parts of
`multimodal_text` in published exports and the parsers of josephjohncox/chatgpt-json-to-md.
"""

from __future__ import annotations

import json
from typing import Any

from app.archive import ArchivedChat
from app.chat_import import read_chats
from app.imported_parts import left_out_words
from models.reasoning import split as split_reasoning


def node(
    id_: str, parent: str | None, role: str, parts: Any, kind: str = "text", seconds: float = 0, **more: Any
) -> dict[str, Any]:
    content = {"content_type": kind, **(parts if isinstance(parts, dict) else {"parts": parts})}
    message = {"id": id_, "author": {"role": role}, "create_time": seconds or None, "content": content, **more}
    return {"id": id_, "parent": parent, "children": [], "message": message}


def conversation(*nodes: dict[str, Any], **more: Any) -> dict[str, Any]:
    root: dict[str, Any] = {"id": "root", "parent": None, "children": [], "message": None}
    mapping = {each["id"]: each for each in (root, *nodes)}
    return {"title": "Mills", "create_time": 1754422800.5, "update_time": 1754422900.0, "mapping": mapping, **more}


def read(*chats: dict[str, Any]) -> list[ArchivedChat]:
    return read_chats("conversations.json", json.dumps(chats))


def turns(chat: ArchivedChat) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in chat.shown]


BRANCHED = conversation(
    node("q1", "root", "user", ["Of mills?"], seconds=1754422801.25),
    node("a1", "q1", "assistant", ["They grind."], seconds=1754422802, metadata={"model_slug": "gpt-4o"}),
    node("a2", "q1", "assistant", ["They turn."], seconds=1754422803, metadata={"model_slug": "gpt-5"}),
    node("q2", "a1", "user", ["And rivers?"]),
    node("a3", "q2", "assistant", ["They run."]),
    current_node="a3",
    default_model_slug="gpt-4o-mini",
)


def test_branches_times_and_models_come_as_they_are() -> None:
    (chat,) = read(BRANCHED)
    assert (chat.title, chat.created_at_s, chat.updated_at_s) == ("Mills", 1754422800.5, 1754422900.0)
    assert turns(chat) == [
        ("user", "Of mills?"),
        ("assistant", "They grind."),
        ("user", "And rivers?"),
        ("assistant", "They run."),
    ]
    assert [message.model_name for message in chat.shown] == ["", "gpt-4o", "", "gpt-4o-mini"]
    assert [message.created_at_s for message in chat.shown][:2] == [1754422801.25, 1754422802]
    variants = [message for message in chat.messages if message.follows == 0]
    assert [(message.text, message.model_name) for message in variants] == [
        ("They grind.", "gpt-4o"),
        ("They turn.", "gpt-5"),
    ]
    assert chat.left_out == ()


def test_the_pieces_of_a_turn_become_one_reply_with_its_reasoning_and_the_rest_is_counted() -> None:
    thoughts = {"thoughts": [{"summary": "Looking", "content": "Mills have wheels."}]}
    (chat,) = read(
        conversation(
            node("s", "root", "system", [""]),
            node(
                "c",
                "s",
                "user",
                {"user_profile": "A miller.", "user_instructions": "Be brief."},
                "user_editable_context",
            ),
            node(
                "q",
                "c",
                "user",
                [{"content_type": "image_asset_pointer"}, "What is this?"],
                "multimodal_text",
                metadata={"attachments": [{"name": "a.pdf"}]},
            ),
            node("t1", "q", "assistant", thoughts, "thoughts"),
            node("a1", "t1", "assistant", ["Let me look."]),
            node("call", "a1", "assistant", {"language": "unknown", "text": "search()"}, "code", recipient="web"),
            node("tool", "call", "tool", {"text": "results"}, "execution_output"),
            node("t2", "tool", "assistant", {"thoughts": [{"summary": "", "content": "So."}]}, "thoughts"),
            node("r", "t2", "assistant", {"content": "Thought for 8s"}, "reasoning_recap"),
            node("a2", "r", "assistant", ["A mill\ue200cite\ue202turn0search0\ue201."], recipient="all"),
            node("hidden", "a2", "user", ["nudge"], metadata={"is_visually_hidden_from_conversation": True}),
            current_node="hidden",
        )
    )
    assert json.loads(chat.settings) == {"system_prompt": "A miller.\n\nBe brief."}
    question, reply = chat.shown
    assert question.text == "What is this?"
    split = split_reasoning(reply.text)
    assert split.reasoning == "Looking\n\nMills have wheels.\n\nSo."
    assert split.answer == "Let me look.\n\nA mill."
    assert set(left_out_words([chat]).split(", ")) == {
        "1 attached file",
        "1 picture",
        "1 call of a tool",
        "1 result of a tool",
        "1 note on the time of thinking",
        "1 citation",
        "1 hidden message",
    }


def test_a_turn_written_again_from_its_middle_is_a_variant_with_the_same_beginning() -> None:
    (chat,) = read(
        conversation(
            node("q", "root", "user", ["Go."]),
            node("a", "q", "assistant", ["Begin."]),
            node("b", "a", "assistant", ["One."]),
            node("c", "a", "assistant", ["Two."]),
            node("d", "c", "user", ["Thanks."]),
            current_node="d",
        )
    )
    assert turns(chat) == [("user", "Go."), ("assistant", "Begin.\n\nTwo."), ("user", "Thanks.")]
    assert {message.text for message in chat.messages} >= {"Begin.\n\nOne.", "Begin.\n\nTwo."}


def test_thoughts_that_nothing_followed_are_counted_and_unknown_kinds_give_their_text() -> None:
    (chat,) = read(
        conversation(
            node("q", "root", "user", ["Go."]),
            node("x", "q", "assistant", {"text": "print(1)", "language": "python"}, "code"),
            node("y", "x", "assistant", {"result": "From a page."}, "tether_quote"),
            node("t", "y", "assistant", {"thoughts": [{"content": "Hm."}]}, "thoughts"),
        )
    )
    assert turns(chat) == [("user", "Go."), ("assistant", "```python\nprint(1)\n```\n\nFrom a page.")]
    assert left_out_words([chat]) == "1 thought without an answer"


def test_several_conversations_and_broken_trees_are_read() -> None:
    circle = conversation(node("a", "b", "user", ["one"]), node("b", "a", "assistant", ["two"]))
    odd = conversation(node("q", "nowhere", "user", ["lost?"]), {"id": "z", "parent": "q", "message": 5})
    chats = read(BRANCHED, circle, odd)
    assert len(chats) == 3
    assert sorted(message.text for message in chats[1].messages) == ["one", "two"]
    assert turns(chats[2]) == [("user", "lost?")]
