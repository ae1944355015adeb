"""The messages of a chat as a tree: variants beside each other, one path on screen, a way back from every change.

Nothing a person does here destroys text. Regenerating and editing to ask again add a variant; editing in place keeps
the former text with the step; deleting marks a message and all that follows it. Each is a step that `undo` takes back,
the last one first.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from app.content import Content, pack_layout
from app.database import Database, packed_ids, row_id
from backends.errors import BadRequestError

StepKind = Literal["branch", "edit", "delete"]

MAX_STEPS = 100
"""Steps kept of a chat; what older ones deleted is then really deleted."""


@dataclass(frozen=True)
class Node:
    """A message of the tree, without its text."""

    id: int
    parent_id: int | None
    role: Literal["user", "assistant"]
    status: str


class ChatTree:
    """Trees of all chats. A message that is deleted is as good as gone until its deletion is undone."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # Looking

    def nodes(self, chat_id: int) -> dict[int, Node]:
        """Return the messages of a chat by id, oldest first."""
        rows = self._database.read(
            "SELECT id, parent_id, role, status FROM messages WHERE chat_id = ? AND set_aside = 0 ORDER BY id", chat_id
        )
        return {row[0]: Node(*row) for row in rows}

    def outline(self, chat_id: int, num_chars: int) -> list[tuple[Node, str]]:
        """Return the messages of a chat with their first characters, oldest first."""
        rows = self._database.read(
            """SELECT id, parent_id, role, status, substr(text, 1, ?) FROM messages
               WHERE chat_id = ? AND set_aside = 0 ORDER BY id""",
            num_chars,
            chat_id,
        )
        return [(Node(*row[:4]), row[4]) for row in rows]

    def leaf(self, chat_id: int) -> int | None:
        """Return the last message of the path on screen."""
        rows = self._database.read("SELECT leaf_id FROM chats WHERE id = ?", chat_id)
        return rows[0][0] if rows else None

    def path(self, chat_id: int) -> list[int]:
        """Return the ids on the way to the leaf, oldest first."""
        leaf_id = self.leaf(chat_id)
        return [] if leaf_id is None else self.path_to(leaf_id)

    def path_to(self, message_id: int) -> list[int]:
        """Return the ids on the way to a message, itself included, oldest first."""
        return [row[0] for row in self._database.read(_PATH, message_id)]

    def variants(self, chat_id: int) -> dict[int, list[int]]:
        """Return for every message on the path its variants, itself included, oldest first."""
        nodes = self.nodes(chat_id)
        by_parent: dict[int | None, list[int]] = {}
        for node in nodes.values():
            by_parent.setdefault(node.parent_id, []).append(node.id)
        return {each: by_parent[nodes[each].parent_id] for each in self.path(chat_id) if each in nodes}

    def holds(self, message_id: int) -> bool:
        """Tell whether a message is there and not deleted."""
        return bool(self._database.read("SELECT 1 FROM messages WHERE id = ? AND set_aside = 0", message_id))

    def chat_of(self, message_id: int) -> int:
        """Return the chat a message belongs to. Raises BadRequestError if the message is gone."""
        rows = self._database.read("SELECT chat_id FROM messages WHERE id = ? AND set_aside = 0", message_id)
        if not rows:
            raise BadRequestError("This message is gone.", "Load the page again.")
        return int(rows[0][0])

    # Walking

    def select(self, message_id: int) -> None:
        """Bring a message on screen, with the newest of what follows it. Raises BadRequestError if it is gone."""
        chat_id = self.chat_of(message_id)
        nodes = self.nodes(chat_id)
        newest_child = {node.parent_id: node.id for node in nodes.values()}  # ids ascend: the last one stays
        while (child := newest_child.get(message_id)) is not None:
            message_id = child
        self._set_leaf(chat_id, message_id)

    def branch(self, message_id: int) -> None:
        """End the path at a message: what is said next begins a branch there. Raises BadRequestError if it is gone."""
        chat_id = self.chat_of(message_id)
        with self._database.writing():
            self._note_step(chat_id, "branch")
            self._set_leaf(chat_id, message_id)

    # Changing

    def add(
        self,
        chat_id: int,
        role: Literal["user", "assistant"],
        parent_id: int | None,
        content: Content,
        status: str,
    ) -> int:
        """Add a message behind another one and make it the leaf; return its id."""
        now_s = time.time()
        with self._database.writing() as connection:
            cursor = connection.execute(
                """INSERT INTO messages (chat_id, role, parent_id, text, token_ids, layout, status, created_at_s)
                   VALUES (?, ?, ?, ?, ?, ?, ?, ?)""",
                (
                    chat_id,
                    role,
                    parent_id,
                    content.text,
                    packed_ids(content.token_ids),
                    pack_layout(content.layout),
                    status,
                    now_s,
                ),
            )
            message_id = row_id(cursor)
            connection.execute("UPDATE chats SET updated_at_s = ? WHERE id = ?", (now_s, chat_id))
            self._set_leaf(chat_id, message_id)
        return message_id

    def step_aside(self, chat_id: int, message_id: int) -> int | None:
        """Note a step back to the path of now, and return the parent under which a variant of the message belongs."""
        rows = self._database.read("SELECT parent_id FROM messages WHERE id = ?", message_id)
        self._note_step(chat_id, "branch")
        return rows[0][0] if rows else self.leaf(chat_id)

    def write_over(self, message_id: int, content: Content, version: int) -> None:
        """Change a message where it stands; undoing brings the former content back.

        Raises:
            BadRequestError: it is gone, or was changed since `version` (in another tab).
        """
        with self._database.writing() as connection:
            chat_id = self.chat_of(message_id)
            self._note_step(chat_id, "edit", message_id)
            changed = connection.execute(
                """UPDATE messages SET text = ?, token_ids = ?, layout = ?, version = version + 1
                   WHERE id = ? AND version = ?""",
                (content.text, packed_ids(content.token_ids), pack_layout(content.layout), message_id, version),
            )
            if not changed.rowcount:
                raise stale()
            connection.execute("UPDATE chats SET updated_at_s = ? WHERE id = ?", (time.time(), chat_id))

    def begin_growing(self, message_id: int) -> None:
        """Note that a run goes on with a message: tabs with its former text are stale, its edits stay."""
        with self._database.writing() as connection:
            connection.execute("UPDATE messages SET version = version + 1 WHERE id = ?", (message_id,))
            connection.execute("DELETE FROM steps WHERE message_id = ?", (message_id,))

    def delete(self, message_id: int) -> None:
        """Delete a message and all that follows it; a variant takes its place on screen, or the path ends before it."""
        chat_id = self.chat_of(message_id)
        nodes = self.nodes(chat_id)
        node = nodes[message_id]
        gone = [message_id, *_below(message_id, nodes)]
        others = [each.id for each in nodes.values() if each.parent_id == node.parent_id and each.id != message_id]
        with self._database.writing() as connection:
            step_id = self._note_step(chat_id, "delete", message_id, keeps_text=False)
            connection.executemany("UPDATE messages SET set_aside = ? WHERE id = ?", [(step_id, each) for each in gone])
            if self.leaf(chat_id) not in gone:
                return
            if others:
                self.select(min(others, key=lambda each: abs(each - message_id)))
            else:
                self._set_leaf(chat_id, node.parent_id)

    def undo(self, chat_id: int) -> tuple[StepKind, int | None]:
        """Take back the last step; return its kind and message. Raises BadRequestError if there is none."""
        with self._database.writing() as connection:
            rows = self._database.read(f"{_SELECT_STEP} WHERE chat_id = ? ORDER BY id DESC LIMIT 1", chat_id)
            if not rows:
                raise BadRequestError("There is nothing to undo here.", "Edits, variants and deletions can be undone.")
            step_id, kind, leaf_id, message_id, text, token_ids, layout = rows[0]
            if kind == "edit":
                connection.execute(
                    "UPDATE messages SET text = ?, token_ids = ?, layout = ?, version = version + 1 WHERE id = ?",
                    (text, token_ids, layout, message_id),
                )
            connection.execute("UPDATE messages SET set_aside = 0 WHERE set_aside = ?", (step_id,))
            connection.execute("DELETE FROM steps WHERE id = ?", (step_id,))
            self._set_leaf(chat_id, leaf_id)
        return kind, message_id

    def num_steps(self, chat_id: int) -> int:
        """Return how many steps can be undone."""
        return int(self._database.read("SELECT count(*) FROM steps WHERE chat_id = ?", chat_id)[0][0])

    def _set_leaf(self, chat_id: int, message_id: int | None) -> None:
        self._database.write("UPDATE chats SET leaf_id = ? WHERE id = ?", message_id, chat_id)

    def _note_step(self, chat_id: int, kind: StepKind, message_id: int | None = None, keeps_text: bool = True) -> int:
        with self._database.writing() as connection:
            cursor = connection.execute(
                """INSERT INTO steps (chat_id, kind, leaf_id, message_id, text, token_ids, layout)
                   SELECT chats.id, ?, chats.leaf_id, messages.id, messages.text, messages.token_ids, messages.layout
                   FROM chats LEFT JOIN messages ON messages.id = ? AND ? WHERE chats.id = ?""",
                (kind, message_id, keeps_text, chat_id),
            )
            step_id = row_id(cursor)
            too_old = self._database.read(
                "SELECT id FROM steps WHERE chat_id = ? ORDER BY id DESC LIMIT -1 OFFSET ?", chat_id, MAX_STEPS
            )
            for (old_id,) in too_old:
                connection.execute("DELETE FROM messages WHERE set_aside = ?", (old_id,))
                connection.execute("DELETE FROM steps WHERE id = ?", (old_id,))
        return step_id


def stale() -> BadRequestError:
    """Return what a tab is told that would overwrite newer text."""
    return BadRequestError("This message was changed elsewhere in the meantime.", "Load the page again to see it.")


def _below(message_id: int, nodes: dict[int, Node]) -> Iterator[int]:
    """Yield everything that follows a message; parents have lower ids than their children."""
    found = {message_id}
    for node in nodes.values():
        if node.parent_id in found:
            found.add(node.id)
            yield node.id


_PATH = """
    WITH RECURSIVE up (id, parent_id, depth) AS (
        SELECT id, parent_id, 0 FROM messages WHERE id = ?
        UNION ALL
        SELECT messages.id, messages.parent_id, up.depth + 1 FROM messages JOIN up ON messages.id = up.parent_id
    )
    SELECT id FROM up ORDER BY depth DESC"""
_SELECT_STEP = "SELECT id, kind, leaf_id, message_id, text, token_ids, layout FROM steps"
