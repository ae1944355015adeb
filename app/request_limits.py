"""Limits on what a request may bring, looked at before anything is parsed: bytes, the time they take, and nesting.

An application behind `RequestLimits` is called with requests that have arrived whole, so that half a request does
nothing. Connections that send no request at all are ended by `app.connections`.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.figures import byte_count
from backends.errors import RingsideError

MAX_DEPTH = 64
"""Lists and objects inside one another; Python's own readers and writers of JSON give up at some hundreds."""

MAX_HELD_BYTES = 256 << 20
"""Bodies of all requests together that are held in memory."""

_HEARD_OUT_S = 10.0
_READ_IN_PASSING_BYTES = 50_000
_PUNCTUATION = re.compile(rb'["\[\]{}]')
_END_OF_TEXT = re.compile(rb'"|\\.', re.DOTALL)


@dataclass(frozen=True)
class BodyLimit:
    """Largest and slowest body of one kind of request.

    Attributes:
        max_bytes: of the body as sent.
        max_s: from its first byte to its last.
        is_passed_on: the route takes it piece by piece and does nothing before it has the last one.
    """

    max_bytes: int
    max_s: float
    is_passed_on: bool = False


PASSWORD = BodyLimit(4 << 10, max_s=10)
SMALL = BodyLimit(1 << 20, max_s=30)
TEXT = BodyLimit(32 << 20, max_s=120)
FILE = BodyLimit(256 << 20, max_s=900, is_passed_on=True)

_LIMITS = (
    (re.compile(r"/app/login"), PASSWORD),
    (re.compile(r"/app/import"), FILE),
    (re.compile(r"/app/(chats/[^/]+/(send|edit)|messages/[^/]+(/ask)?|notebooks/[^/]+|runs)"), TEXT),
)


class RequestRefusedError(RingsideError):
    """A body over a limit.

    Args:
        status: of the answer.
    """

    def __init__(self, status: int, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.status = status

    def response(self) -> JSONResponse:
        """Return the answer."""
        return JSONResponse({"message": self.message, "hint": self.hint}, status_code=self.status)


def body_limit(path: str) -> BodyLimit:
    """Return the limit of a path: that of small bodies where no other is set."""
    return next((limit for pattern, limit in _LIMITS if pattern.fullmatch(path)), SMALL)


class RequestLimits:
    """ASGI middleware: answers for the application where a body is too large, too slow, or nested too deeply."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._num_held_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        declared = _declared_bytes(scope)
        if declared == 0:
            await self.app(scope, receive, send)
            return
        limit = body_limit(scope["path"])
        try:
            if declared is not None and declared > limit.max_bytes:
                await _heard_out(receive)
                raise _too_large(limit)
            incoming = _limited(receive, limit)
            if limit.is_passed_on:
                await self.app(scope, incoming, send)
            else:
                await self._call_with_whole_body(scope, incoming, send)
        except RequestRefusedError as error:
            await error.response()(scope, receive, send)

    async def _call_with_whole_body(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = bytearray()
        try:
            if await self._collect(receive, body):
                await _require_flat(body)
                await self.app(scope, _replayed(bytes(body), receive), send)
        finally:
            self._num_held_bytes -= len(body)

    async def _collect(self, receive: Receive, body: bytearray) -> bool:
        """Add what arrives to `body`; False if the client goes before all of it is here."""
        while (message := await receive())["type"] == "http.request":
            part: bytes = message.get("body", b"")
            if self._num_held_bytes + len(part) > MAX_HELD_BYTES:
                raise RequestRefusedError(
                    429, "Ringside is busy with other large requests.", "Try again in a moment; nothing was changed."
                )
            body += part
            self._num_held_bytes += len(part)
            if not message.get("more_body", False):
                return True
        return False


def is_deeper_than(body: bytes | bytearray, depth: int) -> bool:
    """Tell whether JSON nests lists and objects deeper than this; brackets inside texts do not count."""
    if body.count(b"[") + body.count(b"{") <= depth:
        return False
    place = now = 0
    while (found := _PUNCTUATION.search(body, place)) is not None:
        place = found.end()
        match found.group():
            case b"[" | b"{":
                now += 1
                if now > depth:
                    return True
            case b"]" | b"}":
                now -= 1
            case _:
                place = _end_of_text(body, place)
    return False


def _end_of_text(body: bytes | bytearray, place: int) -> int:
    while (found := _END_OF_TEXT.search(body, place)) is not None:
        place = found.end()
        if found.group() == b'"':
            return place
    return len(body)


async def _require_flat(body: bytearray) -> None:
    if len(body) <= _READ_IN_PASSING_BYTES:
        is_deep = is_deeper_than(body, MAX_DEPTH)
    else:
        is_deep = await run_in_threadpool(is_deeper_than, body, MAX_DEPTH)
    if is_deep:
        raise RequestRefusedError(
            400, f"The request nests lists and objects more than {MAX_DEPTH} deep.", "Send it flatter."
        )


def _declared_bytes(scope: Scope) -> int | None:
    """Return the size of the body as its headers tell it; None if they leave it open, 0 for no body."""
    if scope["type"] != "http":
        return 0
    headers = Headers(scope=scope)
    if "transfer-encoding" in headers:
        return None
    given = headers.get("content-length", "0")
    return int(given) if given.isascii() and given.isdigit() else None


def _limited(receive: Receive, limit: BodyLimit) -> Receive:
    """Return `receive` with the limits of a body on it; what comes after the body is none of theirs."""
    loop = asyncio.get_running_loop()
    ends_at_s = loop.time() + limit.max_s
    num_bytes, is_whole = 0, False

    async def receive_within_limits() -> Message:
        nonlocal num_bytes, is_whole
        if is_whole:
            return await receive()
        try:
            message = await asyncio.wait_for(receive(), max(ends_at_s - loop.time(), 0.0))
        except asyncio.TimeoutError:
            raise RequestRefusedError(
                408,
                f"The request did not arrive within {limit.max_s:.0f} s; nothing was changed.",
                "Try again over a faster connection.",
            ) from None
        num_bytes += len(message.get("body", b""))
        is_whole = not message.get("more_body", False)
        if num_bytes > limit.max_bytes:
            if not is_whole:
                await _heard_out(receive)
            raise _too_large(limit)
        return message

    return receive_within_limits


async def _heard_out(receive: Receive) -> None:
    """Throw away what a client still sends: browsers read no answer before they have sent all."""

    async def discard() -> None:
        while (await receive()).get("more_body", False):
            pass

    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(discard(), _HEARD_OUT_S)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives a body in one message first."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return messages.pop() if messages else await receive()

    return receive_again


def _too_large(limit: BodyLimit) -> RequestRefusedError:
    return RequestRefusedError(
        413,
        f"The request is larger than the {byte_count(limit.max_bytes)} taken here; nothing was changed.",
        "Split it first.",
    )
