"""Requests that Gradio's own routes cannot make sense of: told so, instead of a 500 without a word.

Gradio looks at little of what it is sent. Its page never sends such requests, and the handlers behind it tell their own
errors, so what fails here is the request.
"""

from __future__ import annotations

import logging

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_log = logging.getLogger(__name__)

_ANSWER = JSONResponse({"message": "This request was not understood.", "hint": "Load the page again."}, status_code=400)


class GradioErrors:
    """ASGI middleware: answers what Gradio's routes fail at as a request that was wrong."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith("/app/"):
            await self.app(scope, receive, send)
            return
        has_begun = has_failed = False

        async def send_unless_failed(message: Message) -> None:
            nonlocal has_begun, has_failed
            if message["type"] == "http.response.start":
                has_failed = message["status"] >= 500
                has_begun = not has_failed
            if not has_failed:
                await send(message)

        try:
            await self.app(scope, receive, send_unless_failed)
        except Exception as error:  # any at all: which ones Gradio lets through is not told anywhere
            if has_begun:
                raise
            has_failed = True
            _log.warning("Gradio could not answer %s", scope["path"][:200], exc_info=error)
        if has_failed:
            await _ANSWER(scope, receive, send)
