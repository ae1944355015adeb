from __future__ import annotations

from array import array
from typing import Literal

from app.prompts import prompt_messages
from app.store import StoredMessage
from backends.requests import Message


def said(role: Literal["user", "assistant"], text: str, *token_ids: int) -> StoredMessage:
    return StoredMessage(1, 1, role, text, "complete", 0.0, array("i", token_ids))


def test_messages_go_into_the_prompt_verbatim_with_the_ids_of_replies() -> None:
    messages = [said("user", "\n\n  a\tb "), said("assistant", "  def f():\n", 4, 5), said("user", "[{'text'")]
    assert prompt_messages("Be brief.", messages) == (
        Message("system", "Be brief."),
        Message("user", "\n\n  a\tb "),
        Message("assistant", "  def f():\n", (4, 5)),
        Message("user", "[{'text'"),
    )


def test_without_a_system_prompt_there_is_no_system_message() -> None:
    assert prompt_messages("", [said("user", "a")]) == (Message("user", "a"),)


def test_a_reply_that_never_got_a_word_is_left_out_and_turns_still_alternate() -> None:
    messages = [said("user", "first"), said("assistant", ""), said("user", "again")]
    assert prompt_messages("", messages) == (Message("user", "first\n\nagain"),)


def test_a_reply_of_only_half_a_character_still_counts() -> None:
    assert prompt_messages("", [said("user", "a"), said("assistant", "", 7)])[-1] == Message("assistant", "", (7,))
