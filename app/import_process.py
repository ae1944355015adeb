"""Files of chats that the page sends, read in a process of their own where they are large.

Reading JSON holds the interpreter from the first byte to the last, so a large file would hold up every tab.
"""

from __future__ import annotations

import json
import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path

from app.archive import ArchivedChat
from app.chat_import import read_chats
from backends.errors import BadRequestError, RingsideError

LARGE_BYTES = 2 << 20
"""Smaller ones are read within the time a process takes to start."""


def read_upload_apart(upload: Path) -> list[ArchivedChat]:
    """Return what `read_upload` does, without holding up other threads.

    Raises:
        BadRequestError: as there, or the process had too little memory.
    """
    if upload.stat().st_size <= LARGE_BYTES:
        return read_upload(upload)
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_send_chats, args=(sending, upload), name="ringside-import", daemon=True)
    process.start()
    sending.close()  # so that the pipe ends with the process
    try:
        return _received(receiving)
    finally:
        receiving.close()
        process.kill()
        process.join()


def read_upload(upload: Path) -> list[ArchivedChat]:
    """Return the chats of a file as the page sends it: {"name": ..., "content": ...}.

    Raises:
        BadRequestError: it is not that, or not a file of chats; in one sentence.
    """
    try:
        sent = json.loads(upload.read_bytes())
    except (ValueError, RecursionError) as error:
        raise BadRequestError("The file did not arrive as it was sent.", "Import it again.") from error
    name, content = (sent.get("name"), sent.get("content")) if isinstance(sent, dict) else (None, None)
    if not isinstance(name, str) or not isinstance(content, str):
        raise BadRequestError("A file to import has a name and a content, both of them text.", "Load the page again.")
    return read_chats(name, content)


def _received(connection: Connection) -> list[ArchivedChat]:
    chats: list[ArchivedChat] = []
    try:
        while (sent := connection.recv()) is not None:
            if isinstance(sent, RingsideError):
                raise sent
            chats.append(sent)
    except EOFError:
        raise BadRequestError("The memory that is free is too little to read this file.", "Split it first.") from None
    return chats


def _send_chats(connection: Connection, upload: Path) -> None:
    """Send chats one by one and then None, so that the other side takes in a little at a time."""
    try:
        for chat in read_upload(upload):
            connection.send(chat)
        connection.send(None)
    except RingsideError as error:
        connection.send(error)
