"""The routes of reading: long chats come as outlines, and what blocks show is given back as it was written."""

from __future__ import annotations

from array import array
from pathlib import Path

from fastapi.testclient import TestClient

from app.reading_routes import LONG_CHARS
from app.server import build_routes
from app.store import Store
from tests.app.conftest import EchoService

TEXT = "".join(
    f"## Part {number}\n\n{'Words as they are kept. ' * 12}Text of **part** {number}.\n\n"
    for number in range(LONG_CHARS // 300)
)


def seeded(path: Path, *replies: str) -> tuple[int, list[int]]:
    """Put a chat with finished replies into a store; return its id and theirs."""
    store = Store(path)
    chat = store.add_chat("Long", "")
    ids = []
    for text in replies:
        ids.append(store.add_turn(chat.id, "Where is part 77?"))
        store.append(ids[-1], text, array("i", [1]))
        store.finish(ids[-1], "complete", "stop")
    store.close()
    return chat.id, ids


def test_a_long_reply_comes_as_sections_whose_blocks_are_fetched(echo_service: EchoService, tmp_path: Path) -> None:
    chat, (long, short) = seeded(tmp_path / "chats.sqlite", TEXT, "Short.")
    with TestClient(build_routes(echo_service()), base_url="http://127.0.0.1:7878") as page:
        rows = {row["id"]: row for row in page.get(f"/app/chats/{chat}").json()["messages"]}
        assert (rows[long]["long"], rows[short]["long"]) == (True, False)
        assert rows[short]["open"] == '<p dir="auto">Short.</p>\n'
        outline = rows[long]["outline"]
        assert "Text of <strong>part</strong>" in outline["tail"]  # its end can be read at once
        sections = outline["sections"]
        while outline["open"] is None:
            outline = page.get(f"/app/messages/{long}/outline?section={len(sections)}").json()
            assert "tail" not in outline
            sections += outline["sections"]
        first, num_chars, _ = sections[5]
        count = sections[6][0] - first
        blocks = page.get(f"/app/messages/{long}/blocks?first={first}&count={count}").json()["blocks"]
        assert len(blocks) == count
        source = page.get(f"/app/messages/{long}/source?first={first}&count={count}").text
        assert (len(source), source in TEXT) == (num_chars, True)
        total = outline["num_blocks"]
        assert page.get(f"/app/messages/{long}/source?first=0&count={total + 1}").text == TEXT


def test_a_place_tells_its_block_and_which_of_the_same_words_it_is(echo_service: EchoService, tmp_path: Path) -> None:
    text = "ring\n\nA ring, a **ring**, a Ring.\n\nring"
    chat, (reply,) = seeded(tmp_path / "chats.sqlite", text)
    with TestClient(build_routes(echo_service()), base_url="http://127.0.0.1:7878") as page:
        found = page.get(f"/app/chats/{chat}/find?query=RING").json()
        assert [place[0] for place in found["places"]] == [reply] * 5
        places = [
            page.get(f"/app/messages/{reply}/place?offset={start}&query=ring").json() for _, start, _ in found["places"]
        ]
        assert [(place["block"], place["nth"]) for place in places] == [
            (0, 0),
            (1, 0),
            (1, 1),
            (1, 2),
            (1, 3),
        ]  # the end is open: one block


def test_words_are_found_in_any_spelling_and_given_as_they_stand(echo_service: EchoService, tmp_path: Path) -> None:
    text = "Cafe\u0301\n\nein CAFÉ und **café**, kein Cafe\n\nend"
    chat, (reply,) = seeded(tmp_path / "chats.sqlite", text)
    with TestClient(build_routes(echo_service()), base_url="http://127.0.0.1:7878") as page:
        found = page.get(f"/app/chats/{chat}/find", params={"query": "café"}).json()
        assert found["spellings"] == ["Cafe\u0301", "CAFÉ", "café"]
        assert [text[start:][:length] for _, start, length in found["places"]] == found["spellings"]
        params = {"offset": found["places"][2][1], "query": "café"}
        assert page.get(f"/app/messages/{reply}/place", params=params).json() == {"block": 1, "nth": 1}


def test_headings_and_words_are_found_in_all_messages_of_a_chat(echo_service: EchoService, tmp_path: Path) -> None:
    chat, (one, two) = seeded(tmp_path / "chats.sqlite", "# First\n\ntext\n\n", "## Second\n\ntext of part 77\n\n")
    with TestClient(build_routes(echo_service()), base_url="http://127.0.0.1:7878") as page:
        assert page.get(f"/app/chats/{chat}/headings").json() == {
            "headings": [[one, 0, 1, "First"], [two, 0, 2, "Second"]],
            "more": False,
        }
        found = page.get(f"/app/chats/{chat}/find?query=part 77").json()["places"]
        assert [place[0] for place in found] == [one - 1, two - 1, two]
