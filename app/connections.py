"""Connections that ask for nothing: how long one may take to bring a request, and how many there may be.

uvicorn waits for ever for the first request of a connection, for the rest of one, and for a body that nobody reads.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 500
"""At once, those of event streams included; well below the files that a process may open by default."""

REQUEST_S = 20.0
"""From the connection, or the end of the answer before, to the end of a request's headers."""


class TimedProtocol(H11Protocol):
    """HTTP for one connection, which is closed if it does not come to a request in time, or is one too many."""

    _closing_soon: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.close()
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave_alone()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Let the time run while no request is answered; `app.request_limits` sees to the bodies of those that are."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._leave_alone()
        elif self._closing_soon is None:
            self._closing_soon = self.loop.call_later(REQUEST_S, self.transport.close)

    def _leave_alone(self) -> None:
        if self._closing_soon is not None:
            self._closing_soon.cancel()
            self._closing_soon = None
