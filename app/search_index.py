"""Full-text search over all chats, with hits inside very long replies found by offset.

The index lives in the store's file and is never in the way of a growing reply: triggers note which messages changed
(see `app.store_schema`), and indexing catches up when it is asked to, after the fact or at the next search. A reply
being written is indexed as far as its journal reaches. A message that grew costs what was added to it.

The connection is its own: a search through a gigabyte holds nobody's lock.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

from app.folding import fold_for_index
from app.passages import HIT_CLOSES, HIT_OPENS, index_query, indexable, passages, unmarked
from app.store_file import StoreError, store_error
from app.store_schema import FORGET_INDEX

MAX_PASSAGES = 200
"""Matching passages looked at in one search, newest messages first."""

MAX_PER_MESSAGE = 5
"""Of one message, in a search over several; the rest is found by searching that message alone."""

_BUSY_TIMEOUT_S = 3.0
_PASSAGES_A_STEP = 50
_BEFORE_CHARS = 60
_SNIPPET_CHARS = 240


@dataclass(frozen=True)
class Hit:
    """A place in a message.

    Attributes:
        start: of the first word found, in characters of the message's text.
        snippet: the text around it.
        marks: (start, end) of the words found, in characters of the snippet.
    """

    start: int
    snippet: str
    marks: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class FoundMessage:
    """A message with hits, in the order of its text; `num_passages` tells roughly how many more there are."""

    chat_id: int
    chat_title: str
    message_id: int
    role: str
    num_passages: int
    hits: tuple[Hit, ...]


class SearchIndex:
    """The index of one store. Thread-safe.

    Args:
        path: of the store's file, already brought up to date by `Store`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._catching_up: threading.Thread | None = None
        self._connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA foreign_keys = ON")
        self._connection.execute("PRAGMA synchronous = NORMAL")  # an index lost in a crash is made again

    def search(self, typed: str, chat_id: int | None = None, message_id: int | None = None) -> list[FoundMessage]:
        """Return the messages that hold all the words typed near each other, newest first.

        In any case and spelling (`app.folding`), with or without accents; the last word may be unfinished, "words in
        quotes" follow each other.

        Args:
            chat_id, message_id: look only there; a message searched alone gives all its hits (of 200 passages).

        Raises:
            StoreError: the file cannot be read.
        """
        query = index_query(typed)
        if not query:
            return []
        try:
            return self._look(query, chat_id, message_id)
        except StoreError as error:
            if not _is_damage(error):
                raise
        self.rebuild()
        return self._look(query, chat_id, message_id)

    def rebuild(self) -> None:
        """Throw the index away and make it again from the texts. Raises StoreError."""
        with self._reading():
            self._connection.executescript(f"BEGIN IMMEDIATE; {FORGET_INDEX} COMMIT;")
        self.catch_up()

    def catch_up(self) -> None:
        """Index what changed since the last time. Raises StoreError."""
        with self._reading():
            behind = self._connection.execute(_BEHIND).fetchall()
        for (message_id,) in behind:
            while not self._closing.is_set() and not self._index_some(message_id):
                pass

    def catch_up_soon(self) -> None:
        """Index what changed on a thread of its own, so that the next search finds little left to do."""
        with self._lock:
            if self._closing.is_set() or (self._catching_up is not None and self._catching_up.is_alive()):
                return
            self._catching_up = threading.Thread(target=self._catch_up_quietly, name="search index", daemon=True)
            self._catching_up.start()

    def close(self) -> None:
        """Stop indexing and close the file. Twice is fine."""
        self._closing.set()
        if self._catching_up is not None:
            self._catching_up.join()
        with self._lock:
            self._connection.close()

    def _look(self, query: str, chat_id: int | None, message_id: int | None) -> list[FoundMessage]:
        try:
            self.catch_up()
        except StoreError as error:
            if _is_damage(error):
                raise
            # the disk is full, for one: what is indexed can be searched all the same
        per_message = MAX_PASSAGES if message_id is not None else MAX_PER_MESSAGE
        with self._reading():
            parameters = (query, chat_id, message_id, per_message, MAX_PASSAGES)
            rows = self._connection.execute(_FIND, parameters).fetchall()
            marked = self._marked(query, rows)
        return [_found(list(of_message), marked) for _, of_message in groupby(rows, _MESSAGE)]

    def _catch_up_quietly(self) -> None:
        try:
            self.catch_up()
        except StoreError:
            return  # the next search tries again, and says so if it cannot

    def _index_some(self, message_id: int) -> bool:
        """Index the next passages of a message in one short transaction; tell whether that was all of it."""
        with self._writing() as connection:
            row = connection.execute("SELECT text FROM messages WHERE id = ?", (message_id,)).fetchone()
            if row is None:
                return True
            journal = connection.execute("SELECT text FROM journal WHERE message_id = ? ORDER BY id", (message_id,))
            text = row[0] + "".join(part for (part,) in journal)
            (start,) = connection.execute(
                "SELECT coalesce(max(start), 0) FROM passages WHERE message_id = ?", (message_id,)
            ).fetchone()
            connection.execute("DELETE FROM passages WHERE message_id = ? AND start >= ?", (message_id, start))
            coming = passages(text, start)
            _add(connection, message_id, islice(coming, _PASSAGES_A_STEP))
            if (following := next(coming, None)) is None:
                connection.execute("DELETE FROM unindexed WHERE message_id = ?", (message_id,))
                return True
            _add(connection, message_id, [following])  # a later step takes it up again: it tells where to go on
            return False

    def _marked(self, query: str, rows: list[tuple[Any, ...]]) -> dict[int, str]:
        """Return the passages of the rows by their numbers, with marks around the hits."""
        marked: dict[int, str] = {}
        for passage_id in {row[0] for row in rows}:
            found = self._connection.execute(_MARK, (HIT_OPENS, HIT_CLOSES, query, passage_id)).fetchone()
            marked[passage_id] = found[0] if found else ""
        return marked

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except sqlite3.Error as error:
                raise store_error(self._path, error) from error

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._reading(), self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            yield self._connection


_BEHIND = """SELECT message_id FROM unindexed UNION SELECT id FROM messages WHERE status IN ('queued', 'running')
             ORDER BY 1 DESC"""

_FIND = """
    SELECT * FROM (
        SELECT passages.id, passages.start, messages.id, messages.role, chats.id, chats.title,
               count() OVER (PARTITION BY messages.id), passages.original,
               row_number() OVER (PARTITION BY messages.id ORDER BY passages.start) AS place
        FROM passage_words
        JOIN passages ON passages.id = passage_words.rowid
        JOIN messages ON messages.id = passages.message_id
        JOIN chats ON chats.id = messages.chat_id
        WHERE passage_words MATCH ?1 AND messages.set_aside = 0
            AND (?2 IS NULL OR chats.id = ?2) AND (?3 IS NULL OR messages.id = ?3)
    ) WHERE place <= ?4 ORDER BY 3 DESC, 2 LIMIT ?5"""
_MESSAGE = itemgetter(2)

_MARK = "SELECT highlight(passage_words, 0, ?, ?) FROM passage_words WHERE passage_words MATCH ? AND rowid = ?"


def _is_damage(error: StoreError) -> bool:
    """Tell damage from what passes: a full disk, a busy file."""
    return type(error.__cause__) is sqlite3.DatabaseError


def _add(connection: sqlite3.Connection, message_id: int, coming: Iterable[tuple[int, str]]) -> None:
    for start, passage in coming:
        indexed = fold_for_index(passage).text
        original = None if indexed == passage else passage
        cursor = connection.execute(
            "INSERT INTO passages (message_id, start, original) VALUES (?, ?, ?)", (message_id, start, original)
        )
        connection.execute(
            "INSERT INTO passage_words (rowid, text) VALUES (?, ?)", (cursor.lastrowid, indexable(indexed))
        )


def _found(rows: list[tuple[Any, ...]], marked: dict[int, str]) -> FoundMessage:
    _, _, message_id, role, chat_id, chat_title, num_passages, *_ = rows[0]
    hits: list[Hit] = []
    known: set[int] = set()  # passages overlap: a word can be in two of them
    for passage_id, start, *_, original, _ in rows:
        passage, spans = unmarked(marked[passage_id])
        if original is not None:
            passage, spans = original, _spans_in(original, spans)
        new = [span for span in spans if start + span[0] not in known]
        known.update(start + begin for begin, _ in new)
        hits.extend(_snippets(passage, start, new))
    return FoundMessage(chat_id, chat_title, message_id, role, num_passages, tuple(hits))


def _spans_in(original: str, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans of what was indexed as spans of the text it was made of."""
    folded = fold_for_index(original)
    return list(dict.fromkeys(folded.span_of(begin, end) for begin, end in spans))


def _snippets(passage: str, start: int, spans: list[tuple[int, int]]) -> Iterator[Hit]:
    """Yield a snippet for every hit that is not yet in the snippet of one before it."""
    while spans:
        first = spans[0][0]
        begin = max(0, first - _BEFORE_CHARS)
        end = max(begin + _SNIPPET_CHARS, spans[0][1])
        inside = [span for span in spans if span[1] <= end]
        marks = tuple((low - begin, high - begin) for low, high in inside)
        yield Hit(start + first, passage[begin:end], marks)
        spans = spans[len(inside) :]
