"""The installed command in a process of its own, and Chromium in front of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

_CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
]


@dataclass
class Ringside:
    """A running `ringside chat` with a home folder of its own."""

    home: Path
    arguments: tuple[str, ...]
    url: str = ""
    process: subprocess.Popen[str] | None = None
    log: Path = field(init=False)

    def __post_init__(self) -> None:
        self.log = self.home / "server.log"

    def start(self) -> None:
        """Start and wait for the line that names the address."""
        port = ["--port", self.url.rstrip("/").rpartition(":")[2]] if self.url else []
        command = [sys.executable, "-m", "app", "chat", "--no-browser", "--json", *port, *self.arguments]
        environment = {**os.environ, "RINGSIDE_HOME": str(self.home), "OMP_NUM_THREADS": "1"}
        with self.log.open("a") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"it did not start:\n{self.log.read_text()}"
        self.url = json.loads(line)["url"]

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it; return the exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(timeout=30)


StartRingside = Callable[..., Ringside]


@pytest.fixture
def start_ringside(tmp_path: Path) -> Iterator[StartRingside]:
    """Return a function that starts the application on the echo backend with the options given."""
    started: list[Ringside] = []

    def start(*arguments: str, **options: str) -> Ringside:
        given = [f"--option={name}={value}" for name, value in options.items()]
        ringside = Ringside(tmp_path, ("--backend", "echo", "--window", "256", *given, *arguments))
        started.append(ringside)
        ringside.start()
        return ringside

    yield start
    for ringside in started:
        if ringside.process is not None and ringside.process.poll() is None:
            ringside.stop()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert executable, "these tests drive Chromium; install it (on Debian: apt-get install chromium)"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=_CHROMIUM_ARGUMENTS)
        yield browser
        browser.close()


@dataclass
class Tab:
    """A page and everything it complained about."""

    page: Page
    complaints: list[str] = field(default_factory=list)

    def open(self, url: str) -> None:
        self.page.goto(url)
        self.page.wait_for_selector("body.rs-ready", timeout=60_000)

    def send(self, text: str) -> None:
        self.page.fill("#rs-input", text)
        self.page.press("#rs-input", "Enter")

    def reply(self) -> Any:
        """Return the locator of the last reply's text."""
        return self.page.locator(".message.assistant .reply").last

    def wait_for_tokens(self, count: int) -> None:
        """Wait until the panel has counted so many."""
        self.page.wait_for_function(
            "count => Number(document.querySelector('[data-number=tokens]').textContent.replace(/\\D/g, '')) >= count",
            arg=count,
            timeout=60_000,
        )

    def wait_for_end(self) -> None:
        self.page.wait_for_selector("[data-action=regenerate]", timeout=90_000)


NewTab = Callable[..., Tab]


@pytest.fixture
def new_tab(chromium: Browser) -> Iterator[NewTab]:
    """Return a function that opens a tab; the test fails if any of them logs an error or asks another machine."""
    context = chromium.new_context(
        viewport={"width": 1440, "height": 900}, permissions=["clipboard-read", "clipboard-write"]
    )
    tabs: list[Tab] = []

    def open_tab(url: str = "", **viewport: int) -> Tab:
        page = context.new_page()
        page.set_default_timeout(30_000)
        if viewport:
            page.set_viewport_size({"width": viewport["width"], "height": viewport["height"]})
        tab = Tab(page)
        page.on("pageerror", lambda error: tab.complaints.append(str(error)))
        page.on("request", lambda request: _note_foreign(tab, request.url))
        tabs.append(tab)
        if url:
            tab.open(url)
        return tab

    yield open_tab
    complaints = [complaint for tab in tabs for complaint in tab.complaints]
    context.close()
    assert not complaints


def _note_foreign(tab: Tab, url: str) -> None:
    if not url.startswith(("http://127.0.0.1:", "data:", "blob:", "about:")):
        tab.complaints.append(f"asked {url}")
