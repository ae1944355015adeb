"""Notebooks: chats that are one document, which the model goes on writing at the end or at the cursor.

The document is the only message of its chat. It goes to the model as it stands, without any template; what the model
wrote keeps its ids, so going on is exact, and what a person typed is kept character by character.
"""

from __future__ import annotations

from app.chat_tree import stale
from app.content import Content
from app.input_rules import clean_text, title_from
from app.replies import Replies
from app.runs import Run
from app.store import Store, StoredMessage
from backends.errors import BadRequestError

_WORDS_FOR_TITLE = 2


class Notebooks:
    """Documents of one store, in step with what is being written; raises BadRequestError as `Editing` does."""

    def __init__(self, store: Store, replies: Replies) -> None:
        self._store = store
        self._replies = replies

    def empty(self) -> int | None:
        """Return the notebook that nothing was typed into yet and nothing was done with; None if there is none."""
        for chat in self._store.chats():
            if chat.kind == "notebook" and not (chat.title or chat.pinned or chat.folder) and self._is_empty(chat.id):
                return chat.id
        return None

    def _is_empty(self, chat_id: int) -> bool:
        return not self._replies.active(chat_id) and not any(each.text for each in self._store.messages(chat_id))

    def has(self, chat_id: int) -> bool:
        """Tell whether a chat is a notebook; one that is gone is none."""
        try:
            return self._store.chat(chat_id).kind == "notebook"
        except BadRequestError:
            return False

    def document(self, chat_id: int) -> StoredMessage:
        """Return the document; while it is written, its text ends where the model writes (see `behind`)."""
        return self._replies.as_of_now(self._document(chat_id))

    def behind(self, message_id: int) -> str:
        """Return what stands behind the place where the model is writing; empty if it writes at the end, or not."""
        return self._store.journal.behind(message_id).text

    def replace(self, chat_id: int, start: int, end: int, text: str, version: int) -> StoredMessage:
        """Replace the characters [start, end) of the document by typed ones.

        Args:
            version: of the document the typing began with.
        """
        text = clean_text(text)
        with self._replies.lock:
            self._replies.require_idle(chat_id)
            document = self._document(chat_id)
            if document.version != version or not 0 <= start <= end <= len(document.text):
                raise stale()
            self._store.tree.write_over(document.id, document.content.spliced(start, end, text), version)
            self._replies.forget(document.id)
            self._name_after(chat_id, text)
            return self._document(chat_id)

    def write(self, chat_id: int, version: int, at: int | None = None) -> Run:
        """Let the model write.

        Args:
            version: of the document on screen.
            at: character to write at, what stands behind it is kept behind; None writes at the end.
        """
        with self._replies.lock:
            self._replies.require_idle(chat_id)
            document = self._document(chat_id)
            if document.version != version or (at is not None and not 0 <= at <= len(document.text)):
                raise stale()
            return self._replies.go_on(document, at)

    def _name_after(self, chat_id: int, text: str) -> None:
        """Title a notebook that has none after the first words typed into it, once they are a few."""
        if not self._store.chat(chat_id).title and len(text.split()) >= _WORDS_FOR_TITLE:
            self._store.rename_chat(chat_id, title_from(text.strip().split("\n")[0]))

    def _document(self, chat_id: int) -> StoredMessage:
        with self._replies.lock:
            if self._store.chat(chat_id).kind != "notebook":
                raise BadRequestError("This chat is no notebook.", "Make a new notebook and put the text there.")
            messages = self._store.messages(chat_id)
            if messages:
                return messages[0]
            message = self._store.message(self._store.tree.add(chat_id, "assistant", None, Content(), "complete"))
            assert message is not None, "it was added under the lock"
            return message
