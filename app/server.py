"""One HTTP server for the page and its routes, on loopback unless another address is asked for.

Who may ask is decided in `app.doors`.
"""

from __future__ import annotations

import socket
import threading
import webbrowser
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from app.connections import TimedProtocol
from app.doors import LOCAL_ONLY, Doors, Guard
from app.listening import address as address
from app.listening import bind as bind
from app.request_limits import RequestLimits
from app.routes import add_routes
from app.service import Service

_SHUTDOWN_S = 2


def build_app(service: Service, stopping: Callable[[], bool] = lambda: False, doors: Doors = LOCAL_ONLY) -> FastAPI:
    """Return the whole application: middleware, routes under /app/, the page at /."""
    from app.ui.page import mount_page  # imports gradio, which takes seconds; tests of the routes go without

    return mount_page(build_routes(service, stopping, doors), service)


def build_routes(service: Service, stopping: Callable[[], bool] = lambda: False, doors: Doors = LOCAL_ONLY) -> FastAPI:
    """Return the application without its page."""
    app = FastAPI(title="Ringside", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(RequestLimits)  # behind the guard: whoever is not let in is not listened to
    app.add_middleware(Guard, doors=doors)
    if doors.proxies:
        app.add_middleware(ProxyHeadersMiddleware, trusted_hosts=list(doors.proxies))
    add_routes(app, service, stopping, doors.login)
    return app


def serve(service: Service, bound: socket.socket, *, open_browser: bool = True, doors: Doors = LOCAL_ONLY) -> None:
    """Serve the page until SIGINT or SIGTERM; the service is left open for the caller to close.

    Args:
        bound: from `bind`; closed at the end.
        open_browser: once the server answers.
        doors: who may ask.
    """
    server = PageServer(service, doors)
    if open_browser:
        server.when_started(lambda: webbrowser.open(address(bound)))
    server.run(sockets=[bound])


def config_for(app: FastAPI, timeout_graceful_shutdown: int) -> uvicorn.Config:
    """Return how an application is served."""
    return uvicorn.Config(
        app,
        http=TimedProtocol,
        ws="none",
        log_level="warning",
        access_log=False,
        proxy_headers=False,  # who is behind a proxy is told by `app.doors`, which knows what proxy is trusted
        timeout_graceful_shutdown=timeout_graceful_shutdown,
    )


class PageServer(uvicorn.Server):
    """uvicorn, with a call once it answers and event streams that end when it is told to stop."""

    def __init__(self, service: Service, doors: Doors = LOCAL_ONLY) -> None:
        app = build_app(service, stopping=lambda: self.should_exit, doors=doors)
        super().__init__(config_for(app, timeout_graceful_shutdown=_SHUTDOWN_S))
        self._when_started: Callable[[], object] | None = None

    @property
    def num_connections(self) -> int:
        """How many there are: tabs that look on, others that have just asked."""
        return len(self.server_state.connections)

    def when_started(self, call: Callable[[], object]) -> None:
        self._when_started = call

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._when_started is not None:
            threading.Thread(target=self._when_started, daemon=True).start()  # browsers can take seconds to come back
