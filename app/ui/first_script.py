"""A script in front of Gradio's own: what `head=` gives is added by Gradio's modules, once they have run."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HEAD = b"<head>"


class FirstScript:
    """ASGI middleware: puts a classic script first into the head of the page at /, before any module is run.

    Args:
        source: address of the script.
    """

    def __init__(self, app: ASGIApp, source: str) -> None:
        self.app = app
        self._head = _HEAD + f'<script src="{source}"></script>'.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != "/":
            await self.app(scope, receive, send)
            return

        async def send_with_script(message: Message) -> None:
            if message["type"] == "http.response.start":
                del MutableHeaders(raw=message["headers"])["content-length"]  # sent in chunks of its own length
            elif message["type"] == "http.response.body":
                message["body"] = message.get("body", b"").replace(_HEAD, self._head, 1)
            await send(message)

        headers = [(name, value) for name, value in scope["headers"] if name != b"accept-encoding"]  # to be readable
        await self.app({**scope, "headers": headers}, receive, send_with_script)
