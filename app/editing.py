"""What a person does to the messages of a chat: walk its variants and branches, edit, cut, delete, and undo that.

Nothing here destroys text, see `app.chat_tree`. Every method is thread-safe and raises BadRequestError where the
message is gone, was changed in another tab, or a reply is being written in the chat.
"""

from __future__ import annotations

from app.chat_tree import Node, StepKind, stale
from app.content import edited
from app.input_rules import clean_text, require_words, title_from
from app.replies import Replies
from app.runs import Run
from app.store import Store, StoredMessage
from backends.errors import BadRequestError

START_CHARS = 80
"""Of a message, in the outline of a chat."""


class Editing:
    """Edits of one store, in step with the replies being written."""

    def __init__(self, store: Store, replies: Replies) -> None:
        self._store = store
        self._replies = replies

    # Walking

    def variants(self, chat_id: int) -> dict[int, list[int]]:
        """Return for every message on screen its variants, itself included, oldest first."""
        return self._store.tree.variants(chat_id)

    def outline(self, chat_id: int) -> list[tuple[Node, str]]:
        """Return every message of a chat with the beginning of its text, oldest first."""
        return self._store.tree.outline(chat_id, START_CHARS)

    def select(self, message_id: int) -> None:
        """Bring a variant on screen, with the newest of what follows it. Works while replies are being written."""
        with self._replies.lock:
            self._store.tree.select(message_id)
            chat_id = self._store.tree.chat_of(message_id)
            self._replies.settle(chat_id)
            self._replies.count_change(chat_id)

    def branch(self, message_id: int) -> None:
        """End what is on screen at a message: what is sent next begins a branch there."""
        with self._replies.lock:
            message = self._idle_message(message_id)
            self._store.tree.branch(message_id)
            self._replies.count_change(message.chat_id)

    # Writing

    def ask_again(self, message_id: int, text: str) -> Run:
        """Put another text beside a user's message, as a variant, and start a reply to it."""
        text = clean_text(text)
        require_words(text)
        with self._replies.lock:
            message = self._idle_message(message_id)
            if message.role != "user":
                raise BadRequestError("This is a reply, not a question.", "Edit it, or have it written anew.")
            chat = self._store.chat(message.chat_id)
            is_named_after_it = message.parent_id is None and chat.title == title_from(message.text)
            title = title_from(text) if is_named_after_it else None
            return self._replies.begin(chat.id, self._store.add_turn(chat.id, text, title, replaces_from=message_id))

    def answer_again(self, message_id: int) -> Run:
        """Write a reply anew, as a variant beside it, wherever it stands; for a user's message, write another reply."""
        with self._replies.lock:
            message = self._idle_message(message_id)
            if message.role == "assistant":
                reply_id = self._store.add_turn(message.chat_id, None, replaces_from=message_id)
            else:
                self._store.tree.branch(message_id)
                reply_id = self._store.add_turn(message.chat_id, None)
            return self._replies.begin(message.chat_id, reply_id)

    def resume(self, message_id: int) -> Run:
        """Go on with a reply from exactly the tokens that are kept of it, on whichever branch it is."""
        with self._replies.lock:
            message = self._idle_message(message_id)
            if message.role != "assistant":
                raise BadRequestError("Only a reply can be gone on with.", "Have this message answered instead.")
            if self._has_followers(message):
                raise BadRequestError("The chat goes on after this reply.", "Branch from it, or cut it first.")
            self._store.tree.select(message_id)
            return self._replies.go_on(message)

    def edit(self, message_id: int, text: str, version: int) -> StoredMessage:
        """Change the text of any message where it stands; what follows stays.

        Args:
            version: of the message the editing began with.
        """
        text = clean_text(text)
        with self._replies.lock:
            message = self._idle_message(message_id)
            if message.version != version:
                raise stale()
            if message.role == "user":
                require_words(text)
            self._store.tree.write_over(message_id, edited(message.content, text), version)
            self._replies.forget(message_id)
            self._replies.count_change(message.chat_id)
            return self._idle_message(message_id)

    def cut(self, message_id: int, num_chars: int) -> int:
        """Put the beginning of a reply beside it, as a variant to go on with; return its id.

        Args:
            num_chars: to keep, at least 1.
        """
        with self._replies.lock:
            message = self._idle_message(message_id)
            if message.role != "assistant" or not 0 < num_chars <= len(message.text):
                raise BadRequestError(f"There is no reply to cut after {num_chars} characters.", "Load the page again.")
            tree = self._store.tree
            with self._store.database.writing():
                parent_id = tree.step_aside(message.chat_id, message_id)
                head = message.content.head(num_chars)
                cut_id = tree.add(message.chat_id, "assistant", parent_id, head, "cancelled")
                self._store.mark(cut_id, "cancelled", message.backend, message.model_name, message.seed)
                self._store.keep_opening(cut_id, message.opening)
            self._replies.count_change(message.chat_id)
            return cut_id

    def delete(self, message_id: int) -> None:
        """Delete a message and all that follows it; undoing brings them back."""
        with self._replies.lock:
            message = self._idle_message(message_id)
            self._store.tree.delete(message_id)
            self._replies.count_change(message.chat_id)

    def undo(self, chat_id: int) -> StepKind:
        """Take back the last edit, variant, branch or deletion; return which it was."""
        with self._replies.lock:
            self._replies.require_idle(chat_id)
            kind, message_id = self._store.tree.undo(chat_id)
            if message_id is not None:
                self._replies.forget(message_id)
            self._replies.count_change(chat_id)
            return kind

    def num_steps(self, chat_id: int) -> int:
        """Return how many steps can be undone."""
        return self._store.tree.num_steps(chat_id)

    def _idle_message(self, message_id: int) -> StoredMessage:
        """Return a message of a chat in which nothing is being written."""
        message = self._store.message(message_id)
        if message is None or not self._store.tree.holds(message_id):
            raise BadRequestError("This message is gone.", "Load the page again.")
        self._replies.require_idle(message.chat_id)
        return message

    def _has_followers(self, message: StoredMessage) -> bool:
        return any(node.parent_id == message.id for node in self._store.tree.nodes(message.chat_id).values())
