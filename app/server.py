"""One HTTP server on loopback for the page and its routes, and the doors it keeps shut.

The page can start programs' worth of work on this machine, so a web page elsewhere must not be able to drive it: only
requests that name this machine as their host and come from this page itself (or from no page) are answered.
"""

from __future__ import annotations

import errno
import socket
import threading
import webbrowser
from collections.abc import Callable
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.routes import add_routes
from app.service import Service
from backends.errors import BadRequestError

HOST = "127.0.0.1"
_NUM_PORTS_TRIED = 20
_LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
_SHUTDOWN_S = 2

# Gradio compiles templates in the browser and writes styles inline; everything else stays on this machine.
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; font-src 'self' data:; media-src 'self' data: blob:; worker-src 'self' blob:; "
        "connect-src 'self' blob: data:; frame-ancestors 'none'; base-uri 'self'; form-action 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class LocalOnly:
    """ASGI middleware: refuses requests that name another host or come from another site, and sets the headers."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        refusal = refused(Headers(scope=scope), scope.get("method", "GET"), scope["path"])
        if refusal:
            await JSONResponse({"message": refusal, "hint": ""}, status_code=403)(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message["headers"],
                    *((name.lower().encode(), value.encode()) for name, value in _HEADERS.items()),
                ]
            await send(message)

        await self.app(scope, receive, send_with_headers)


def refused(headers: Headers, method: str, path: str) -> str:
    """Return why a request is refused, in one sentence; empty if it is fine.

    The host guards against a foreign name that was made to point here (DNS rebinding), the origin and the browser's
    own "Sec-Fetch-Site" against pages elsewhere, and the content type against forms that need no permission.
    """
    host = headers.get("host", "")
    if urlsplit(f"//{host}").hostname not in _LOOPBACK_NAMES:
        return f"Requests for the host {host!r} are refused; open http://{HOST} instead."
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != host:
        return f"Requests from {origin} are refused; only the page itself may ask."
    is_page = method == "GET" and not path.startswith("/app/")
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not is_page:
        return "Requests from other sites are refused; only the page itself may ask."
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    if path.startswith("/app/") and has_body and not headers.get("content-type", "").startswith("application/json"):
        return "Only JSON is taken here."
    return ""


def build_app(service: Service, stopping: Callable[[], bool] = lambda: False) -> FastAPI:
    """Return the whole application: middleware, routes under /app/, the page at /."""
    from app.ui.page import mount_page  # imports gradio, which takes seconds; tests of the routes go without

    return mount_page(build_routes(service, stopping), service)


def build_routes(service: Service, stopping: Callable[[], bool] = lambda: False) -> FastAPI:
    """Return the application without its page."""
    app = FastAPI(title="Ringside", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(LocalOnly)
    add_routes(app, service, stopping)
    return app


def bind(port: int, *, only_this: bool = False) -> socket.socket:
    """Return a listening socket on loopback: on the port, or on the next one that is free.

    The port stays the same from start to start where it can: browsers keep drafts by address. Holding the socket until
    the server takes it leaves no gap in which another program could take the port.

    Args:
        only_this: for a port that a person asked for.

    Raises:
        BadRequestError: the port is taken or not allowed and `only_this` says so, or no port is free.
    """
    try:
        return _listening(port)
    except OSError as error:
        if only_this:
            reason = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
            raise BadRequestError(f"Port {port} {reason}.", "Choose another one with --port.") from error
    for candidate in (*range(port + 1, port + _NUM_PORTS_TRIED), 0):
        try:
            return _listening(candidate)
        except OSError:
            continue
    raise BadRequestError("No port on this machine is free.", "Close some programs and try again.")


def address(bound: socket.socket) -> str:
    """Return the page's address."""
    return f"http://{HOST}:{bound.getsockname()[1]}/"


def serve(service: Service, bound: socket.socket, *, open_browser: bool = True) -> None:
    """Serve the page until SIGINT or SIGTERM; the service is left open for the caller to close.

    Args:
        bound: from `bind`; closed at the end.
        open_browser: once the server answers.
    """
    server = _Server(service)
    if open_browser:
        server.when_started(lambda: webbrowser.open(address(bound)))
    server.run(sockets=[bound])


class _Server(uvicorn.Server):
    """uvicorn, with a call once it answers and event streams that end when it is told to stop."""

    def __init__(self, service: Service) -> None:
        app = build_app(service, stopping=lambda: self.should_exit)
        super().__init__(
            uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=_SHUTDOWN_S)
        )
        self._when_started: Callable[[], object] | None = None

    def when_started(self, call: Callable[[], object]) -> None:
        self._when_started = call

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._when_started is not None:
            threading.Thread(target=self._when_started, daemon=True).start()  # browsers can take seconds to come back


def _listening(port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((HOST, port))
        bound.listen(128)
    except OSError:
        bound.close()
        raise
    return bound
