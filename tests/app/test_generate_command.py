"""Replies from the command line and in the page are the same replies: real processes on one home."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.store import MessageStatus, Store

PATIENCE_S = 60.0
ECHO = ("--backend", "echo", "--option", "text=document")
GENERATE = (sys.executable, "-m", "app", "generate", *ECHO)

_SERVER = """
import sys
from app.instance import Instance
from app.server import address, bind, build_routes
from app.service import Service
from app.settings import read_settings
import uvicorn
if __name__ == "__main__":
    settings = read_settings()
    instance = Instance(settings.data_folder)
    assert instance.claim()
    service = Service.open(settings)
    bound = bind(0)
    instance.announce(address(bound))
    print(address(bound), flush=True)
    uvicorn.Server(uvicorn.Config(build_routes(service), log_level="warning")).run(sockets=[bound])
"""


def chats(home: Path) -> list[list[tuple[str, MessageStatus]]]:
    store = Store(home / "chats.sqlite")
    kept = [[(m.text, m.status) for m in store.messages(chat.id)] for chat in store.chats()]
    store.close()
    return kept


@pytest.fixture
def page(tmp_path: Path) -> Iterator[httpx.Client]:
    """A running instance without the weight of its page."""
    script = tmp_path / "serve.py"
    script.write_text(_SERVER)
    process = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True, env=_with_path())
    assert process.stdout is not None
    yield httpx.Client(base_url=process.stdout.readline().strip(), trust_env=False)
    process.terminate()
    process.wait(PATIENCE_S)


def _with_path() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path.cwd())}


def test_a_reply_from_the_command_line_is_kept_as_a_chat(isolated_home: Path) -> None:
    command = [*GENERATE, "--option", "rate=max", "--tokens", "20", "--prompt", "Of rivers"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert chats(isolated_home) == [[("Of rivers", "complete"), (done.stdout, "complete")]]
    assert subprocess.run([*command, "--no-keep"], capture_output=True, check=True).stdout
    assert len(chats(isolated_home)) == 1


def announced_url(home: Path) -> str:
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        with contextlib.suppress(OSError, ValueError):
            return str(json.loads((home / "ringside.address.json").read_text())["url"])
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def test_a_reply_of_the_command_line_can_be_watched_and_others_wait_behind_it(isolated_home: Path) -> None:
    """No page runs: the command itself is the instance that others find."""
    command = [*GENERATE, "--option", "rate=20", "--prompt", "The first"]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    url = announced_url(isolated_home)
    with httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE_S) as page:
        assert page.get("app/health").json()["app"] == "ringside"
        behind = [*GENERATE, "--tokens", "5", "--prompt", "The second"]
        second = subprocess.Popen(behind, stdout=subprocess.PIPE, text=True)
        deadline_s = time.monotonic() + PATIENCE_S
        while len(runs := page.get("app/runs").json()["runs"]) < 2:
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        page.post(f"app/runs/{runs[0]['run']}/stop", json={})
        written, _ = second.communicate(timeout=PATIENCE_S)
    first.communicate(timeout=PATIENCE_S)
    assert first.returncode == 0
    kept = {asked: reply for (asked, _), (reply, _) in chats(isolated_home)}
    assert kept["The second"] == written


def test_the_page_sees_a_reply_started_from_the_command_line_and_can_stop_it(page: httpx.Client) -> None:
    command = [*GENERATE, "--option", "rate=100", "--json", "--prompt", "From the terminal"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    deadline_s = time.monotonic() + PATIENCE_S
    while not (runs := page.get("app/runs").json()["runs"]):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    (run,) = runs
    while page.get(f"app/runs/{run['run']}").json()["num_tokens"] < 20:
        time.sleep(0.05)
    asked, reply = page.get(f"app/chats/{run['chat']}").json()["messages"]
    assert asked["text"] == "From the terminal"
    page.post(f"app/chats/{run['chat']}/stop")
    output, _ = process.communicate(timeout=PATIENCE_S)
    lines = [json.loads(line) for line in output.splitlines()]
    assert lines[-1]["reason"] == "cancelled"
    text = "".join(line["text"] for line in lines if line["event"] == "text")
    assert text == page.get(f"app/messages/{reply['id']}/text").text
    assert next(line for line in lines if line["event"] == "model")["name"] == "Echo"


def test_a_reply_started_in_the_page_is_watched_from_the_command_line(page: httpx.Client) -> None:
    watch = [sys.executable, "-m", "app", "watch"]
    nothing = subprocess.run(watch, capture_output=True, text=True)
    assert "No reply is being written." in nothing.stderr
    body = {"prompt": "Go on", "settings": {"backend": "echo", "options": {"rate": "100"}, "max_new_tokens": 300}}
    started = page.post("app/runs", json=body).json()
    watched = subprocess.run(watch, capture_output=True, text=True, timeout=PATIENCE_S)
    assert watched.returncode == 0
    assert watched.stdout == page.get(f"app/messages/{started['message']}/text").text


def test_what_the_running_instance_refuses_is_one_sentence(page: httpx.Client) -> None:
    refused = page.post("app/runs", json={"prompt": "x", "settings": {"window": 0}})
    assert refused.status_code == 400
    assert refused.json()["message"].startswith("Window cannot be 0")
    assert page.get("app/runs/unknown").json()["message"] == "This run is over."
