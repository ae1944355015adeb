from __future__ import annotations

import json
from array import array
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.archive import ArchivedChat, ArchivedMessage
from app.chat_json import from_file, to_file
from app.content import Note, Span
from app.metrics import MetricsRecord, Summary
from backends.errors import BadRequestError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
METRICS = MetricsRecord(Summary(num_tokens=3, elapsed_s=0.1), {"tokens_per_s": [(1, 0.25, 12.3)]}).pack()
MESSAGES = st.builds(
    ArchivedMessage,
    role=st.sampled_from(["user", "assistant"]),
    follows=st.none(),
    text=TEXT,
    status=st.sampled_from(["queued", "running", "complete", "cancelled", "cut", "error"]),
    token_ids=st.lists(st.integers(0, 2**31 - 1), max_size=5).map(lambda ids: array("i", ids)),
    layout=st.just(()),
    finish_reason=st.sampled_from(["", "stop", "length"]),
    error=TEXT,
    seed=st.none() | st.integers(0, 2**64 - 1),
    model_name=TEXT,
    backend=TEXT,
    created_at_s=st.floats(0, 2e9),
    packed_metrics=st.sampled_from([None, METRICS]),
)
CHATS = st.builds(
    ArchivedChat,
    title=TEXT,
    messages=st.lists(MESSAGES, max_size=4).map(tuple),
    leaf=st.none(),
    kind=st.sampled_from(["chat", "notebook"]),
    folder=TEXT,
    pinned=st.booleans(),
    created_at_s=st.floats(0, 2e9),
    updated_at_s=st.floats(0, 2e9),
    settings=st.sampled_from(["", '{"window": 64, "system_prompt": "Be brief."}']),
)


@settings(max_examples=50, deadline=None)
@given(st.lists(CHATS, max_size=2))
def test_chats_come_back_byte_for_byte_with_ids_and_figures(chats: list[ArchivedChat]) -> None:
    assert from_file(json.loads(to_file(chats))) == chats


def test_variants_what_is_on_screen_and_edited_stretches_come_back() -> None:
    reply = ArchivedMessage(
        "assistant", "drawn typed", token_ids=array("i", [1, 2]), layout=(Span(6, 2), Note("steer"), Span(5, 0))
    )
    messages = (ArchivedMessage("user", "ask"), reply, ArchivedMessage("assistant", "other", follows=0))
    again = ArchivedMessage("user", "ask better", follows=-1)
    chat = ArchivedChat("", (*messages, again), leaf=1)
    assert from_file(json.loads(to_file([chat]))) == [chat]
    assert [message.text for message in chat.shown] == ["ask", "drawn typed"]
    assert [message.text for message in ArchivedChat("", chat.messages, leaf=2).shown] == ["ask", "other"]
    assert [message.text for message in ArchivedChat("", chat.messages).shown] == ["ask better"]


def test_where_models_lie_on_this_machine_stays_here() -> None:
    for path in ("/home/someone/models/x.gguf", r"C:\models\x.gguf"):
        kept = json.dumps({"model": path, "window": 64})
        (chat,) = from_file(json.loads(to_file([ArchivedChat("", (), settings=kept)])))
        assert json.loads(chat.settings) == {"window": 64}
    named = json.dumps({"model": "owner/name", "window": 64})
    (chat,) = from_file(json.loads(to_file([ArchivedChat("", (), settings=named)])))
    assert json.loads(chat.settings) == {"model": "owner/name", "window": 64}


def test_half_characters_are_replaced_since_no_store_can_hold_them() -> None:
    content = {"format": "ringside-chats", "version": 1, "chats": [{"messages": [{"role": "user", "text": "a\ud83d"}]}]}
    assert from_file(content)[0].messages[0].text == "a\ufffd"


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ({"role": "system"}, "role is 'system'"),
        ({"role": "user", "text": 5}, "text is 5"),
        ({"role": "user", "status": "done"}, "status is 'done'"),
        ({"role": "user", "token_ids": [1, "2"]}, "token_ids is"),
        ({"role": "user", "token_ids": [2**40]}, "token_ids is"),
        ({"role": "user", "seed": -1}, "seed is -1"),
        ({"role": "user", "created_at_s": "today"}, "created_at_s is 'today'"),
        ({"role": "user", "follows": 0}, "follows is 0"),
        ({"role": "user", "follows": -2}, "follows is -2"),
        ({"role": "user", "text": "abc", "layout": [[2, 0]]}, "layout is '2 characters and 0 ids where"),
        ({"role": "user", "text": "abc", "layout": [[3]]}, r"layout is \[3\]"),
        ({"role": "user", "metrics": [1]}, r"metrics is \[1\]"),
        ("hello", "messages is 'hello'"),
    ],
)
def test_what_is_not_as_it_should_be_is_named_in_one_sentence(message: Any, named: str) -> None:
    content = {"version": 1, "chats": [{"messages": [message]}]}
    with pytest.raises(BadRequestError, match=f"This file of chats is not as Ringside writes it: {named}"):
        from_file(content)


def test_a_file_of_a_later_version_is_refused() -> None:
    with pytest.raises(BadRequestError, match="version 2; this Ringside reads version 1"):
        from_file({"format": "ringside-chats", "version": 2, "chats": []})


def test_names_a_later_version_may_add_are_passed_over() -> None:
    (chat,) = from_file({"version": 1, "chats": [{"title": "x", "colour": 1, "messages": [{"role": "user", "z": 2}]}]})
    assert chat == ArchivedChat("x", (ArchivedMessage("user", ""),))
