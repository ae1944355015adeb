"""SillyTavern's chats, reduced to what matters.

Fields as its own source writes and reads them: header and lines in src/endpoints/chats.js, `swipes`, `swipe_id` and
`swipe_info` in public/script.js (saveReply), kinds of system messages there (system_message_types), the forms of dates
in public/scripts/utils.js (parseTimestamp) and RossAscends-mods.js (getMessageTimeStamp).
"""

from __future__ import annotations

import json
import time
from datetime import datetime, timezone
from typing import Any

import pytest

from app.archive import ArchivedChat
from app.chat_import import read_chats
from app.imported_parts import left_out_words
from backends.errors import BadRequestError
from models.reasoning import split as split_reasoning

HEADER = {
    "user_name": "Me",
    "character_name": "Alice",
    "create_date": "2024-7-12@01h31m37s",
    "chat_metadata": {"note_prompt": ""},
}


def line(name: str, mes: str, *, is_user: bool = False, **more: Any) -> dict[str, Any]:
    return {"name": name, "is_user": is_user, "is_system": False, "send_date": "", "mes": mes, "extra": {}, **more}


def read(*lines: dict[str, Any] | str, name: str = "Alice - 2024-7-12@01h31m37s.jsonl") -> ArchivedChat:
    text = "\n".join(each if isinstance(each, str) else json.dumps(each) for each in lines)
    (chat,) = read_chats(name, text)
    return chat


def turns(chat: ArchivedChat) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in chat.shown]


def test_swipes_become_variants_the_shown_one_as_it_was_edited_with_reasoning_and_models() -> None:
    chat = read(
        HEADER,
        line("Alice", "Hello!"),
        line("Me", "Of mills?", is_user=True),
        line(
            "Alice",
            "They turn, edited.",
            extra={"reasoning": "Wheels.", "model": "gemma", "api": "textgen"},
            swipes=["They grind.", "They turn.", "They stand."],
            swipe_id=1,
            swipe_info=[{"send_date": "June 19, 2023 2:20pm", "extra": {"model": "qwen", "reasoning": "Hm."}}, {}],
        ),
        line("Me", "Go on.", is_user=True),
    )
    assert chat.title == "Alice - 2024-7-12@01h31m37s"
    replies = [message for message in chat.messages if message.follows == 1]
    assert [split_reasoning(message.text).answer for message in replies] == [
        "They grind.",
        "They turn, edited.",
        "They stand.",
    ]
    assert [split_reasoning(message.text).reasoning for message in replies] == ["Hm.", "Wheels.", ""]
    assert [message.model_name for message in replies] == ["qwen", "gemma", ""]
    assert time.localtime(replies[0].created_at_s)[:5] == (2023, 6, 19, 14, 20)
    assert [role for role, _ in turns(chat)] == ["assistant", "user", "assistant", "user"]
    assert "They turn, edited." in turns(chat)[2][1]
    assert time.localtime(chat.created_at_s)[:6] == (2024, 7, 12, 1, 31, 37)
    assert chat.left_out == ()


@pytest.mark.parametrize(
    ("written", "local"),
    [
        ("June 19, 2023 2:20pm", (2023, 6, 19, 14, 20, 0)),
        ("December 1, 2024 12:05am", (2024, 12, 1, 0, 5, 0)),
        ("2024-7-12@01h31m37s", (2024, 7, 12, 1, 31, 37)),
        ("2024-6-5 @14h 56m 50s 682ms", (2024, 6, 5, 14, 56, 50)),
    ],
)
def test_dates_of_the_program_are_local_times(written: str, local: tuple[int, ...]) -> None:
    (message,) = read(HEADER, line("Alice", "Hi", send_date=written)).messages
    assert time.localtime(message.created_at_s)[:6] == local


@pytest.mark.parametrize("written", [1754422800123, "1754422800123", "2025-08-05T19:40:00.123Z"])
def test_dates_of_a_zone_are_taken_in_it(written: object) -> None:
    (message,) = read(HEADER, line("Alice", "Hi", send_date=written)).messages
    assert datetime.fromtimestamp(message.created_at_s, timezone.utc).isoformat()[:16] == "2025-08-05T19:40"


@pytest.mark.parametrize("written", ["soon", "Smarch 1, 2024 1:00pm", "2024-13-50@99h99m99s", None, {}, -5, True])
def test_a_date_that_is_none_is_unknown(written: object) -> None:
    (message,) = read(HEADER, line("Alice", "Hi", send_date=written)).messages
    assert message.created_at_s == 0


def test_narrators_and_hidden_lines_are_kept_and_what_the_program_said_is_counted() -> None:
    chat = read(
        HEADER,
        line("System", "Rain falls.", extra={"type": "narrator"}),
        line("Me", "Old question", is_user=True, is_system=True),
        line("SillyTavern", "Help!", is_system=True, extra={"type": "help"}),
        line("Note", "remember", is_system=True, extra={"type": "comment"}),
        line("Alice", "It is wet.", extra={"image": "a.png", "media": [{}, {}]}),
        "{broken",
    )
    assert turns(chat) == [("user", "Rain falls."), ("user", "Old question"), ("assistant", "It is wet.")]
    assert set(left_out_words([chat]).split(", ")) == {
        "1 message of the program",
        "1 comment",
        "1 attached file",
        "2 pictures",
        "1 broken line",
    }


def test_in_a_group_every_reply_says_whose_it_is_and_a_file_without_a_header_is_read() -> None:
    chat = read(line("Me", "Who?", is_user=True), line("Alice", "I."), line("Bob", "And I."))
    assert turns(chat) == [("user", "Who?"), ("assistant", "Alice: I."), ("assistant", "Bob: And I.")]


def test_a_chat_without_messages_and_lines_of_another_kind_are_one_clear_sentence() -> None:
    with pytest.raises(BadRequestError, match=r"a\.jsonl holds no messages"):
        read(HEADER, name="a.jsonl")
    with pytest.raises(BadRequestError, match=r"a\.jsonl is not complete JSON"):
        read({"text": "one"}, {"text": "two"}, name="a.jsonl")
