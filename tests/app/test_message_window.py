"""The messages of a long chat: whole at its end and where the reader is, elsewhere in brief."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from fastapi.testclient import TestClient

from app.content import Content
from app.message_window import MAX_WHOLE, NUM_NEWEST
from app.server import build_routes
from app.store import Store
from tests.app.conftest import EchoService

NUM_MESSAGES = 400


def seeded(path: Path, num_messages: int = NUM_MESSAGES) -> tuple[int, list[int]]:
    """Put a chat of so many messages into a store; return its id and theirs."""
    store = Store(path)
    chat = store.add_chat("Long", "")
    ids: list[int] = []
    for number in range(num_messages):
        role: Literal["user", "assistant"] = "assistant" if number % 2 else "user"
        text = f"answer **{number}**" if number % 2 else f"question {number}"
        ids.append(store.tree.add(chat.id, role, ids[-1] if ids else None, Content(text), "complete"))
    store.close()
    return chat.id, ids


def whole(rows: list[dict[str, Any]]) -> list[int]:
    """Return the places of the messages that came whole."""
    return [place for place, row in enumerate(rows) if "brief" not in row]


def test_a_chat_comes_whole_at_its_end_and_where_the_reader_is(echo_service: EchoService, tmp_path: Path) -> None:
    chat, ids = seeded(tmp_path / "chats.sqlite")
    newest = list(range(NUM_MESSAGES - NUM_NEWEST, NUM_MESSAGES))
    with TestClient(build_routes(echo_service()), base_url="http://127.0.0.1:7878") as page:
        rows = page.get(f"/app/chats/{chat}").json()["messages"]
        assert [row["id"] for row in rows] == ids
        assert whole(rows) == newest
        assert rows[-1]["open"] == f'<p dir="auto">answer <strong>{NUM_MESSAGES - 1}</strong></p>\n'
        assert rows[0] == {"id": ids[0], "role": "user", "num_chars": len("question 0"), "edition": 0, "brief": True}
        rows = page.get(f"/app/chats/{chat}?first=40&count=10").json()["messages"]
        assert whole(rows) == [*range(40, 50), *newest]
        assert rows[40]["text"] == "question 40"
        assert rows[41]["open"] == '<p dir="auto">answer <strong>41</strong></p>\n'


@pytest.mark.parametrize(
    "asked", ["first=-5&count=3", "first=9999&count=9", "first=5&count=-2", "first=0&count=99999999"]
)
def test_places_that_are_none_are_left_out_and_too_many_are_cut(
    echo_service: EchoService, tmp_path: Path, asked: str
) -> None:
    chat, _ = seeded(tmp_path / "chats.sqlite")
    with TestClient(build_routes(echo_service()), base_url="http://127.0.0.1:7878") as page:
        rows = page.get(f"/app/chats/{chat}?{asked}").json()["messages"]
        assert len(rows) == NUM_MESSAGES
        assert len(whole(rows)) <= MAX_WHOLE + NUM_NEWEST


def test_messages_are_told_of_by_id_and_those_that_are_gone_are_left_out(
    echo_service: EchoService, tmp_path: Path
) -> None:
    _, ids = seeded(tmp_path / "chats.sqlite", num_messages=6)
    with TestClient(build_routes(echo_service()), base_url="http://127.0.0.1:7878") as page:
        rows = page.get(f"/app/messages?ids={ids[0]}&ids={ids[3]}&ids=987654").json()["messages"]
        assert [row["id"] for row in rows] == [ids[0], ids[3]]
        assert rows[0]["text"] == "question 0"
        assert rows[1]["open"] == '<p dir="auto">answer <strong>3</strong></p>\n'


def test_texts_between_two_messages_are_given_exactly(echo_service: EchoService, tmp_path: Path) -> None:
    chat, ids = seeded(tmp_path / "chats.sqlite", num_messages=6)
    store = Store(tmp_path / "chats.sqlite")
    store.tree.write_over(ids[3], Content(" as *kept* 🎈\r\n"), 0)
    store.close()
    with TestClient(build_routes(echo_service()), base_url="http://127.0.0.1:7878") as page:
        texts = page.get(f"/app/chats/{chat}/texts?first={ids[2]}&last={ids[4]}").json()["texts"]
        assert texts == [[ids[2], "question 2"], [ids[3], " as *kept* 🎈\r\n"], [ids[4], "question 4"]]
        gone = page.get(f"/app/chats/{chat}/texts?first={ids[2]}&last=987654")
        assert (gone.status_code, gone.json()["message"]) == (400, "This message is gone.")
