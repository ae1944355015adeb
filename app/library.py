"""What is done with many chats or whole ones: searching them, putting them in folders, exporting and importing."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from app.archive import Archive, ArchivedChat
from app.import_process import read_upload_apart
from app.imported_parts import left_out_words
from app.imported_templates import without_templates
from app.input_rules import MAX_FOLDER_CHARS, clean_text, one_line
from app.presets import Presets
from app.search_index import FoundMessage, SearchIndex
from app.store import Chat, Store
from app.store_backup import copy_store
from backends.errors import BadRequestError

_PIECE_BYTES = 1 << 20


class Library:
    """The kept chats of one store, beside the conversation that goes on. Thread-safe; `close` it before the store.

    Args:
        folder: the data folder; presets are kept in it as files.

    Attributes:
        presets: settings under names.
    """

    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self._archive = Archive(store.database)
        self._index = SearchIndex(store.path)
        self.presets = Presets(folder / "presets")
        self.catch_up_soon()

    def search(self, query: str, chat_id: int | None = None, message_id: int | None = None) -> list[FoundMessage]:
        """Return the messages that hold all the words, newest first; see `SearchIndex.search`."""
        return self._index.search(clean_text(query), chat_id, message_id)

    def catch_up_soon(self) -> None:
        """Index in the background what was written since the last time."""
        self._index.catch_up_soon()

    def file_chat(self, chat_id: int, folder: str) -> Chat:
        """Put a chat into a folder, which begins to be with its first chat; an empty name takes it out."""
        self._store.file_chat(chat_id, _folder_name(folder))
        return self._store.chat(chat_id)

    def rename_folder(self, folder: str, name: str) -> str:
        """Rename a folder, which becomes part of one that has this name already; an empty name takes its chats out.

        Return the name as kept.
        """
        name = _folder_name(name)
        if folder:
            self._store.rename_folder(folder, name)
        return name

    def backed_up(self) -> Iterator[bytes]:
        """Yield a copy of everything as one file, whole and checked before its first byte comes.

        Raises:
            StoreError: the copy cannot be written, or the store is damaged and the copy would be too.
        """
        with tempfile.TemporaryDirectory(prefix=".backup-", dir=self._store.path.parent) as folder:
            copy = Path(folder) / "chats.sqlite"
            copy_store(self._store.path, copy)
            with copy.open("rb") as file:
                while piece := file.read(_PIECE_BYTES):
                    yield piece

    def archived(self, chat_id: int) -> ArchivedChat:
        """Return a whole chat for export. Raises BadRequestError if it is gone."""
        return self._archive.chat(chat_id)

    def archived_chats(self) -> list[ArchivedChat]:
        """Return all chats for export, oldest first."""
        return [self._archive.chat(chat_id) for chat_id in self._archive.chat_ids()]

    def import_upload(self, upload: Path, with_templates: bool = False) -> tuple[list[Chat], str]:
        """Add the chats of a file that the page sent, all or none; see `read_upload`.

        Args:
            with_templates: the chat templates of the file too.

        Returns:
            The chats, and in words what of the file is not in them.

        Raises:
            BadRequestError: it is not a file of chats; in one sentence.
        """
        chats = read_upload_apart(upload)
        if not with_templates:
            chats = without_templates(chats)
        added = self._archive.add(chats)
        self.catch_up_soon()
        return [self._store.chat(chat_id) for chat_id in added], left_out_words(chats)

    def close(self) -> None:
        """Stop indexing. Twice is fine."""
        self._index.close()


def _folder_name(name: str) -> str:
    name = one_line(name)
    if len(name) > MAX_FOLDER_CHARS:
        raise BadRequestError(f"A folder's name has at most {MAX_FOLDER_CHARS} characters.", "Choose a shorter one.")
    return name
