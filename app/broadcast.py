"""One loop that looks for news on behalf of all open tabs, and hands each what it has not been told yet.

Tabs that are as far as each other are told the same, worked out and encoded once, so another tab costs little more than
the bytes it is sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable

from starlette.concurrency import run_in_threadpool

from app.following import Follower
from app.request_limits import RequestRefusedError
from app.shared_news import SharedNews

TICK_S = 0.2
"""Pause between looks at a reply being written."""

IDLE_TICK_S = 0.5
PING_S = 15.0

MAX_STREAMS_PER_ADDRESS = 48
"""Browsers open six at most, and hidden tabs give theirs back."""

_log = logging.getLogger(__name__)


class _Tab:
    """One stream: what it is still to be sent. A tab that reads slowly gets larger steps, and nothing piles up."""

    def __init__(self, follower: Follower) -> None:
        self.follower = follower
        self.pending: list[str] = []
        self.changed = asyncio.Event()
        self.has_ended = False


class Broadcast:
    """The event streams of one application.

    Args:
        news: that the followers share.
        stopping: streams end once it is true.
    """

    def __init__(self, news: SharedNews, stopping: Callable[[], bool]) -> None:
        self._news = news
        self._stopping = stopping
        self._tabs: set[_Tab] = set()
        self._num_streams: Counter[str] = Counter()
        self._loop: asyncio.Task[None] | None = None

    def enter(self, address: str) -> None:
        """Count a stream for an address; `leave` it at its end.

        Raises:
            RequestRefusedError: the address has as many as it may.
        """
        if self._num_streams[address] >= MAX_STREAMS_PER_ADDRESS:
            raise RequestRefusedError(
                429,
                f"{MAX_STREAMS_PER_ADDRESS} tabs at this address follow Ringside already, and no more can.",
                "Close some; this one goes on by itself.",
            )
        self._num_streams[address] += 1

    def leave(self, address: str) -> None:
        """Make room for another stream of an address."""
        self._num_streams[address] -= 1
        if self._num_streams[address] <= 0:
            del self._num_streams[address]

    async def events(self, follower: Follower) -> AsyncIterator[str]:
        """Yield what a tab is to be told, encoded, until it goes (the server cancels this) or the application stops."""
        tab = _Tab(follower)
        if not self._tabs:  # nobody has looked since the last tab went
            self._news.next_look()
        await run_in_threadpool(_look_for, [tab])  # what is there already comes at once
        self._tabs.add(tab)
        self._ensure_loop()
        try:
            while not (tab.has_ended or self._stopping()):
                told, tab.pending = "".join(tab.pending), []
                if told:
                    yield told
                elif not await _changes(tab.changed):
                    yield ": ping\n\n"
        finally:
            self._tabs.discard(tab)

    def _ensure_loop(self) -> None:
        if self._loop is None or self._loop.done():
            self._loop = asyncio.create_task(self._look_and_tell())

    async def _look_and_tell(self) -> None:
        """Look for news as long as there are tabs."""
        while self._tabs and not self._stopping():
            is_busy = any(tab.follower.busy for tab in self._tabs)
            await asyncio.sleep(TICK_S if is_busy else IDLE_TICK_S)
            self._news.next_look()
            free = [tab for tab in self._tabs if not tab.pending]
            await run_in_threadpool(_look_for, free)
            for tab in free:
                if tab.pending or tab.has_ended:
                    tab.changed.set()
        for tab in self._tabs:
            tab.changed.set()


def _look_for(tabs: Iterable[_Tab]) -> None:
    for tab in tabs:
        try:
            tab.pending = [event.encoded for event in tab.follower.poll()]
        except Exception:  # whatever it is: the other tabs go on, and the page of this one asks again
            _log.exception("A tab could not be told what is new")
            tab.has_ended = True


async def _changes(changed: asyncio.Event) -> bool:
    """Wait for news; False if there are none for so long that the connection should be seen to live."""
    try:
        await asyncio.wait_for(changed.wait(), PING_S)
    except asyncio.TimeoutError:
        return False
    changed.clear()
    return True
