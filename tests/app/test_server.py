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

from app import connections
from app.doors import LOCAL_ONLY, Doors
from app.server import bind, build_routes, config_for
from app.service import Service
from tests.app.conftest import EchoService


class Running:
    """The routes behind uvicorn in a thread."""

    def __init__(self, service: Service, doors: Doors = LOCAL_ONLY) -> None:
        self.bound: socket.socket = bind(0)
        self.url = f"http://127.0.0.1:{self.bound.getsockname()[1]}"
        app = build_routes(service, stopping=lambda: self.server.should_exit, doors=doors)
        self.server = uvicorn.Server(config_for(app, timeout_graceful_shutdown=5))
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.bound]})

    def stop(self) -> float:
        """Stop; return the seconds that took."""
        started = time.monotonic()
        self.server.should_exit = True
        self.thread.join(30)
        assert not self.thread.is_alive()
        return time.monotonic() - started


@contextmanager
def running(service: Service, doors: Doors = LOCAL_ONLY) -> Iterator[Running]:
    server = Running(service, doors)
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


def connected(server: Running) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.bound.getsockname()[1]), timeout=20)


HALF_REQUESTS = [
    b"",
    b"G",
    b"GET /app/health HTTP/1.1\r\nHost: 127.0.0.1\r\n",
    b"GET /app/health HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\nGET",
    b"POST /app/chats HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 9\r\n\r\n{",  # refused without its body
]


@pytest.mark.parametrize("sent", HALF_REQUESTS)
def test_a_connection_that_brings_no_whole_request_is_closed(
    echo_service: EchoService, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", 0.2)
    with running(echo_service()) as server, connected(server) as half_open:
        half_open.sendall(sent)
        while half_open.recv(65_536):
            pass  # until the server closes it, or the socket's own time is over


def test_a_half_sent_request_makes_no_chat(echo_service: EchoService) -> None:
    service = echo_service()
    with running(service) as server, httpx.Client(base_url=server.url) as client:
        port = server.bound.getsockname()[1]
        head = f"POST /app/chats HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        for _ in range(5):
            with connected(server) as half_sent:
                half_sent.sendall(f"{head}Content-Length: 20\r\n\r\n{{".encode())
        assert client.get("/app/chats").json() == {"chats": []}
    assert service.chats() == []


def test_an_event_stream_stays_open_however_long_it_is_quiet(
    echo_service: EchoService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", 0.2)
    service = echo_service()
    with running(service) as server, connected(server) as tab:
        port = server.bound.getsockname()[1]
        tab.sendall(f"GET /app/stream HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        said = b""
        with connected(server) as idle:
            while b"event: status" not in said:
                said += tab.recv(65_536)
            assert idle.recv(1) == b""  # whoever came later and asked for nothing is closed by now
        service.create_chat("A river")
        said = b""
        while b"event: chats" not in said:
            said += (got := tab.recv(65_536))
            assert got


def test_more_connections_than_there_may_be_are_closed_at_once(
    echo_service: EchoService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 3)
    with running(echo_service()) as server:
        opened = [connected(server) for _ in range(8)]
        assert any(each.recv(1) == b"" for each in reversed(opened))
        for each in opened:
            each.close()
