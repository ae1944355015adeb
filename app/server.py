"""One HTTP server for the page and its routes, on loopback unless another address is asked for.

Who may ask is decided in `app.doors`.
"""

from __future__ import annotations

import errno
import socket
import threading
import webbrowser
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

from app.doors import LOCAL_ONLY, LOOPBACK, Doors, Guard
from app.routes import add_routes
from app.service import Service
from backends.errors import BadRequestError

_NUM_PORTS_TRIED = 20
_ALL_ADDRESSES = {"0.0.0.0": LOOPBACK, "::": "::1"}
_SHUTDOWN_S = 2


def build_app(service: Service, stopping: Callable[[], bool] = lambda: False, doors: Doors = LOCAL_ONLY) -> FastAPI:
    """Return the whole application: middleware, routes under /app/, the page at /."""
    from app.ui.page import mount_page  # imports gradio, which takes seconds; tests of the routes go without

    return mount_page(build_routes(service, stopping, doors), service)


def build_routes(service: Service, stopping: Callable[[], bool] = lambda: False, doors: Doors = LOCAL_ONLY) -> FastAPI:
    """Return the application without its page."""
    app = FastAPI(title="Ringside", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Guard, doors=doors)
    add_routes(app, service, stopping)
    return app


def bind(port: int, *, host: str = LOOPBACK, only_this: bool = False) -> socket.socket:
    """Return a listening socket: on the port, or on the next one that is free.

    The port stays the same from start to start where it can: browsers keep drafts by address. Holding the socket until
    the server takes it leaves no gap in which another program could take the port.

    Args:
        host: the address to listen on; that of loopback by default.
        only_this: for a port that a person asked for.

    Raises:
        BadRequestError: the port is taken or not allowed and `only_this` says so, no port is free, or the address is
            not one of this machine.
    """
    try:
        return _listening(host, port)
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
            raise BadRequestError(
                f"{host} is no address of this machine.", "Give --host one, or leave it out."
            ) from error
        if only_this:
            reason = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
            raise BadRequestError(f"Port {port} {reason}.", "Choose another one with --port.") from error
    for candidate in (*range(port + 1, port + _NUM_PORTS_TRIED), 0):
        try:
            return _listening(host, candidate)
        except OSError:
            continue
    raise BadRequestError("No port on this machine is free.", "Close some programs and try again.")


def address(bound: socket.socket) -> str:
    """Return the page's address as this machine reaches it."""
    host, port = bound.getsockname()[:2]
    host = _ALL_ADDRESSES.get(host, host)
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def serve(service: Service, bound: socket.socket, *, open_browser: bool = True, doors: Doors = LOCAL_ONLY) -> None:
    """Serve the page until SIGINT or SIGTERM; the service is left open for the caller to close.

    Args:
        bound: from `bind`; closed at the end.
        open_browser: once the server answers.
        doors: who may ask.
    """
    server = _Server(service, doors)
    if open_browser:
        server.when_started(lambda: webbrowser.open(address(bound)))
    server.run(sockets=[bound])


class _Server(uvicorn.Server):
    """uvicorn, with a call once it answers and event streams that end when it is told to stop."""

    def __init__(self, service: Service, doors: Doors) -> None:
        app = build_app(service, stopping=lambda: self.should_exit, doors=doors)
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


def _listening(host: str, port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(128)
    except OSError:
        bound.close()
        raise
    return bound
