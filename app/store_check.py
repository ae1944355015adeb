"""Checking a store, repairing what can be repaired, and setting aside what cannot.

From the outside in: can the file be read, do its indexes and the search index agree with its tables, does what it says
make sense to Ringside. Damaged pages are not repaired in place: what can still be read goes into a new file, and the
damaged one is kept.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from app.store_file import open_database, set_aside
from app.store_salvage import Salvage, salvage
from app.store_schema import FORGET_INDEX

_MAX_COMPLAINTS = 100
_INDEX_COMPLAINTS = ("missing from index", "wrong # of entries in index", "non-unique entry in index")
_SEARCH_COMPLAINTS = ("fts5", "passage_words")
_BROKEN = "(length(token_ids) % 4 <> 0 OR typeof(text) <> 'text' OR typeof(token_ids) <> 'blob')"


@dataclass
class CheckReport:
    """What was found and what was done about it, in sentences.

    Attributes:
        problems: empty for a store that is fine.
        repairs: done.
        kept_as: name of the damaged file that was set aside; empty if none was.
        recovered: where what could be read is now; None if nothing had to be recovered.
    """

    num_chats: int = 0
    num_messages: int = 0
    problems: list[str] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)
    kept_as: str = ""
    recovered: Path | None = None


def check(path: Path, *, repair: bool, in_place: bool = True) -> CheckReport:
    """Check a store and, if asked to, repair it; nobody else may have it open then.

    Args:
        in_place: what is recovered takes the damaged file's place; otherwise it stands beside it as ".recovered".

    Raises:
        OSError: the file cannot be opened or replaced.
    """
    report = CheckReport()
    complaints = _complaints(path)
    report.problems += complaints
    if repair and complaints:
        if all(_is_about_indexes(each) for each in complaints):
            _rebuild_indexes(path, report)
            complaints = _complaints(path)
        if complaints:
            path = _recover(path, report, in_place)
    elif complaints:
        return report
    with closing(open_database(path)) as connection:
        _check_content(connection, report, repair)
        report.num_chats = _number(connection, "SELECT count(*) FROM chats")
        report.num_messages = _number(connection, "SELECT count(*) FROM messages")
    return report


def _complaints(path: Path) -> list[str]:
    """Return what SQLite says about the file and the search index about itself."""
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            found = [row[0] for row in connection.execute(f"PRAGMA integrity_check({_MAX_COMPLAINTS})")]
            found = [each for each in found if each != "ok"]
            if not found and _number(connection, "SELECT count(*) FROM sqlite_master WHERE name = 'passage_words'"):
                try:
                    connection.execute("INSERT INTO passage_words (passage_words) VALUES ('integrity-check')")
                except sqlite3.DatabaseError as error:
                    found.append(f"passage_words: {error}")
            return found
    except sqlite3.DatabaseError as error:
        return [str(error)]


def _is_about_indexes(complaint: str) -> bool:
    return any(sign in complaint for sign in (*_INDEX_COMPLAINTS, *_SEARCH_COMPLAINTS))


def _rebuild_indexes(path: Path, report: CheckReport) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        try:
            connection.executescript(f"BEGIN; {FORGET_INDEX} COMMIT;")
            connection.execute("REINDEX")
        except sqlite3.DatabaseError:  # then it is not the indexes alone
            return
    report.repairs.append("The indexes were made again from the chats.")


def _recover(path: Path, report: CheckReport, in_place: bool) -> Path:
    """Copy what can be read into a new file; return where it is."""
    recovered = path.with_name(f"{path.stem}.recovered{path.suffix}")
    recovered.unlink(missing_ok=True)
    try:
        result = salvage(path, recovered)
    except sqlite3.DatabaseError:
        recovered.unlink(missing_ok=True)
        result = Salvage({})
    open_database(recovered).close()  # brings it up to date; nothing but a new one if nothing could be read
    if in_place:
        report.kept_as = set_aside(path)
        for companion in ("-wal", "-shm"):
            recovered.with_name(recovered.name + companion).unlink(missing_ok=True)
        recovered = recovered.replace(path)
    report.recovered = recovered
    num_chats, num_messages = (result.num_rows.get(table, 0) for table in ("chats", "messages"))
    report.repairs.append(f"What could be read was copied to a new file: {num_chats} chats, {num_messages} messages.")
    if result.num_textless:
        report.repairs.append(f"The text of {result.num_textless} messages could not be read.")
    return recovered


def _check_content(connection: sqlite3.Connection, report: CheckReport, repair: bool) -> None:
    """Look for what SQLite finds nothing wrong with: rows that belong to nothing, values that mean nothing."""
    for problem, question, remedies in _CONTENT_CHECKS:
        if count := _number(connection, question):
            _note(report, f"{count} {problem}.", repair)
            for remedy in remedies if repair else ():
                connection.execute(remedy)
    for message_id in _unreadable_figures(connection):
        _note(report, f"The figures of message {message_id} cannot be read.", repair)
        if repair:
            connection.execute("DELETE FROM reply_metrics WHERE message_id = ?", (message_id,))
    for message_id in _unreadable_layouts(connection):
        _note(report, f"The layout of message {message_id} does not fit its text.", repair)
        if repair:  # without ids the text is what was typed: it goes on from its words
            connection.execute("UPDATE messages SET layout = '', token_ids = x'' WHERE id = ?", (message_id,))


_NO_CHAT = "chat_id NOT IN (SELECT id FROM chats)"
_NO_PARENT = "parent_id IS NOT NULL AND parent_id NOT IN (SELECT id FROM messages)"
_NO_LEAF = """coalesce(leaf_id NOT IN (SELECT id FROM messages WHERE chat_id = chats.id AND set_aside = 0), 1)
              AND id IN (SELECT chat_id FROM messages WHERE set_aside = 0)"""
_NO_MESSAGE = "message_id NOT IN (SELECT id FROM messages)"

_CONTENT_CHECKS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "messages belong to no chat",
        f"SELECT count(*) FROM messages WHERE {_NO_CHAT}",
        (
            f"""INSERT INTO chats (id, title, created_at_s, updated_at_s)
                SELECT chat_id, 'Recovered chat', min(created_at_s), max(created_at_s) FROM messages
                WHERE {_NO_CHAT} GROUP BY chat_id""",
        ),
    ),
    (
        "messages hold something other than text and ids",
        f"SELECT count(*) FROM messages WHERE {_BROKEN}",
        (f"UPDATE messages SET text = CAST(text AS TEXT), token_ids = x'', layout = '' WHERE {_BROKEN}",),
    ),
    (
        "messages follow one that is not there",
        f"SELECT count(*) FROM messages WHERE {_NO_PARENT}",
        (
            f"""UPDATE messages SET parent_id = (
                    SELECT max(earlier.id) FROM messages AS earlier
                    WHERE earlier.chat_id = messages.chat_id AND earlier.id < messages.id
                        AND earlier.role <> messages.role AND earlier.set_aside = 0)
                WHERE {_NO_PARENT}""",
        ),
    ),
    (
        "chats have lost the message they ended with",
        f"SELECT count(*) FROM chats WHERE {_NO_LEAF}",
        (
            f"""UPDATE chats SET leaf_id = (
                    SELECT max(id) FROM messages WHERE chat_id = chats.id AND set_aside = 0) WHERE {_NO_LEAF}""",
        ),
    ),
    (
        "leftovers belong to no message",
        f"""SELECT (SELECT count(*) FROM journal WHERE {_NO_MESSAGE})
                 + (SELECT count(*) FROM text_behind WHERE {_NO_MESSAGE})
                 + (SELECT count(*) FROM reply_metrics WHERE {_NO_MESSAGE})
                 + (SELECT count(*) FROM steps WHERE {_NO_CHAT})""",
        (
            f"DELETE FROM journal WHERE {_NO_MESSAGE}",
            f"DELETE FROM text_behind WHERE {_NO_MESSAGE}",
            f"DELETE FROM reply_metrics WHERE {_NO_MESSAGE}",
            f"DELETE FROM steps WHERE {_NO_CHAT}",
        ),
    ),
)


def _unreadable_figures(connection: sqlite3.Connection) -> list[int]:
    found: list[int] = []
    for message_id, packed in connection.execute("SELECT message_id, packed FROM reply_metrics"):
        try:
            json.loads(zlib.decompress(packed))
        except (TypeError, ValueError, zlib.error):
            found.append(message_id)
    return found


def _unreadable_layouts(connection: sqlite3.Connection) -> list[int]:
    rows = connection.execute("SELECT id, text, length(token_ids) / 4, layout FROM messages WHERE layout <> ''")
    return [message_id for message_id, text, num_ids, layout in rows if not _fits(layout, len(text), num_ids)]


def _fits(layout: str, num_chars: int, num_ids: int) -> bool:
    try:
        spans = [each for each in json.loads(layout) if not isinstance(each, str)]
        return [sum(each[0] for each in spans), sum(each[1] for each in spans)] == [num_chars, num_ids]
    except (ValueError, TypeError, IndexError):
        return False


def _number(connection: sqlite3.Connection, sql: str) -> int:
    return int(connection.execute(sql).fetchone()[0])


def _note(report: CheckReport, sentence: str, repaired: bool) -> None:
    report.problems.append(sentence)
    if repaired:
        report.repairs.append(f"{sentence.rstrip('.')}: put right.")
