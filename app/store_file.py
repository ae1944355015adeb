"""Opening the store's file: pragmas, integrity check, migrations, and setting a damaged one aside."""

from __future__ import annotations

import shutil
import sqlite3
import time
from pathlib import Path

from app.folding import fold
from app.store_schema import MIGRATIONS
from backends.errors import RingsideError

_BUSY_TIMEOUT_S = 3.0
_CACHE_KB = 400  # pages at hand; SQLite's own 2,000 would grow all through a long reply, and the system keeps pages too
_SHARED_MEMORY_BYTES = 32_768  # of the file beside the database that its readers share


class StoreError(RingsideError):
    """The database cannot be read or written now: the disk is full, read-only, or gone."""


def open_database(path: Path) -> sqlite3.Connection:
    """Open or make the database, check it, and bring it up to date.

    Raises:
        sqlite3.OperationalError: it cannot be opened or is locked.
        sqlite3.DatabaseError: it is damaged.
        StoreError: a newer version wrote it.
    """
    connection = sqlite3.connect(
        path,
        timeout=_BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=0,  # one at hand would hold on to the text it last wrote, however long
    )
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
        connection.create_function("folded", 1, lambda text: fold(str(text)).text, deterministic=True)
        if (found := connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(found)
        _migrate(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the file up to this version's schema, one transaction a step."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{path} was written by a newer version of Ringside (schema {version}, this one knows {len(MIGRATIONS)}).",
            "Update Ringside, or point RINGSIDE_HOME at another folder.",
        )
    for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
        connection.executescript(f"BEGIN IMMEDIATE; {script}; PRAGMA user_version = {number}; COMMIT;")


def set_aside(path: Path) -> str:
    """Rename the database and its companions; return the new name."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    kept_as = path.with_name(f"{path.stem}.damaged-{stamp}{path.suffix}")
    for companion in ("", "-wal", "-shm"):
        source = path.with_name(path.name + companion)
        if source.exists():
            source.replace(kept_as.with_name(kept_as.name + companion))
    return kept_as.name


def store_error(path: Path, error: sqlite3.Error) -> StoreError:
    """Return SQLite's error in words a person can act on."""
    said = str(error)
    if "full" in said or ("disk I/O" in said and _is_full(path.parent)):
        return StoreError(f"The disk with {path} is full.", "Free some space; nothing already kept is lost.")
    return StoreError(f"{path} cannot be used now: {said}.", "Check that the folder is there and can be written to.")


def _is_full(folder: Path) -> bool:
    """Say whether SQLite's shared memory file no longer fits, which it calls an I/O error."""
    try:
        return shutil.disk_usage(folder).free < _SHARED_MEMORY_BYTES
    except OSError:
        return False
