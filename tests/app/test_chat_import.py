"""Files as the programs named write them, reduced to what matters; formats read in their sources."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from app.archive import ArchivedChat, ArchivedMessage
from app.chat_import import read_chats
from app.chat_json import to_file
from backends.errors import BadRequestError


def turns(chat: ArchivedChat) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in chat.messages]


def read_one(content: Any, name: str = "chat.json") -> ArchivedChat:
    (chat,) = read_chats(name, json.dumps(content).encode())
    return chat


def test_its_own_file_comes_back() -> None:
    chat = ArchivedChat("Rivers", (ArchivedMessage("user", "  a\r\n\tb "),), folder="Novel")
    assert read_chats("x.json", to_file([chat, chat]).encode()) == [chat, chat]


TEXTGEN = {
    "internal": [["<|BEGIN-VISIBLE-CHAT|>", "Hello!"], ["Say a<b", "a<b & c\n"], ["more?", ""]],
    "visible": [["", "Hello!"], ["Say a&lt;b", "a&lt;b &amp; c\n"], ["more?", ""]],
    "metadata": {
        "user_1": {"timestamp": "Aug 05, 2025 21:40"},
        "assistant_1": {"timestamp": "Aug 05, 2025 21:41", "model_name": "x.gguf"},
        "user_2": {"timestamp": ""},
    },
}


def test_text_generation_webui_gives_its_texts_unescaped_without_its_opening_mark() -> None:
    chat = read_one(TEXTGEN, "20250805-21-40-00.json")
    assert chat.title == "20250805-21-40-00"
    assert turns(chat) == [
        ("assistant", "Hello!"),
        ("user", "Say a<b"),
        ("assistant", "a<b & c\n"),
        ("user", "more?"),
    ]
    assert time.localtime(chat.messages[1].created_at_s)[:5] == (2025, 8, 5, 21, 40)
    assert chat.messages[0].created_at_s == chat.messages[3].created_at_s == 0


def test_older_files_of_text_generation_webui_are_read_too() -> None:
    chat = read_one({"data": [["hi", "there"]], "data_visible": [["hi", "there"]]}, "persistent.json")
    assert turns(chat) == [("user", "hi"), ("assistant", "there")]


def open_webui_message(id_: str, role: str, content: Any, parent: str | None, **more: Any) -> dict[str, Any]:
    return {"id": id_, "parentId": parent, "childrenIds": [], "role": role, "content": content, **more}


OPEN_WEBUI = {
    "id": "c1",
    "user_id": "u",
    "title": "Mills",
    "chat": {
        "title": "Mills (inner)",
        "models": ["gemma3:270m"],
        "system": "Be brief.",
        "history": {
            "currentId": "a2",
            "messages": {
                "q1": open_webui_message("q1", "user", "Of mills?", None, timestamp=1754422800),
                "a1": open_webui_message("a1", "assistant", "first try", "q1"),
                "a2": open_webui_message(
                    "a2", "assistant", "second try", "q1", model="gemma3:270m", modelName="Gemma", timestamp=1754422805
                ),
            },
        },
        "messages": [],
    },
    "created_at": 1754422800,
    "updated_at": 1754422806,
    "pinned": True,
    "meta": {"tags": []},
}


def test_open_webui_gives_the_branch_that_was_shown_with_its_models_and_times() -> None:
    chat = read_one([OPEN_WEBUI])
    assert (chat.title, chat.pinned, chat.created_at_s, chat.updated_at_s) == ("Mills", True, 1754422800, 1754422806)
    assert turns(chat) == [("user", "Of mills?"), ("assistant", "second try")]
    assert chat.messages[1].model_name == "Gemma"
    assert chat.messages[1].created_at_s == 1754422805
    assert json.loads(chat.settings) == {"system_prompt": "Be brief."}


def test_open_webui_chats_without_a_tree_in_other_spellings_and_several_at_once_are_read() -> None:
    parts = [{"type": "text", "text": "of "}, {"type": "image_url"}, {"type": "text", "text": "mills"}]
    flat = {"chat": {"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": parts}]}}
    snake = json.loads(json.dumps(OPEN_WEBUI).replace("currentId", "current_id"))
    milliseconds = {**OPEN_WEBUI, "created_at": 1754422800123, "updated_at": 1754422800123456789}
    chats = read_chats("all.json", json.dumps([flat, snake, milliseconds, OPEN_WEBUI["chat"]]))
    assert turns(chats[0]) == [("user", "of mills")]
    assert chats[0].title == "of mills"
    assert json.loads(chats[0].settings) == {"system_prompt": "S"}
    assert turns(chats[1]) == turns(chats[2]) == turns(chats[3])
    assert chats[2].created_at_s == pytest.approx(1754422800, abs=1)
    assert chats[2].updated_at_s == pytest.approx(1754422800, abs=1)


def test_a_tree_that_runs_in_a_circle_ends() -> None:
    circle = json.loads(json.dumps(OPEN_WEBUI))
    circle["chat"]["history"]["messages"]["q1"]["parentId"] = "a2"
    assert len(read_one(circle).messages) <= 3


@pytest.mark.parametrize("text", ["Once upon a time\r\n\tthere was", "{not json", "[1, 2"])
def test_plain_text_is_a_message_as_it_stands(text: str) -> None:
    (chat,) = read_chats("my_long novel.txt", b"\xef\xbb\xbf" + text.encode())
    assert (chat.title, turns(chat)) == ("my long novel", [("user", text)])


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.txt", b"", "a.txt is empty"),
        ("a.txt", b" \n", "a.txt is empty"),
        ("a.txt", b"caf\xe9", r"a.txt is not a text file in UTF-8 \(byte 3\)"),
        ("a.bin", b"ab\0cd", "a.bin is not a text file"),
        ("a.json", b'{"internal": [["a"', "a.json is not complete JSON: "),
        ("a.json", b"[" * 100_000, "a.json is not complete JSON: "),
        ("a.json", b"[]", "a.json is not a file of chats that Ringside knows"),
        ("a.json", b"5", "a.json is not a file of chats that Ringside knows"),
        ("a.json", b'{"hello": 1}', "a.json is not a file of chats that Ringside knows"),
        ("a.json", b'[{"chat": 5}]', "a.json is not a file of chats that Ringside knows"),
        ("a.json", b'{"internal": [["a", "b"], ["c"]]}', "a.json breaks off at turn 2: it is not a pair of texts"),
        ("a.json", b'{"internal": 5}', "a.json breaks off at turn 1"),
        ("a.json", b'[{"chat": {"messages": []}}]', "a.json holds no messages"),
        ("a.json", b'[{"chat": {"history": {"messages": [1]}, "messages": [2]}}]', "a.json holds no messages"),
        ("a.json", b'{"format": "ringside-chats", "version": 9}', "This file of chats has version 9"),
    ],
)
def test_a_bad_file_is_one_clear_sentence(name: str, content: bytes, sentence: str) -> None:
    with pytest.raises(BadRequestError, match=sentence):
        read_chats(name, content)
