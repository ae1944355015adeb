"""Prompts of replies exactly as they went to the model: ids and the piece of text each stands for, one file a reply.

They are for looking at, not for going on: one that cannot be written or read is left out. The total is kept within a
budget, the oldest go first, and they go with their chat.
"""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

TOTAL_BUDGET_BYTES = 256 * 2**20

_SUFFIX = ".prompt"


@dataclass(frozen=True)
class FedPrompt:
    """What a model was given to go on from.

    Attributes:
        token_ids: all of them in order, those that the cache already held included.
        pieces: bytes of each different id; empty where the backend does not say.
    """

    token_ids: tuple[int, ...]
    pieces: dict[int, bytes]

    def piece(self, token_id: int) -> str:
        """Return what an id stands for; bytes that are no whole character are spelled as \\xNN."""
        return self.pieces.get(token_id, b"").decode("utf-8", "backslashreplace")

    @property
    def text(self) -> str:
        """All pieces, one after the other."""
        return b"".join(self.pieces.get(token_id, b"") for token_id in self.token_ids).decode("utf-8", "replace")

    def pack(self) -> bytes:
        """Return the prompt as compressed JSON."""
        pieces = {token_id: piece.decode("latin-1") for token_id, piece in self.pieces.items()}
        return zlib.compress(json.dumps({"ids": self.token_ids, "pieces": pieces}).encode(), 1)

    @classmethod
    def unpack(cls, packed: bytes) -> FedPrompt:
        """Read what `pack` wrote.

        Raises:
            ValueError: the bytes are no prompt.
        """
        try:
            content = json.loads(zlib.decompress(packed))
            pieces = {int(token_id): piece.encode("latin-1") for token_id, piece in content["pieces"].items()}
            return cls(tuple(content["ids"]), pieces)
        except (zlib.error, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{len(packed)} bytes are no prompt: {error}") from error


class FedPrompts:
    """The files of all chats, a folder for each.

    Args:
        folder: made when it is needed; nothing else is in it.
        budget_bytes: of all files; the oldest go first.
    """

    def __init__(self, folder: Path, budget_bytes: int = TOTAL_BUDGET_BYTES) -> None:
        self._folder = folder
        self._budget_bytes = budget_bytes

    def keep(self, chat_id: int, message_id: int, prompt: FedPrompt) -> None:
        """Keep the prompt of a reply, in place of the one before."""
        path = self._path(chat_id, message_id)
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(prompt.pack())
            self._make_room()

    def prompt(self, chat_id: int, message_id: int) -> FedPrompt | None:
        """Return the prompt of a reply; None if it is not kept."""
        try:
            return FedPrompt.unpack(self._path(chat_id, message_id).read_bytes())
        except (OSError, ValueError):
            return None

    def keep_only(self, chat_ids: Iterable[int]) -> None:
        """Delete the prompts of all other chats."""
        wanted = {self._chat_folder(chat_id) for chat_id in chat_ids}
        with suppress(OSError):
            for path in set(self._folder.iterdir()) - wanted:
                shutil.rmtree(path, ignore_errors=True)

    def forget(self, chat_id: int) -> None:
        """Delete the prompts of a chat; none is fine."""
        shutil.rmtree(self._chat_folder(chat_id), ignore_errors=True)

    def _make_room(self) -> None:
        sizes = [(path.stat(), path) for path in self._folder.glob(f"*/*{_SUFFIX}")]
        total_bytes = 0
        for seen, path in sorted(sizes, key=lambda each: each[0].st_mtime_ns, reverse=True):
            total_bytes += seen.st_size
            if total_bytes > self._budget_bytes:
                path.unlink(missing_ok=True)

    def _chat_folder(self, chat_id: int) -> Path:
        return self._folder / f"chat-{chat_id}"

    def _path(self, chat_id: int, message_id: int) -> Path:
        return self._chat_folder(chat_id) / f"{message_id}{_SUFFIX}"
