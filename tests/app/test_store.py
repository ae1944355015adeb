from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from array import array
from pathlib import Path

import pytest

from app.store import Store
from app.store_file import StoreError
from app.store_schema import MIGRATIONS
from backends.errors import BadRequestError

AWKWARD = ["  def f():\n      return 1", "\n\nhi\n\n", "a\tb\r\nc\r", "nul\0inside", "👩‍👩‍👧 é é \ufeff\u202e", ""]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "chats.sqlite")


def ids(*values: int) -> array[int]:
    return array("i", values)


@pytest.mark.parametrize("text", AWKWARD)
def test_text_comes_back_byte_for_byte(store: Store, text: str) -> None:
    chat = store.add_chat("", "")
    reply = store.add_turn(chat.id, text)
    store.mark(reply, "running")
    store.append(reply, text, ids(1))
    store.append(reply, text, ids(2, 3))
    live = store.messages(chat.id)
    store.finish(reply, "complete", "stop")
    kept = store.messages(chat.id)
    for messages in (live, kept):
        assert [message.text for message in messages] == [text, text + text]
        assert list(messages[1].token_ids) == [1, 2, 3]


def test_chats_are_found_by_title_in_any_case_pinned_first_then_newest(store: Store) -> None:
    titles = ["Rivers of Ελλάδα", "a river", "mountains", "100% ring_cache"]
    chats = {title: store.add_chat(title, "") for title in titles}
    store.pin_chat(chats["mountains"].id, True)
    store.add_turn(chats["a river"].id, "newest")
    assert [chat.title for chat in store.chats()][:2] == ["mountains", "a river"]
    assert [chat.title for chat in store.chats("RIVER")] == ["a river", "Rivers of Ελλάδα"]
    assert [chat.title for chat in store.chats("ελλάδα")] == ["Rivers of Ελλάδα"]
    assert [chat.title for chat in store.chats("%")] == ["100% ring_cache"]
    assert [chat.title for chat in store.chats("_c")] == ["100% ring_cache"]


def test_a_deleted_chat_takes_everything_of_it_along(store: Store) -> None:
    chat = store.add_chat("gone", "")
    reply = store.add_turn(chat.id, "hello")
    store.append(reply, "partial", ids(1))
    store.keep_metrics(reply, b"figures")
    store.delete_chat(chat.id)
    store.delete_chat(chat.id)
    with pytest.raises(BadRequestError, match="This chat is no longer there"):
        store.chat(chat.id)
    assert store.message(reply) is None
    assert store.metrics(reply) is None
    store.finish(reply, "complete")
    store.keep_metrics(reply, b"late figures")
    assert store.metrics(reply) is None


def test_a_turn_that_replaces_sets_the_former_ones_aside_and_destroys_nothing(store: Store) -> None:
    chat = store.add_chat("", "")
    first = store.add_turn(chat.id, "one")
    second = store.add_turn(chat.id, "two")
    third = store.add_turn(chat.id, "two, better", replaces_from=second - 1)
    assert [message.id for message in store.messages(chat.id)] == [first - 1, first, third - 1, third]
    former = store.message(second - 1)
    assert former is not None
    assert former.text == "two"


def test_seeds_of_any_size_and_figures_are_kept(store: Store) -> None:
    reply = store.add_turn(store.add_chat("", "").id, "x")
    store.keep_metrics(reply, b"old")
    store.keep_metrics(reply, b"new")
    store.finish(reply, "error", "error", "It broke. Mend it.", seed=2**64 - 1)
    message = store.message(reply)
    assert message is not None
    assert (message.seed, message.status, message.error) == (2**64 - 1, "error", "It broke. Mend it.")
    assert store.metrics(reply) == b"new"


def test_what_a_former_process_left_running_is_folded_and_marked_as_cut(tmp_path: Path) -> None:
    former = Store(tmp_path / "chats.sqlite")
    chat = former.add_chat("", "")
    replies = [former.add_turn(chat.id, "ask") for _ in range(3)]
    former.mark(replies[0], "running")
    former.append(replies[0], "so far", ids(1, 2))
    former.finish(replies[1], "complete", "stop")
    former.close()
    store = Store(tmp_path / "chats.sqlite")
    assert store.mark_running_as_cut() == 2
    status = {message.id: (message.status, message.text) for message in store.messages(chat.id)}
    assert [status[reply] for reply in replies] == [("cut", "so far"), ("complete", ""), ("cut", "")]
    assert store.mark_running_as_cut() == 0


@pytest.mark.parametrize("damage", ["not sqlite", "cut short", "page overwritten"])
def test_a_damaged_file_is_set_aside_named_and_a_new_one_begun(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "chats.sqlite"
    former = Store(path)
    for _ in range(50):
        former.add_turn(former.add_chat("x", "").id, "text " * 400)
    former.close()
    content = bytearray(path.read_bytes())
    if damage == "not sqlite":
        content = bytearray(b"these are not chats" * 100)
    elif damage == "cut short":
        del content[len(content) // 2 :]
    else:
        content[8192 : 8192 + 4096] = b"\xff" * 4096
    path.write_bytes(content)
    store = Store(path)
    assert store.chats() == []
    (notice,) = store.notices
    (kept,) = tmp_path.glob("chats.damaged-*.sqlite")
    assert kept.name in notice
    assert kept.read_bytes() == content


def test_an_empty_file_is_a_new_store(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite"
    path.write_bytes(b"")
    assert Store(path).notices == []


def test_a_file_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite"
    Store(path).close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()
    with pytest.raises(StoreError, match="was written by a newer version of Ringside"):
        Store(path)
    assert list(tmp_path.glob("*damaged*")) == []


def test_a_folder_in_the_way_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "chats.sqlite").mkdir()
    with pytest.raises(StoreError, match=r"chats.sqlite cannot be used now: unable to open database file"):
        Store(tmp_path / "chats.sqlite")


def test_a_second_writer_waits_its_turn(tmp_path: Path) -> None:
    first, second = Store(tmp_path / "chats.sqlite"), Store(tmp_path / "chats.sqlite")
    for number in range(20):
        (first if number % 2 else second).add_chat(str(number), "")
    assert {chat.title for chat in first.chats()} == {str(number) for number in range(20)}
    assert first.chats() == second.chats()


_WRITER = """
import sys
from array import array
from pathlib import Path
from app.store import Store
store = Store(Path(sys.argv[1]))
reply = store.add_turn(store.add_chat("long", "").id, "write")
for number in range(1_000_000):
    store.append(reply, f"{number} ", array("i", [number]))
    print(number, flush=True)
    if number % 5 == 4:
        store.finish(reply, "running")
"""


@pytest.mark.parametrize("num_appends", [0, 1, 4, 5, 23])
def test_kill_9_between_or_during_writes_loses_nothing_that_was_reported_kept(tmp_path: Path, num_appends: int) -> None:
    path = tmp_path / "chats.sqlite"
    writer = subprocess.Popen([sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    for _ in range(num_appends + 1):
        reported = int(writer.stdout.readline())
    writer.send_signal(signal.SIGKILL)
    reported = max([reported, *(int(line) for line in writer.stdout.read().split("\n")[:-1])])
    writer.wait()
    store = Store(path)
    assert store.notices == []
    reply = store.messages(store.chats()[0].id)[1]
    num_kept = len(reply.token_ids)
    assert num_kept >= reported + 1
    assert list(reply.token_ids) == list(range(num_kept))
    assert reply.text == "".join(f"{number} " for number in range(num_kept))
