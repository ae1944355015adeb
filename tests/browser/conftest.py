"""The installed command in a process of its own, and Chromium in front of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from app.proof.chromium import chromium_path
from tests.browser.driving import Ringside, launch_arguments

StartRingside = Callable[..., Ringside]

PATIENCE_MS = 60_000
"""How long anything may take to come; a machine that is busy with other things takes ten times what a free one does."""


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


@pytest.fixture(scope="module")
def shared_ringside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartRingside]:
    """Return a function that gives the running application with the options given, without chats; started once a file.

    To start takes longer than most of what is tested. Nobody may stop it or change what new chats start with.
    """
    started: dict[tuple[tuple[str, str], ...], Ringside] = {}

    def share(**options: str) -> Ringside:
        key = tuple(sorted(options.items()))
        if key in started:
            started[key].forget_chats()
            return started[key]
        given = [f"--option={name}={value}" for name, value in key]
        ringside = Ringside(tmp_path_factory.mktemp("shared"), ("--backend", "echo", "--window", "256", *given))
        ringside.start()
        started[key] = ringside
        return ringside

    yield share
    for ringside in started.values():
        ringside.stop()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=launch_arguments())
        yield browser
        browser.close()


@dataclass
class Tab:
    """A page and everything it complained about."""

    page: Page
    complaints: list[str] = field(default_factory=list)

    def open(self, url: str) -> None:
        self.page.goto(url)
        self.page.wait_for_selector("body.rs-ready", timeout=PATIENCE_MS)

    def send(self, text: str) -> None:
        self.page.fill("#rs-input", text)
        # A new chat changes the address's fragment; Playwright would wait for that as for a page to load.
        self.page.press("#rs-input", "Enter", no_wait_after=True)

    def reply(self) -> Any:
        """Return the locator of the last reply's text."""
        return self.page.locator(".message.assistant .reply").last

    def wait_for_tokens(self, count: int) -> None:
        """Wait until the panel has counted so many."""
        self.page.wait_for_function(
            "count => Number(document.querySelector('[data-number=tokens]').textContent.replace(/\\D/g, '')) >= count",
            arg=count,
            timeout=PATIENCE_MS,
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
        page.set_default_timeout(PATIENCE_MS)
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
