"""Search in a real store; replies grow as the keeper lets them."""

from __future__ import annotations

import random
import sqlite3
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.passages import STEP_CHARS
from app.search_index import FoundMessage, SearchIndex
from app.store import Store

PROSE = "the river ran past old mills and slow barges under a pale sky while lamps were lit along both banks"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "chats.sqlite")
    yield store
    store.close()


@pytest.fixture
def index(store: Store) -> Iterator[SearchIndex]:
    index = SearchIndex(store.path)
    yield index
    index.close()


def reply(store: Store, text: str, asked: str = "") -> int:
    message_id = store.add_turn(store.add_chat("A chat", "").id, asked)
    store.append(message_id, text, array("i"))
    store.finish(message_id, "complete")
    return message_id


def prose(num_chars: int, seed: int = 0) -> str:
    words = random.Random(seed).choices(PROSE.split(), k=num_chars // 4)
    return " ".join(words)[:num_chars]


def texts_found(found: list[FoundMessage]) -> list[list[str]]:
    return [[hit.snippet[begin:end] for hit in message.hits for begin, end in hit.marks] for message in found]


def test_a_word_is_found_in_any_case_with_or_without_accents_and_while_it_is_typed(
    store: Store, index: SearchIndex
) -> None:
    message_id = reply(store, "Ein Brief an die Dörfer, über Café und Fluß.")
    for typed in ("dörfer", "DORFER", "dor", "café", "cafe uber", '"an die dörfer"', "fluß"):
        assert [message.message_id for message in index.search(typed)] == [message_id], typed
    for typed in ("dorf cafés", '"die an"', "örfer", "!?", ""):
        assert index.search(typed) == [], typed


@pytest.mark.parametrize(
    ("written", "typed"),
    [
        ("Cafe\u0301", "café"),
        ("Café", "CAFE\u0301"),
        ("Straße", "strasse"),
        ("STRASSE", "straße"),
        ("λόγος", "ΛΌΓΟΣ"),
        ("ΛΌΓΟΣ", "λόγος"),
        ("ＡＢＣ", "abc"),
        ("abc", "ＡＢＣ"),
        ("ﾃﾞｰﾀ", "データ"),
        ("データ", "ﾃﾞｰﾀ"),
        ("\u1112\u1161\u11ab\u1100\u116e\u11a8", "한국"),
        ("한국", "\u1112\u1161\u11ab\u1100\u116e\u11a8"),
        ("Vie\u0323\u0302t", "việt"),
        ("ﬁne", "fine"),
        ("ㅋㅋ", "ㅋㅋ"),
    ],
)
def test_a_word_is_found_in_any_spelling_and_marked_where_it_stands(
    store: Store, index: SearchIndex, written: str, typed: str
) -> None:
    lead = "e\u0301ß, " * 700  # of other lengths in the index, and longer than a passage
    text = f"{lead}then {written} and more"
    message_id = reply(store, text)
    for query in (typed, f'"{typed}"', f"then {typed}"):
        (found,) = index.search(query, message_id=message_id)
        marked = {text[hit.start :][: end - begin] for hit in found.hits for begin, end in hit.marks[-1:]}
        assert written in texts_found([found])[0]
        assert all(hit.snippet in text for hit in found.hits)
        assert query == f"then {typed}" or marked == {written}


def test_any_part_of_a_sentence_without_spaces_is_found(store: Store, index: SearchIndex) -> None:
    reply(store, "昔々、大きな川の流れる村がありました。")
    reply(store, "แม่น้ำไหลผ่านหมู่บ้าน")
    assert texts_found(index.search("川の流")) == [["川の流"]]
    assert texts_found(index.search("大きな")) == [["大きな"]]
    assert len(index.search("ไหลผ่าน")) == 1
    assert index.search("流川") == []


def test_hits_inside_a_million_characters_come_with_their_offsets(store: Store, index: SearchIndex) -> None:
    text = prose(1_000_000)
    places = [0, 1_990, 2_005, 500_000, 999_990]
    for place in places:
        text = f"{text[:place]} zebra. {text[place + 8 :]}"
    message_id = reply(store, text)
    assert len(text) == 1_000_000
    (found,) = index.search("zebra", message_id=message_id)
    assert [hit.start for hit in found.hits] == [1, 1_991, 500_001, 999_991]
    for hit in found.hits:
        assert hit.snippet in text
        assert all(hit.snippet[begin:end] == "zebra" for begin, end in hit.marks)
    assert sum(len(hit.marks) for hit in found.hits) == len(places)


def test_words_are_found_together_wherever_passages_are_cut(store: Store, index: SearchIndex) -> None:
    for shift in range(-30, 30, 7):
        lead = "x" * 9 + " "
        text = lead * (STEP_CHARS // 10 - 1) + "y" * (10 + shift) + " left right " + lead * 300
        message_id = reply(store, text)
        (found,) = index.search('"left right"', message_id=message_id)
        assert [hit.start for hit in found.hits] == [text.index("left")]


def test_a_reply_is_found_while_it_grows_and_after_its_end(store: Store, index: SearchIndex) -> None:
    text = prose(9_000) + " the very end"
    message_id = store.add_turn(store.add_chat("", "").id, "ask")
    store.mark(message_id, "running")
    for start in range(0, len(text), 700):
        store.append(message_id, text[start : start + 700], array("i"))
        word_at = text.rindex(" ", 0, start + 700)
        last_words = text[word_at - 40 : word_at].split(" ", 1)[1]
        (found,) = index.search(f'"{last_words}"')
        assert any(text.startswith(last_words, hit.start) for hit in found.hits)
    store.finish(message_id, "complete")
    (found,) = index.search('"very end"')
    assert [hit.start for hit in found.hits] == [text.index("very end")]
    rows = sqlite3.connect(store.path).execute("SELECT count(*), count(DISTINCT start) FROM passages").fetchone()
    assert rows[0] == rows[1] + 1, "one passage of the question, and none of the reply twice"


def test_what_grows_is_indexed_from_its_last_passage_on(store: Store, index: SearchIndex) -> None:
    message_id = reply(store, prose(50_000))
    index.catch_up()
    connection = sqlite3.connect(store.path)
    before = connection.execute("SELECT id FROM passages ORDER BY id").fetchall()
    store.append(message_id, " and then more", array("i"))
    store.finish(message_id, "complete")
    index.catch_up()
    after = connection.execute("SELECT id FROM passages ORDER BY id").fetchall()
    assert after[: len(before) - 1] == before[:-1]


def test_a_text_that_was_changed_is_no_longer_found_as_it_was(store: Store, index: SearchIndex) -> None:
    message_id = reply(store, "an old mill")
    assert index.search("old")
    with sqlite3.connect(store.path) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("UPDATE messages SET text = 'a new mill' WHERE id = ?", (message_id,))
    assert index.search("old") == []
    assert len(index.search("new mill")) == 1


def test_deleted_chats_and_messages_are_not_found_and_variants_are(store: Store, index: SearchIndex) -> None:
    gone = store.add_chat("gone", "")
    store.add_turn(gone.id, "a lamp")
    kept = store.add_chat("kept", "")
    first = store.add_turn(kept.id, "a lamp")
    assert len(index.search("lamp")) == 2
    store.delete_chat(gone.id)
    assert [message.chat_title for message in index.search("lamp")] == ["kept"]
    store.add_turn(kept.id, "a candle", replaces_from=first - 1)
    assert len(index.search("lamp")) == 1
    store.tree.delete(first - 1)
    assert index.search("lamp") == []
    store.delete_chat(kept.id)
    assert sqlite3.connect(store.path).execute("SELECT count(*) FROM passage_words").fetchone() == (0,)


def test_newest_messages_come_first_a_long_one_leaves_room_and_a_chat_can_be_searched_alone(
    store: Store, index: SearchIndex
) -> None:
    old = reply(store, "a lamp", asked="lamp?")
    long = reply(store, "lamp " * 20_000)
    found = index.search("lamp")
    assert [message.message_id for message in found] == [long, old, old - 1]
    assert found[0].num_passages == 50
    assert len({hit.start for hit in found[0].hits}) == len(found[0].hits)
    chat_id = found[1].chat_id
    assert [message.message_id for message in index.search("lamp", chat_id=chat_id)] == [old, old - 1]
    (all_of_it,) = index.search("lamp", message_id=long)
    assert sum(len(hit.marks) for hit in all_of_it.hits) == 20_000


@pytest.mark.parametrize("text", ["a\0b lamp", "\x02lamp\x03", "x\x1flamp", "لمبة lamp", "👩‍👩‍👧 lamp"])
def test_awkward_characters_move_no_offset(store: Store, index: SearchIndex, text: str) -> None:
    reply(store, text)
    (found,) = index.search("lamp")
    assert [hit.start for hit in found.hits] == [text.index("lamp")]
    assert texts_found([found]) == [["lamp"]]


def test_a_store_from_before_there_was_an_index_is_searched_like_any_other(tmp_path: Path) -> None:
    from app.store_schema import MIGRATIONS

    path = tmp_path / "chats.sqlite"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(f"BEGIN; {MIGRATIONS[0]}; PRAGMA user_version = 1; COMMIT;")
    connection.execute("INSERT INTO chats (title, created_at_s, updated_at_s) VALUES ('old', 1, 1)")
    connection.execute(
        "INSERT INTO messages (chat_id, role, text, status, created_at_s) VALUES (1, 'user', 'a lamp', 'complete', 1)"
    )
    connection.close()
    store = Store(path)
    index = SearchIndex(path)
    assert [message.chat_title for message in index.search("lamp")] == ["old"]
    index.close()
    store.close()


def test_an_index_from_before_spellings_were_folded_is_made_anew_once(tmp_path: Path) -> None:
    from app.store_schema import MIGRATIONS

    path = tmp_path / "chats.sqlite"
    connection = sqlite3.connect(path, isolation_level=None)
    for number, script in enumerate(MIGRATIONS[:4], start=1):
        connection.executescript(f"BEGIN; {script}; PRAGMA user_version = {number}; COMMIT;")
    connection.execute("INSERT INTO chats (title, created_at_s, updated_at_s) VALUES ('old', 1, 1)")
    connection.execute(
        "INSERT INTO messages (chat_id, role, text, status, created_at_s) VALUES (1, 'user', ?, 'complete', 1)",
        ("a Cafe\u0301 in der Straße",),
    )
    connection.execute("INSERT INTO passages (message_id, start) VALUES (1, 0)")
    connection.execute("INSERT INTO passage_words (rowid, text) VALUES (1, 'a Cafe\u0301 in der Straße')")
    connection.execute("DELETE FROM unindexed")
    connection.close()
    for _ in range(2):
        store = Store(path)
        index = SearchIndex(path)
        assert texts_found(index.search("café strasse")) == [["Cafe\u0301", "Straße"]]
        assert sqlite3.connect(path).execute("SELECT count(*) FROM passages").fetchone() == (1,)
        index.close()
        store.close()


def test_catching_up_in_the_background_leaves_nothing_to_do_and_ends_with_the_index(
    store: Store, index: SearchIndex
) -> None:
    reply(store, prose(300_000))
    index.catch_up_soon()
    index.catch_up_soon()
    assert index._catching_up is not None
    index._catching_up.join(30)
    connection = sqlite3.connect(store.path)
    assert connection.execute("SELECT count(*) FROM unindexed").fetchone() == (0,)
    index.close()
    index.close()
    index.catch_up_soon()


def test_a_damaged_index_is_made_again_from_the_texts(store: Store, index: SearchIndex) -> None:
    message_id = reply(store, prose(50_000) + " zebra")
    assert index.search("zebra")
    with sqlite3.connect(store.path) as connection:
        connection.execute("UPDATE passage_words_data SET block = x'00ff' WHERE id > 10")
    index.close()
    again = SearchIndex(store.path)
    assert [message.message_id for message in again.search("zebra")] == [message_id]
    reply(store, "another zebra")
    assert len(again.search("zebra")) == 2
    again.close()
