"""What can still be read of a damaged store, row by row, copied into a new file.

A damaged page takes the rows on it along; all others are found, from both ends and by their numbers in between. The
damaged file is only read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from app.store_schema import MIGRATIONS

TABLES = ("chats", "messages", "journal", "text_behind", "reply_metrics", "kept", "steps")
"""What a person would miss; the search index is made again."""

_MAX_GAP = 2_000_000
"""Numbers tried one by one between the last row readable from the start and the first readable from the end."""

_SURE = {"id", "chat_id", "role"}
"""Columns of a message before its text: what comes after a long text can only be reached through it."""

_TEXTLESS = {
    "text": "''",
    "token_ids": "x''",
    "status": "'cut'",
    "created_at_s": "0",
    "parent_id": "-1",
    "seed": "NULL",
    "version": "0",
    "set_aside": "0",
}
"""What stands for the others; the parent is found again by `app.store_check`."""


@dataclass
class Salvage:
    """What came of it: rows copied, by table, and how many messages of those came without their text."""

    num_rows: dict[str, int]
    num_textless: int = 0


def salvage(damaged: Path, into: Path) -> Salvage:
    """Copy every readable row of a damaged store into a new file, of the same version of the schema.

    Raises:
        sqlite3.DatabaseError: it is not a database, or nothing of it can be read.
    """
    address = f"file:{quote(str(damaged))}?mode=ro"
    with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as source:
        version = _version(source)
        with closing(sqlite3.connect(into, isolation_level=None)) as target:
            for number, script in enumerate(MIGRATIONS[:version], start=1):
                target.executescript(f"BEGIN; {script}; PRAGMA user_version = {number}; COMMIT;")
            target.execute("BEGIN")
            result = Salvage({})
            for table in TABLES:
                if target.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone():
                    result.num_rows[table] = _copy(source, target, table, result)
            target.execute("COMMIT")
    return result


def _version(source: sqlite3.Connection) -> int:
    """Return the damaged file's version of the schema; the newest if that cannot be made out."""
    version = source.execute("PRAGMA user_version").fetchone()[0]
    return version if 0 < version <= len(MIGRATIONS) else len(MIGRATIONS)


def _copy(source: sqlite3.Connection, target: sqlite3.Connection, table: str, result: Salvage) -> int:
    columns = [row[1] for row in target.execute(f"PRAGMA table_info({table})")]
    names, slots = ", ".join(columns), ", ".join("?" * len(columns))
    num_rows = 0
    for row in _readable(source, table, columns, result):
        try:
            target.execute(f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({slots})", row)
            num_rows += 1
        except sqlite3.Error:  # a value that no row of this table can have: the page is garbled
            continue
    return num_rows


def _readable(
    source: sqlite3.Connection, table: str, columns: list[str], result: Salvage
) -> Iterator[tuple[object, ...]]:
    """Yield rows from the start on, then from the end backwards, then those between that answer to their number."""
    names = ", ".join(columns)
    low, high = 0, 0
    try:
        for rowid, *row in source.execute(f"SELECT rowid, {names} FROM {table} NOT INDEXED ORDER BY rowid"):
            yield tuple(row)
            low = rowid
        return
    except (sqlite3.Error, UnicodeDecodeError):
        pass
    try:
        backwards = f"SELECT rowid, {names} FROM {table} NOT INDEXED WHERE rowid > ? ORDER BY rowid DESC"
        for rowid, *row in source.execute(backwards, (low,)):
            yield tuple(row)
            high = rowid
    except (sqlite3.Error, UnicodeDecodeError):
        pass
    high = high or _highest(source, table, low)
    for rowid in range(low + 1, min(high, low + _MAX_GAP)):
        if (found := _row(source, table, columns, rowid, result)) is not None:
            yield found


def _row(
    source: sqlite3.Connection, table: str, columns: list[str], rowid: int, result: Salvage
) -> tuple[object, ...] | None:
    """Return one row, of a message at least that there was one; None if there is none or it cannot be read."""
    attempts = [columns]
    if table == "messages":
        attempts.append([column if column in _SURE else _TEXTLESS.get(column, "''") for column in columns])
    for attempt in attempts:
        try:
            sql = f"SELECT {', '.join(attempt)} FROM {table} NOT INDEXED WHERE rowid = ?"
            found: tuple[object, ...] | None = source.execute(sql, (rowid,)).fetchone()
        except (sqlite3.Error, UnicodeDecodeError):
            continue
        result.num_textless += attempt is not columns
        return found
    return None


def _highest(source: sqlite3.Connection, table: str, low: int) -> int:
    """Return the number after the highest row ever given, as far as it is known."""
    try:
        row = source.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
    except sqlite3.Error:
        row = None
    return (row[0] if row else low + 10_000) + 1
