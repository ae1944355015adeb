"""Damage as disks and crashes do it, on real files."""

from __future__ import annotations

import random
import sqlite3
from array import array
from pathlib import Path

import pytest

from app.archive import Archive
from app.search_index import SearchIndex
from app.store import Store
from app.store_backup import copy_store
from app.store_check import check
from app.store_file import StoreError

PAGE = 4096


def filled(path: Path, num_chats: int = 40) -> list[str]:
    """Make a store of chats with long and short replies; return the texts of the replies."""
    store = Store(path)
    texts = []
    for number in range(num_chats):
        chat = store.add_chat(f"Chat {number}", "{}")
        text = f"reply {number} " * (10 if number % 3 else 2_000)
        reply = store.add_turn(chat.id, f"question {number}")
        store.append(reply, text, array("i", range(50)))
        store.finish(reply, "complete", "stop")
        store.keep_metrics(reply, b"x\x9c\xab\xae\x05\x00\x01u\x00\xf9")  # zlib of "{}"
        texts.append(text)
    store.close()
    return texts


def texts_in(path: Path) -> list[str]:
    store = Store(path)
    assert store.notices == []
    archive = Archive(store.database)
    found = [message.text for chat_id in archive.chat_ids() for message in archive.chat(chat_id).shown[1:]]
    store.close()
    return found


def pages_of(path: Path, table: str) -> list[int]:
    connection = sqlite3.connect(path)
    try:
        return [row[0] for row in connection.execute("SELECT pageno FROM dbstat WHERE name = ?", (table,))]
    except sqlite3.OperationalError:
        pytest.skip("this SQLite tells no page numbers")
    finally:
        connection.close()


def overwrite(path: Path, page: int, content: bytes = b"\xff" * PAGE) -> None:
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE)
        file.write(content)


def run(path: Path, *sql: str) -> None:
    with sqlite3.connect(path) as connection:
        for each in sql:
            connection.execute(each)


def test_a_store_that_is_fine_is_told_so_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite"
    filled(path)
    before = path.read_bytes()
    report = check(path, repair=True)
    assert (report.problems, report.repairs, report.kept_as) == ([], [], "")
    assert (report.num_chats, report.num_messages) == (40, 80)
    assert path.read_bytes() == before


@pytest.mark.parametrize("seed", range(6))
def test_damaged_pages_take_only_their_own_rows_along(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "chats.sqlite"
    texts = filled(path)
    num_pages = path.stat().st_size // PAGE
    for page in random.Random(seed).sample(range(2, num_pages), 2):
        overwrite(path, page)
    damaged = path.read_bytes()
    report = check(path, repair=True)
    assert report.problems
    assert report.kept_as
    assert (tmp_path / report.kept_as).read_bytes() == damaged, "the damaged file is only read"
    found = texts_in(path)
    assert set(found) <= {*texts, ""}
    assert len(set(found) & set(texts)) >= len(texts) - 16, "a page of the table holds that many rows at most"
    assert check(path, repair=False).problems == []


def test_a_damaged_leaf_of_the_messages_loses_its_rows_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite"
    texts = filled(path)
    root, *rest = pages_of(path, "messages")
    overwrite(path, rest[len(rest) // 2])
    report = check(path, repair=True)
    assert "What could be read was copied to a new file: 40 chats" in report.repairs[0]
    found = set(texts_in(path)) & set(texts)
    assert len(texts) - 16 <= len(found) < len(texts) or root == rest[0]


@pytest.mark.parametrize("damage", ["no database", "header gone", "cut short"])
def test_what_is_no_database_any_more_is_set_aside_and_a_new_one_begun(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "chats.sqlite"
    filled(path)
    content = path.read_bytes()
    content = {
        "no database": b"not chats" * 999,
        "header gone": b"\0" * 100 + content[100:],
        "cut short": content[:100],
    }[damage]
    path.write_bytes(content)
    report = check(path, repair=True)
    assert (tmp_path / report.kept_as).read_bytes() == content
    assert texts_in(path) == []


def test_a_store_that_is_not_ones_own_is_left_and_what_can_be_read_stands_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "chats.damaged-1.sqlite"
    filled(path)
    overwrite(path, 30)
    content = path.read_bytes()
    report = check(path, repair=True, in_place=False)
    assert path.read_bytes() == content
    assert report.kept_as == ""
    assert report.recovered == tmp_path / "chats.damaged-1.recovered.sqlite"
    assert len(texts_in(report.recovered)) >= 24


def test_an_index_out_of_step_is_made_again_and_nothing_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite"
    texts = filled(path)
    index = SearchIndex(path)
    index.catch_up()
    index.close()
    run(path, "UPDATE passage_words_data SET block = x'00ff' WHERE id > 10")
    report = check(path, repair=True)
    assert "passage_words" in report.problems[0]
    assert report.repairs == ["The indexes were made again from the chats."]
    assert report.kept_as == ""
    index = SearchIndex(path)
    assert len(index.search("reply", chat_id=3)) == 1
    index.close()
    assert texts_in(path) == texts


def test_rows_that_make_no_sense_are_put_right(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite"
    texts = filled(path, num_chats=8)
    run(
        path,
        "PRAGMA foreign_keys = OFF",
        "DELETE FROM chats WHERE id = 1",
        "UPDATE messages SET parent_id = 999 WHERE id = 4",
        "UPDATE chats SET leaf_id = 999 WHERE id = 3",
        "UPDATE messages SET token_ids = x'0102' WHERE id = 8",
        "UPDATE messages SET layout = '[[1,1]]' WHERE id = 10",
        "UPDATE reply_metrics SET packed = x'00' WHERE message_id = 12",
        "INSERT INTO journal (message_id, text, token_ids) VALUES (999, 'x', x'')",
    )
    found = check(path, repair=False)
    assert len(found.problems) == 7
    assert found.repairs == []
    report = check(path, repair=True)
    assert len(report.problems) == 7
    assert len(report.repairs) == 7
    assert check(path, repair=True).problems == []
    assert texts_in(path) == texts
    store = Store(path)
    assert store.chat(1).title == "Recovered chat"
    store.close()


def test_a_backup_is_one_whole_file_even_while_a_reply_grows(tmp_path: Path) -> None:
    path, target = tmp_path / "chats.sqlite", tmp_path / "far" / "backup.sqlite"
    texts = filled(path)
    store = Store(path)
    reply = store.add_turn(store.add_chat("growing", "{}").id, "ask")
    store.mark(reply, "running")
    store.append(reply, "so far", array("i", [1]))
    assert copy_store(path, target) == target.stat().st_size
    store.append(reply, " and on", array("i", [2]))
    store.close()
    assert sorted(each.name for each in target.parent.iterdir()) == ["backup.sqlite"]
    assert texts_in(target) == [*texts, "so far"]


def test_no_backup_is_made_of_a_damaged_store_or_where_none_can_be(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite"
    filled(path)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="cannot be written"):
        copy_store(path, tmp_path / "file" / "backup.sqlite")
    overwrite(path, 12)
    with pytest.raises(StoreError, match="is damaged"):
        copy_store(path, tmp_path / "backup.sqlite")
    assert not list(tmp_path.glob("*backup*"))
