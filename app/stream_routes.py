"""One event stream a tab: what changes in the chat on the screen, and in the list, told as it happens.

A `Follower` decides what is news; here it is asked for news at a steady pace, and the answers are encoded.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable

from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from app.following import Event, Follower
from app.request_values import Number
from app.service import Service
from app.transcripts import Transcripts

TICK_S = 0.2
"""Pause between looks at a reply being written."""

IDLE_TICK_S = 0.5
PING_S = 15.0
_STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def stream_routes(service: Service, transcripts: Transcripts, stopping: Callable[[], bool]) -> APIRouter:
    """Return the route of the streams, which end once `stopping()` is true."""
    router = APIRouter()

    @router.get("/stream")
    async def stream(
        chat: Number | None = None,
        message: Number | None = None,
        block: Number = 0,
        sequence: Number = 0,
        chars: Number = 0,
        changes: Number | None = None,
    ) -> StreamingResponse:
        follower = Follower(
            service,
            transcripts,
            chat,
            message_id=message,
            block=block,
            sequence=sequence,
            num_chars=chars,
            num_changes=changes,
        )
        return StreamingResponse(_sent(follower, stopping), media_type="text/event-stream", headers=_STREAM_HEADERS)

    return router


async def _sent(follower: Follower, stopping: Callable[[], bool]) -> AsyncIterator[str]:
    """Poll and encode until the tab goes (the server cancels this) or the application stops.

    A tab that reads slowly holds back the next poll and then gets one larger step: nothing piles up.
    """
    quiet_s = 0.0
    while not stopping():
        events = await run_in_threadpool(follower.poll)
        for event in events:
            yield _encoded(event)
        pause_s = TICK_S if follower.busy else IDLE_TICK_S
        quiet_s = 0.0 if events else quiet_s + pause_s
        if quiet_s >= PING_S:
            quiet_s = 0.0
            yield ": ping\n\n"
        await asyncio.sleep(pause_s)


def _encoded(event: Event) -> str:
    return f"event: {event.name}\ndata: {json.dumps(event.data, ensure_ascii=False, separators=(',', ':'))}\n\n"
