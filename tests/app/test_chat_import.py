"""Files as the programs named write them, reduced to what matters; formats read in their sources."""

from __future__ import annotations

import html
import json
import time
from typing import Any

import pytest

from app.archive import ArchivedChat, ArchivedMessage
from app.chat_import import read_chats
from app.chat_json import to_file
from app.imported_parts import left_out_words
from backends.errors import BadRequestError
from models.reasoning import split as split_reasoning


def turns(chat: ArchivedChat) -> list[tuple[str, str]]:
    """Return what is on screen."""
    return [(message.role, message.text) for message in chat.shown]


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


def test_former_versions_of_text_generation_webui_become_variants() -> None:
    versions = [
        {"content": "rivers", "visible_content": "rivers", "timestamp": "Aug 05, 2025 21:41"},
        {"content": "lakes", "visible_content": "lakes", "timestamp": "Aug 05, 2025 21:42"},
        {"content": "seas", "visible_content": "seas", "timestamp": "Aug 05, 2025 21:43"},
    ]
    chat = read_one(
        {
            "internal": [["of what?", "lakes"], ["go on", "more of lakes"]],
            "visible": [],
            "metadata": {"assistant_0": {"versions": versions, "current_version_index": 1, "model_name": "x.gguf"}},
        }
    )
    assert turns(chat) == [
        ("user", "of what?"),
        ("assistant", "lakes"),
        ("user", "go on"),
        ("assistant", "more of lakes"),
    ]
    assert [message.text for message in chat.messages[1:4]] == ["rivers", "lakes", "seas"]
    assert len({follows(chat, place) for place in (1, 2, 3)}) == 1
    assert chat.messages[3].model_name == "x.gguf"
    assert time.localtime(chat.messages[3].created_at_s)[:5] == (2025, 8, 5, 21, 43)


def follows(chat: ArchivedChat, place: int) -> int:
    """Return the place of the message that one follows."""
    given = chat.messages[place].follows
    return place - 1 if given is None else given


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
    assert chat.shown[1].model_name == "Gemma"
    assert chat.shown[1].created_at_s == 1754422805
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


def branched() -> dict[str, Any]:
    """Return a chat asked of two models, one answer regenerated, with the earlier one gone on with and on screen."""
    nodes = [
        open_webui_message("s", "system", "Be brief.", None),
        open_webui_message("q1", "user", "Of mills?", "s", models=["gemma3:270m", "qwen3:4b"]),
        open_webui_message("a1", "assistant", "gemma on mills", "q1", model="gemma3:270m", modelIdx=0),
        open_webui_message("b1", "assistant", "qwen on mills", "q1", model="qwen3:4b", modelIdx=1),
        open_webui_message("a2", "assistant", "gemma again", "q1", model="gemma3:270m", modelIdx=0),
        open_webui_message("q2", "user", "And rivers?", "a1"),
        open_webui_message("a3", "assistant", "on rivers", "q2"),
    ]
    return {"chat": {"history": {"currentId": "a3", "messages": {node["id"]: node for node in nodes}}}}


def test_siblings_of_open_webui_stay_variants_and_the_branch_on_screen_stays_there() -> None:
    chat = read_one(branched())
    assert turns(chat) == [
        ("user", "Of mills?"),
        ("assistant", "gemma on mills"),
        ("user", "And rivers?"),
        ("assistant", "on rivers"),
    ]
    question = next(place for place, message in enumerate(chat.messages) if message.text == "Of mills?")
    answers = [message.text for place, message in enumerate(chat.messages) if follows(chat, place) == question]
    assert answers == ["gemma on mills", "qwen on mills", "gemma again"]
    assert json.loads(chat.settings) == {"system_prompt": "Be brief."}


THOUGHTS = "Let me see.\n\n<b> & > are marks.\n  indented"
BODY = "\n".join(f"> {line}" for line in THOUGHTS.split("\n"))


@pytest.mark.parametrize(
    "block",
    [
        f'<details type="reasoning" done="true" duration="13">\n<summary>Thought for 13 seconds</summary>\n'
        f"{BODY}\n</details>",
        f'<details type="reasoning" done="true" duration="0">\n<summary>Thought for 0 seconds</summary>\n'
        f"{html.escape(BODY)}\n</details>",
        f'<details type="reasoning" done="true" view="" last_tool_call_name="">\n<summary>Thought</summary>\n'
        f"{THOUGHTS}\n</details>",
    ],
    ids=["quoted", "quoted and escaped", "bare"],
)
def test_reasoning_of_open_webui_becomes_reasoning(block: str) -> None:
    (message,) = reply_of(f"{block}\n\nMills grind.")
    split = split_reasoning(message.text)
    assert (split.reasoning, split.answer) == (THOUGHTS, "Mills grind.")


def reply_of(content: str, **more: Any) -> tuple[ArchivedMessage, ...]:
    return read_one({"chat": {"messages": [{"role": "assistant", "content": content, **more}]}}).messages


def test_reasoning_in_several_pieces_cut_short_or_with_marks_in_it_is_never_lost_nor_answer() -> None:
    piece = '<details type="reasoning" done="true">\n<summary>Thought</summary>\n> {}\n</details>\n'
    (message,) = reply_of(piece.format("first </think>") + "Mills.\n" + piece.format("second") + "More.")
    split = split_reasoning(message.text)
    assert split.reasoning == "first </think>\n\nsecond"
    assert split.answer == "Mills.\nMore."
    (message,) = reply_of('<details type="reasoning" done="false">\n<summary>Thinking…</summary>\n&gt; on and')
    assert split_reasoning(message.text).reasoning == "on and"


def test_reasoning_that_open_webui_keeps_beside_the_text_is_taken_from_there() -> None:
    output = [
        {"type": "reasoning", "summary": [], "content": [{"type": "output_text", "text": "Hm."}]},
        {"type": "message", "content": [{"type": "output_text", "text": "Mills."}]},
    ]
    for content in ("Mills.", ""):
        (message,) = reply_of(content, output=output)
        split = split_reasoning(message.text)
        assert (split.reasoning, split.answer) == ("Hm.", "Mills.")


def test_what_open_webui_attached_is_counted() -> None:
    parts = [{"type": "text", "text": "Look"}, {"type": "image_url", "image_url": {"url": "data:"}}]
    messages = [
        {"role": "user", "content": parts, "files": [{"type": "file"}, {"type": "image"}]},
        {"role": "tool", "content": "found"},
    ]
    chat = read_one({"chat": {"messages": messages}})
    assert left_out_words([chat]) == "2 attached files, 1 picture, 1 message of another kind"


def test_an_error_of_open_webui_stays_one() -> None:
    (message,) = reply_of("", error={"content": "model not found"})
    assert (message.status, message.error) == ("error", "model not found")


def test_many_unclosed_blocks_are_read_in_a_moment() -> None:
    (message,) = reply_of('<details type="reasoning"\n' * 50_000)
    assert message.text.count("<details") == 50_000


def test_a_tree_that_runs_in_a_circle_ends() -> None:
    circle = json.loads(json.dumps(OPEN_WEBUI))
    circle["chat"]["history"]["messages"]["q1"]["parentId"] = "a2"
    assert sorted(message.text for message in read_one(circle).messages) == ["Of mills?", "first try", "second try"]


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
        ("a.json", b'[{"chat": {"history": {}, "messages": 5}}]', "a.json holds no messages"),
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
