"""A store copied whole into one file while it is in use."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from app.store_file import StoreError

_PAGES_A_STEP = 4096
_PAUSE_S = 0.01


def copy_store(path: Path, target: Path) -> int:
    """Copy a store with SQLite's online backup, check the copy, and give it its name only then; return its size.

    Raises:
        StoreError: the copy cannot be written, or the store is damaged and the copy would be too.
    """
    half = target.with_name(f".{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        half.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(half)) as copy:
            source.backup(copy, pages=_PAGES_A_STEP, sleep=_PAUSE_S)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, without companions
            found = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise _damaged(path, found)
        with half.open("rb+") as file:
            os.fsync(file.fileno())
        half.replace(target)
        return target.stat().st_size
    except sqlite3.OperationalError as error:
        raise StoreError(f"The backup {target} cannot be written: {error}.", "Choose another place.") from error
    except sqlite3.DatabaseError as error:
        raise _damaged(path, str(error)) from error
    except OSError as error:
        raise StoreError(
            f"The backup {target} cannot be written: {error.strerror}.", "Choose another place."
        ) from error
    finally:
        with suppress(OSError):
            half.unlink(missing_ok=True)


def _damaged(path: Path, found: str) -> StoreError:
    return StoreError(f"{path} is damaged ({found}), so a copy would be too.", "Run 'ringside check' first.")
