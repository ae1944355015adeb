"""One event stream a tab: what changes in the chat on the screen, and in the list, told as it happens.

A `Follower` decides what is news for a tab; `app.broadcast` asks all of them at a steady pace.
"""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from app.broadcast import Broadcast
from app.client_address import client_address
from app.following import Follower
from app.request_values import Number
from app.service import Service
from app.shared_news import SharedNews
from app.transcripts import Transcripts

_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def stream_routes(service: Service, transcripts: Transcripts, stopping: Callable[[], bool]) -> APIRouter:
    """Return the route of the streams, which end once `stopping()` is true."""
    router = APIRouter()
    news = SharedNews()
    broadcast = Broadcast(news, stopping)

    @router.get("/stream")
    async def stream(
        request: Request,
        chat: Number | None = None,
        message: Number | None = None,
        block: Number = 0,
        sequence: Number = 0,
        chars: Number = 0,
        changes: Number | None = None,
    ) -> StreamingResponse:
        address = client_address(request)
        broadcast.enter(address)
        follower = Follower(
            service,
            transcripts,
            chat,
            message_id=message,
            block=block,
            sequence=sequence,
            num_chars=chars,
            num_changes=changes,
            news=news,
        )
        return _EventStream(broadcast, follower, address)

    return router


class _EventStream(StreamingResponse):
    """A stream that is counted for its client until it ends, however it does."""

    def __init__(self, broadcast: Broadcast, follower: Follower, address: str) -> None:
        super().__init__(broadcast.events(follower), media_type="text/event-stream", headers=_HEADERS)
        self._broadcast = broadcast
        self._address = address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._broadcast.leave(self._address)
