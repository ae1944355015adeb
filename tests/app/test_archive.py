from __future__ import annotations

from array import array
from dataclasses import replace
from pathlib import Path

import pytest

from app.archive import Archive, ArchivedChat, ArchivedMessage
from app.content import Content, Note, Span
from app.journal import Written
from app.search_index import SearchIndex
from app.store import Store
from app.store_file import StoreError
from backends.errors import BadRequestError


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "chats.sqlite")


def full_chat(store: Store) -> int:
    chat = store.add_chat("Rivers", '{"window": 64}')
    store.file_chat(chat.id, "Novel")
    store.pin_chat(chat.id, True)
    first = store.add_turn(chat.id, "ask\r\n\t ")
    store.mark(first, "running", "echo", "Echo", seed=2**64 - 1)
    store.append(first, "one ", array("i", [1, 2]))
    store.append(first, "two", array("i", [3]))
    store.finish(first, "complete", "stop")
    store.keep_metrics(first, b"figures")
    store.tree.delete(store.add_turn(chat.id, "deleted"))
    second = store.add_turn(chat.id, "again", replaces_from=first - 1)
    store.mark(second, "running")
    store.append(second, "so far", array("i", [4]))
    store.journal.append(second, [Written(6, "", array("i"), note="be brief")])
    store.journal.put_behind(second, Content(" and the rest"))
    return chat.id


def test_a_chat_is_read_whole_with_its_variants_and_what_is_being_written(store: Store) -> None:
    chat = Archive(store.database).chat(full_chat(store))
    assert (chat.title, chat.folder, chat.pinned, chat.settings) == ("Rivers", "Novel", True, '{"window": 64}')
    assert [(message.text, message.follows) for message in chat.messages] == [
        ("ask\r\n\t ", None),
        ("one two", None),
        ("deleted", None),
        ("again", -1),
        ("so far and the rest", None),
    ]
    assert [message.text for message in chat.shown] == ["again", "so far and the rest"]
    reply = chat.messages[1]
    assert (list(reply.token_ids), reply.seed, reply.packed_metrics) == ([1, 2, 3], 2**64 - 1, b"figures")
    running = chat.messages[4]
    assert (running.status, list(running.token_ids)) == ("running", [4])
    assert running.layout == (Span(6, 1), Note("be brief"), Span(13, 0))


def test_an_added_chat_is_what_was_read_and_what_was_being_written_is_cut(store: Store) -> None:
    archive = Archive(store.database)
    chat = archive.chat(full_chat(store))
    (chat_id,) = archive.add([chat])
    added = archive.chat(chat_id)
    assert added.messages[4] == replace(chat.messages[4], status="cut")
    assert added.messages[:4] == chat.messages[:4]
    assert added.shown[0] == chat.shown[0]
    assert (added.title, added.folder, added.pinned, added.settings) == ("Rivers", "Novel", True, '{"window": 64}')
    assert (added.created_at_s, added.updated_at_s) == (chat.created_at_s, chat.updated_at_s)
    assert archive.chat_ids() == [1, 2]
    assert [message.text for message in store.messages(chat_id)] == ["again", "so far and the rest"]


def test_another_variant_on_screen_stays_on_screen(store: Store) -> None:
    archive = Archive(store.database)
    chat_id = full_chat(store)
    store.tree.select(store.messages(chat_id)[0].id - 4)
    chat = archive.chat(chat_id)
    assert [message.text for message in chat.shown] == ["ask\r\n\t ", "one two", "deleted"]
    (added,) = archive.add([chat])
    assert [message.text for message in store.messages(added)] == ["ask\r\n\t ", "one two", "deleted"]


def test_added_chats_are_found_by_search(store: Store) -> None:
    Archive(store.database).add([ArchivedChat("", (ArchivedMessage("user", "a lamp on the bank"),))])
    index = SearchIndex(store.path)
    assert len(index.search("lamp")) == 1
    index.close()


def test_all_chats_of_a_file_are_added_or_none(store: Store) -> None:
    broken = ArchivedChat("", (ArchivedMessage("nobody", "x"),))  # type: ignore[arg-type]
    with pytest.raises(StoreError):
        Archive(store.database).add([ArchivedChat("fine", ()), broken])
    assert store.chats() == []


def test_a_chat_that_is_not_there_is_one_sentence(store: Store) -> None:
    with pytest.raises(BadRequestError, match="This chat is no longer there"):
        Archive(store.database).chat(99)
