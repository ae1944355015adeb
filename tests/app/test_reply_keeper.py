from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from app.chat_settings import ChatSettings
from app.reply_keeper import FLUSH_CHARS, ReplyKeeper
from app.run_views import Ending
from app.runs import Run
from app.store import Store
from app.worker_messages import Update
from backends.requests import LoadRequest

SETTINGS = ChatSettings(LoadRequest("echo", ""))


class Clock:
    now_s = 50.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "chats.sqlite")


@pytest.fixture
def run(store: Store) -> Run:
    chat = store.add_chat("", "")
    return Run(chat.id, store.add_turn(chat.id, "write"))


def advance(run: Run, text: str) -> None:
    run.advance(Update(1, text, (len(text),), 1, 1.0, 0.5, None, 0.0, None, 1000))


def kept(store: Store, run: Run) -> str:
    message = store.message(run.message_id)
    assert message is not None
    return message.text


def test_text_is_on_disk_after_a_second_or_four_thousand_characters(store: Store, run: Run) -> None:
    clock = Clock()
    keeper = ReplyKeeper(store, run, SETTINGS, clock=clock)
    advance(run, "first")
    keeper.advanced(run)
    assert kept(store, run) == ""
    clock.now_s += 1.0
    keeper.advanced(run)
    assert kept(store, run) == "first"
    advance(run, "x" * FLUSH_CHARS)
    keeper.advanced(run)
    assert kept(store, run) == "first" + "x" * FLUSH_CHARS


def test_the_end_brings_text_status_seed_and_figures(store: Store, run: Run) -> None:
    keeper = ReplyKeeper(store, run, SETTINGS, clock=Clock())
    advance(run, "all of it")
    keeper.ended(run, Ending("length", seed=9))
    message = store.message(run.message_id)
    assert message is not None
    assert (message.text, message.status, message.finish_reason, message.seed) == ("all of it", "complete", "length", 9)
    assert list(message.token_ids) == [9]
    assert store.metrics(run.message_id) is not None
    assert not keeper.is_needed


def test_figures_of_a_run_that_goes_on_are_kept_now_and_then(store: Store, run: Run) -> None:
    clock = Clock()
    keeper = ReplyKeeper(store, run, SETTINGS, clock=clock)
    advance(run, "a")
    keeper.advanced(run)
    assert store.metrics(run.message_id) is None
    clock.now_s += 15.0
    keeper.advanced(run)
    assert store.metrics(run.message_id) is not None


def test_a_disk_that_is_full_for_a_while_loses_nothing_and_says_so(store: Store, run: Run) -> None:
    clock = Clock()
    keeper = ReplyKeeper(store, run, SETTINGS, clock=clock)
    advance(run, "before ")
    clock.now_s += 1
    keeper.advanced(run)
    limit_pages(store, at_most=0)
    advance(run, "during " * 20_000)
    clock.now_s += 1
    keeper.advanced(run)
    assert "cannot be kept: The disk with" in run.view().notice
    keeper.ended(run, Ending("cancelled"))
    assert keeper.is_needed
    assert kept(store, run) == "before "
    limit_pages(store, at_most=10**6)
    keeper.retry()
    assert not keeper.is_needed
    assert kept(store, run) == "before " + "during " * 20_000
    assert run.view().notice == ""


def limit_pages(store: Store, at_most: int) -> None:
    """Make SQLite believe the disk is full; it allows no less than the pages there are."""
    connection: sqlite3.Connection = store.database.connection
    connection.execute(f"PRAGMA max_page_count = {max(1, at_most)}")
