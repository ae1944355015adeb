"""The page of a process that has other things to do: it is served as soon as somebody asks for it, and not before."""

from __future__ import annotations

import select
import socket
import threading
from typing import TYPE_CHECKING

from app.service import Service

if TYPE_CHECKING:
    from app.server import PageServer

_TICK_S = 0.25


class ServedWhenAsked:
    """A page at an address where somebody may come by: a browser, or another command that has work or wants to look on.

    Most replies from the command line interest nobody else, and the web framework takes seconds and much memory.

    Args:
        bound: from `app.listening.bind`; closed at the end.
    """

    def __init__(self, service: Service, bound: socket.socket) -> None:
        self._service = service
        self._bound = bound
        self._closing = threading.Event()
        self._server: PageServer | None = None
        self._thread = threading.Thread(target=self._wait_and_serve, name="page", daemon=True)
        self._thread.start()

    @property
    def is_looked_at(self) -> bool:
        """Whether a tab is open, or anybody else is connected."""
        return self._server is not None and self._server.num_connections > 0

    def close(self) -> None:
        """Serve no longer."""
        self._closing.set()
        if self._server is not None:
            self._server.should_exit = True
        self._thread.join()
        self._bound.close()

    def _wait_and_serve(self) -> None:
        while not self._closing.is_set():
            if select.select([self._bound], [], [], _TICK_S)[0]:
                self._serve()
                return

    def _serve(self) -> None:
        from app.server import PageServer

        self._server = PageServer(self._service)
        if not self._closing.is_set():
            self._server.run(sockets=[self._bound])
