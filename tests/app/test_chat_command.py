"""`ringside chat` as a person starts and ends it: a real server, a second start, Ctrl-C in mid-reply."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import httpx
import pytest

from app.store import Store

PATIENCE_S = 120.0


StartChat = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start_chat() -> Iterator[StartChat]:
    """Return a function that starts `ringside chat` with the arguments given; none of them outlives its test."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "app", "chat", "--no-browser", "--json", *arguments]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def announced_url(output: IO[str] | None) -> str:
    assert output is not None
    line = json.loads(output.readline())
    assert line["event"] == "serving"
    return str(line["url"])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_starting_twice_gives_one_address_and_ending_in_mid_reply_keeps_it(
    isolated_home: Path, start_chat: StartChat, end: int
) -> None:
    port = free_port()
    first = start_chat("--port", str(port), "--backend", "echo", "--option", "rate=50")
    url = announced_url(first.stdout)
    assert url == f"http://127.0.0.1:{port}/"
    with httpx.Client(base_url=f"{url}app", timeout=PATIENCE_S) as page:
        assert page.get("/health").json()["app"] == "ringside"
        second = start_chat()
        assert announced_url(second.stdout) == url
        assert second.wait(PATIENCE_S) == 0
        chat = page.post("/chats").json()["id"]
        message = page.post(f"/chats/{chat}/send", json={"text": "Go on"}).json()["message"]
        deadline_s = time.monotonic() + PATIENCE_S
        text = ""
        while len(text) < 60:
            assert time.monotonic() < deadline_s
            text = page.get(f"/messages/{message}/text").text
            time.sleep(0.05)  # asking without a pause would keep it from writing
    first.send_signal(end)
    _, errors = first.communicate(timeout=PATIENCE_S)
    assert first.returncode == 0, errors
    assert "Traceback" not in errors
    kept = Store(isolated_home / "chats.sqlite").message(message)
    assert kept is not None
    assert kept.status == "cancelled"
    assert kept.text.startswith(text)
    assert not (isolated_home / "ringside.address.json").exists()


def test_a_port_asked_for_that_is_taken_is_one_sentence(start_chat: StartChat) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        process = start_chat("--port", str(port))
        output, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert json.loads(output) == {
        "event": "error",
        "error": f"Port {port} is in use.",
        "hint": "Choose another one with --port.",
    }
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--host", "0.0.0.0"), "lets other machines in, and there is no password for them. Give --password"),
        (("--host", "0.0.0.0", "--password", "short"), "choose at least 8"),
        (("--host", "203.0.113.7", "--password", "long enough"), "203.0.113.7 is no address of this machine"),
    ],
)
def test_what_would_let_anybody_in_is_refused_in_one_sentence(
    isolated_home: Path, arguments: tuple[str, ...], words: str
) -> None:
    command = [sys.executable, "-m", "app", "chat", "--no-browser", *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def signed_in(url: str, password: str) -> httpx.Client:
    browser = httpx.Client(base_url=f"{url}app", timeout=PATIENCE_S)
    assert browser.post("/login", json={"password": password}).status_code == 200
    return browser


def sign_out() -> str:
    command = [sys.executable, "-m", "app", "sign-out", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.usefixtures("isolated_home")
def test_every_browser_is_signed_out_by_a_command_whether_or_not_it_runs(start_chat: StartChat) -> None:
    port = str(free_port())
    given = ("--port", port, "--backend", "echo", "--password", "long enough")
    first = start_chat(*given)
    url = announced_url(first.stdout)
    browser = signed_in(url, "long enough")
    assert browser.get("/chats").status_code == 200
    assert json.loads(sign_out()) == {"event": "signed out"}
    assert browser.get("/chats").status_code == 401
    assert json.loads(sign_out()) == {"event": "signed out"}, "the command itself is still let in"
    browser = signed_in(url, "long enough")
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=PATIENCE_S)
    sign_out()
    announced_url(start_chat(*given).stdout)
    assert browser.get("/chats").status_code == 401
