"""The real server on a real socket: tabs that vanish in mid-stream, and an end that waits for nobody."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
import uvicorn

from app.server import bind, build_routes
from app.service import Service
from tests.app.conftest import EchoService


class Running:
    """The routes behind uvicorn in a thread."""

    def __init__(self, service: Service) -> None:
        self.bound: socket.socket = bind(0)
        self.url = f"http://127.0.0.1:{self.bound.getsockname()[1]}"
        app = build_routes(service, stopping=lambda: self.server.should_exit)
        self.server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=5))
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.bound]})

    def stop(self) -> float:
        """Stop; return the seconds that took."""
        started = time.monotonic()
        self.server.should_exit = True
        self.thread.join(30)
        assert not self.thread.is_alive()
        return time.monotonic() - started


@contextmanager
def running(service: Service) -> Iterator[Running]:
    server = Running(service)
    server.thread.start()
    with httpx.Client(base_url=server.url) as client:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                client.get("/app/health")
                break
            except httpx.ConnectError:
                time.sleep(0.05)
    try:
        yield server
    finally:
        if server.thread.is_alive():
            server.stop()


def read_until_it_writes(client: httpx.Client, chat_id: int) -> None:
    """Open the stream, read until the reply grows, and vanish."""
    with client.stream("GET", f"/app/stream?chat={chat_id}", timeout=30) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            if '"status":"running"' in line:
                return


@pytest.mark.timeout(180)
def test_fifty_tabs_that_vanish_in_mid_reply_leave_nothing_behind(echo_service: EchoService) -> None:
    service = echo_service(rate="100")
    with running(service) as server, httpx.Client(base_url=server.url, timeout=30) as client:
        chat = client.post("/app/chats").json()["id"]
        client.post(f"/app/chats/{chat}/send", json={"text": "go"})
        read_until_it_writes(client, chat)
        threads = threading.active_count()
        for _ in range(50):
            read_until_it_writes(client, chat)
            client.post(f"/app/chats/{chat}/stop")
            run = client.post(f"/app/chats/{chat}/send", json={"text": "again"})
            assert run.status_code == 200
        status = client.get("/app/status").json()
        assert status["state"] in ("generating", "ready")
        assert threading.active_count() <= threads + 5
        client.post(f"/app/chats/{chat}/stop")


def test_a_stop_does_not_wait_for_open_tabs(echo_service: EchoService) -> None:
    service = echo_service(rate="100")
    with running(service) as server, httpx.Client(base_url=server.url, timeout=30) as client:
        chat = client.post("/app/chats").json()["id"]
        client.post(f"/app/chats/{chat}/send", json={"text": "go"})
        with client.stream("GET", f"/app/stream?chat={chat}") as answer:
            next(answer.iter_lines())
            assert server.stop() < 5  # the limit after which uvicorn would cut them
