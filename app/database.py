"""The connection to the store's file: one, behind one lock, with errors in words.

A desktop has one writer and reads are short, so one connection is enough.
"""

from __future__ import annotations

import sqlite3
import threading
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from app.store_file import open_database, set_aside, store_error


class Database:
    """Thread-safe reads and all-or-nothing writes.

    Args:
        path: of the file; made if it is not there. A damaged one is set aside and named in `notices`.

    Raises:
        StoreError: the file cannot be opened at all, or a newer version wrote it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notices: list[str] = []
        self._lock = threading.RLock()
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.connection = open_database(path)
        except sqlite3.OperationalError as error:
            raise store_error(path, error) from error
        except sqlite3.DatabaseError:
            kept_as = set_aside(path)
            self.notices.append(
                f"The chats in {path.name} were damaged; the file is kept as {kept_as} and a new one begun."
            )
            self.connection = open_database(path)

    def close(self) -> None:
        """Close the file. Twice is fine."""
        with self._lock:
            self.connection.close()

    def read(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Return all rows of a query. Raises StoreError."""
        with self._lock:
            try:
                return self.connection.execute(sql, parameters).fetchall()
            except sqlite3.Error as error:
                raise store_error(self.path, error) from error

    def write(self, sql: str, *parameters: object) -> None:
        """Run one statement; on disk when this returns. Raises StoreError."""
        with self.writing() as connection:
            connection.execute(sql, parameters)

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Let nobody else in between several reads."""
        with self._lock:
            yield

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction under the lock: all of it is on disk afterwards, or none. Raises StoreError.

        Inside another one it is part of that.
        """
        with self._lock:
            if self.connection.in_transaction:
                yield self.connection
                return
            try:
                with self.connection:
                    self.connection.execute("BEGIN IMMEDIATE")
                    yield self.connection
            except sqlite3.Error as error:
                raise store_error(self.path, error) from error


def row_id(cursor: sqlite3.Cursor) -> int:
    """Return the id of the row just inserted."""
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def packed_ids(token_ids: array[int]) -> bytes:
    """Return token ids as they are kept: four bytes each."""
    return token_ids.tobytes()


def unpacked_ids(packed: bytes | None) -> array[int]:
    """Read what `packed_ids` wrote."""
    return array("i", packed or b"")
