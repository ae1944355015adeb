"""Saved states of backends, one file a chat: what a restart would otherwise have to read again.

The worker writes them (`StateKeeper`), every few minutes and at the end of a turn, and takes them up when a chat goes
on that it has not in memory. They are a convenience: one that cannot be written or read is left out, and the text is
read again. The application keeps their total within a budget (`SavedStates`).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from backends.contract import Backend, KeepsState
from backends.errors import RingsideError

EVERY_S = 180.0
FILE_BUDGET_BYTES = 2**30
TOTAL_BUDGET_BYTES = 4 * 2**30
LEAST_TOKENS = 256
"""Shorter texts are read again in a moment."""

_SUFFIX = ".state"
_MOST_OF_TIME = 0.01

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StatePlan:
    """Where and how the state of a chat is kept.

    Attributes:
        path: of the file.
        every_s: seconds between two writings in mid-reply; more where writing takes long.
        budget_bytes: larger states are not kept.
        least_tokens: states of fewer are not kept.
    """

    path: str
    every_s: float = EVERY_S
    budget_bytes: int = FILE_BUDGET_BYTES
    least_tokens: int = LEAST_TOKENS


class SavedStates:
    """The files of all chats.

    Args:
        folder: made when it is needed; nothing else is in it.
        budget_bytes: of all files; the longest unused go first.
    """

    def __init__(self, folder: Path, budget_bytes: int = TOTAL_BUDGET_BYTES) -> None:
        self._folder = folder
        self._budget_bytes = budget_bytes

    def plan(self, chat_id: int) -> StatePlan:
        """Return where the state of a chat is kept, and make room for it."""
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._make_room()
        return StatePlan(str(self._path(chat_id)))

    def keep_only(self, chat_ids: Iterable[int]) -> None:
        """Delete the states of all other chats, such as one that was deleted while it was being written."""
        wanted = {self._path(chat_id) for chat_id in chat_ids}
        with suppress(OSError):
            for path in set(self._folder.iterdir()) - wanted:
                path.unlink(missing_ok=True)

    def forget(self, chat_id: int) -> None:
        """Delete the state of a chat; none is fine."""
        with suppress(OSError):
            self._path(chat_id).unlink(missing_ok=True)

    def _path(self, chat_id: int) -> Path:
        return self._folder / f"chat-{chat_id}{_SUFFIX}"

    def _make_room(self) -> None:
        files = sorted(self._folder.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
        total_bytes = 0
        for path in files:
            total_bytes += path.stat().st_size
            if total_bytes > self._budget_bytes or path.suffix != _SUFFIX:  # a writing that a crash cut short
                path.unlink(missing_ok=True)


class StateKeeper:
    """The worker's side: saves what one backend holds, for the chat it is writing in.

    Args:
        clock: seconds.
    """

    def __init__(self, backend: Backend, clock: Callable[[], float] = time.monotonic) -> None:
        self._backend = backend if isinstance(backend, KeepsState) else None
        self._memory = backend.memory
        self._clock = clock
        self._in_memory = ""
        self._plan: StatePlan | None = None
        self._next_s = 0.0

    def begin(self, plan: StatePlan | None) -> None:
        """Take up the saved state of a chat, unless the backend still has it in memory."""
        self._plan = plan
        if plan is None or self._backend is None:
            self._in_memory = ""
            return
        self._next_s = self._clock() + plan.every_s
        if plan.path == self._in_memory:
            return
        self._in_memory = plan.path
        if os.path.exists(plan.path):
            try:
                logger.info("took up the state after %d tokens", self._backend.load_state(plan.path))
            except RingsideError as error:
                logger.info("%s", error)

    def save_if_due(self) -> None:
        """Save, if it has been long enough; called between tokens."""
        if self._plan is not None and self._backend is not None and self._clock() >= self._next_s:
            self.save()

    def save(self) -> None:
        """Write the state beside its place and put it there in one step."""
        plan = self._plan
        if plan is None or self._backend is None or self._memory().position_tokens < plan.least_tokens:
            return
        started_s = self._clock()
        unfinished = f"{plan.path}.{os.getpid()}"
        try:
            if self._backend.save_state(unfinished, plan.budget_bytes):
                _bring_to_disk(unfinished)
                os.replace(unfinished, plan.path)
        except (OSError, RingsideError) as error:
            logger.info("the state is not kept: %s", error)
            with suppress(OSError):
                os.unlink(unfinished)
        took_s = self._clock() - started_s
        self._next_s = self._clock() + max(plan.every_s, took_s / _MOST_OF_TIME)


def _bring_to_disk(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
