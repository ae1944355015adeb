from __future__ import annotations

import sqlite3
from array import array
from pathlib import Path
from typing import Literal

import pytest

from app.content import Content
from app.store import Store
from app.store_schema import MIGRATIONS
from backends.errors import BadRequestError


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "chats.sqlite")


def texts(store: Store, chat_id: int) -> list[str]:
    return [message.text for message in store.messages(chat_id)]


def turn(store: Store, chat_id: int, asked: str | None, answered: str, replaces_from: int | None = None) -> int:
    reply = store.add_turn(chat_id, asked, replaces_from=replaces_from)
    store.append(reply, answered, array("i", [len(answered)]))
    store.finish(reply, "complete", "stop")
    return reply


def test_variants_stand_beside_each_other_and_each_leads_to_what_followed_it(store: Store) -> None:
    chat = store.add_chat("", "").id
    first = turn(store, chat, "ask", "one")
    followed = turn(store, chat, "more", "follow one")
    other = turn(store, chat, None, "two", replaces_from=first)
    assert texts(store, chat) == ["ask", "two"]
    assert store.tree.variants(chat) == {first - 1: [first - 1], other: [first, other]}
    store.tree.select(first)
    assert texts(store, chat) == ["ask", "one", "more", "follow one"]
    store.tree.branch(first)
    branched = turn(store, chat, "differently", "answer")
    assert texts(store, chat) == ["ask", "one", "differently", "answer"]
    assert store.tree.variants(chat)[branched - 1] == [followed - 1, branched - 1]
    store.tree.select(followed)
    assert texts(store, chat)[-1] == "follow one"
    assert [start for _, start in store.tree.outline(chat, 3)] == ["ask", "one", "mor", "fol", "two", "dif", "ans"]


def test_what_is_undone_comes_back_step_by_step(store: Store) -> None:
    chat = store.add_chat("", "").id
    reply = turn(store, chat, "ask", "one")
    store.tree.write_over(reply, Content("mended"), 0)
    turn(store, chat, "more", "two")
    turn(store, chat, "other", "three", replaces_from=reply + 1)
    store.tree.delete(reply - 1)
    assert texts(store, chat) == []
    seen = []
    for _ in range(3):
        seen.append((*store.tree.undo(chat)[:1], texts(store, chat)))
    assert seen == [
        ("delete", ["ask", "mended", "other", "three"]),
        ("branch", ["ask", "mended", "more", "two"]),
        ("edit", ["ask", "one"]),
    ]
    with pytest.raises(BadRequestError, match="There is nothing to undo here"):
        store.tree.undo(chat)


def test_an_edit_made_on_a_text_that_changed_meanwhile_is_refused_and_changes_nothing(store: Store) -> None:
    chat = store.add_chat("", "").id
    reply = turn(store, chat, "ask", "one")
    store.tree.write_over(reply, Content("newer"), 0)
    with pytest.raises(BadRequestError, match="This message was changed elsewhere"):
        store.tree.write_over(reply, Content("stale"), 0)
    assert texts(store, chat) == ["ask", "newer"]
    assert store.tree.num_steps(chat) == 1
    store.tree.begin_growing(reply)
    with pytest.raises(BadRequestError, match="This message was changed elsewhere"):
        store.tree.write_over(reply, Content("stale"), 1)


def test_deleting_takes_what_follows_along_and_shows_the_nearest_variant(store: Store) -> None:
    chat = store.add_chat("", "").id
    first = turn(store, chat, "ask", "one")
    other = turn(store, chat, None, "two", replaces_from=first)
    turn(store, chat, "more", "three")
    store.tree.delete(other)
    assert texts(store, chat) == ["ask", "one"]
    store.tree.delete(first)
    assert texts(store, chat) == ["ask"]
    with pytest.raises(BadRequestError, match="This message is gone"):
        store.tree.select(other)


def test_only_the_last_steps_are_kept_and_what_older_ones_deleted_goes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.chat_tree.MAX_STEPS", 2)
    chat = store.add_chat("", "").id
    gone = turn(store, chat, "ask", "one")
    store.tree.delete(gone)
    for number in range(3):
        turn(store, chat, None, f"variant {number}", replaces_from=None)
        store.tree.branch(gone - 1)
    assert store.message(gone) is None
    assert store.tree.num_steps(chat) == 2


def test_a_long_chat_is_read_and_deleted_at_any_depth(store: Store) -> None:
    chat = store.add_chat("", "").id
    parent = None
    with store.database.writing():
        for number in range(3_000):
            role: Literal["user", "assistant"] = "user" if number % 2 else "assistant"
            parent = store.tree.add(chat, role, parent, Content(str(number)), "complete")
    assert texts(store, chat) == [str(number) for number in range(3_000)]
    store.tree.delete(store.messages(chat)[10].id)
    assert len(texts(store, chat)) == 10
    store.delete_chat(chat)
    assert store.database.read("SELECT count(*) FROM messages") == [(0,)]


def test_a_text_goes_on_in_front_of_what_stands_behind_it_and_is_whole_after_a_crash(store: Store) -> None:
    chat = store.add_chat("", "", "notebook").id
    content = Content("Once  upon a time")
    document = store.tree.add(chat, "assistant", None, content, "complete")
    store.begin_growing(document, content.head(5), content.tail(5))
    store.append(document, "more", array("i", [7]))
    assert texts(store, chat) == ["Once more"]
    assert store.journal.behind(document).text == " upon a time"
    assert store.journal.text(document, 3, 7) == "e mo"
    assert store.mark_running_as_cut() == 1
    (message,) = store.messages(chat)
    assert message.text == "Once more upon a time"
    assert [list(each) if isinstance(each, array) else each for each in message.content.pieces()] == [
        "Once ",
        [7],
        " upon a time",
    ]


def test_chats_of_an_older_version_become_trees_with_what_was_set_aside_as_variants(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite"
    connection = sqlite3.connect(path)
    for number, script in enumerate(MIGRATIONS[:2], start=1):
        connection.executescript(f"{script}; PRAGMA user_version = {number};")
    insert = "INSERT INTO chats (id, title, created_at_s, updated_at_s) VALUES (1, 'old', 0, 0), (2, 'empty', 0, 0)"
    connection.execute(insert)
    rows = [  # text, set aside
        ("ask", 0),
        ("first answer", 1),
        ("answer", 0),
        ("typo", 1),
        ("answer to the typo", 1),
        ("tpyo", 1),
        ("answer to the tpyo", 1),
        ("said right", 0),
        ("half an answer", 1),
        ("whole answer", 0),
    ]
    roles = ["user", "assistant", "assistant", *("user", "assistant") * 3, "assistant"]
    for (text, set_aside), role in zip(rows, roles, strict=True):
        connection.execute(
            """INSERT INTO messages (chat_id, role, text, status, created_at_s, set_aside)
               VALUES (1, ?, ?, 'complete', 0, ?)""",
            (role, text, set_aside),
        )
    connection.commit()
    connection.close()
    store = Store(path)
    shown = store.messages(1)
    assert [message.text for message in shown] == ["ask", "answer", "said right", "whole answer"]
    by_id = {number: text for number, (text, _) in enumerate(rows, start=1)}
    variants = [[by_id[each] for each in group] for group in store.tree.variants(1).values()]
    assert variants == [
        ["ask"],
        ["first answer", "answer"],
        ["typo", "tpyo", "said right"],
        ["half an answer", "whole answer"],
    ]
    store.tree.select(4)
    assert texts(store, 1) == ["ask", "answer", "typo", "answer to the typo"]
    assert store.messages(2) == []
