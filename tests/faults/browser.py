"""Chromium in front of the page, for the fault run and the soak: opened, looked at, and measured by process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil

from app.proof.chromium import chromium_path
from tests.browser.driving import SHOWN_TEXT, launch_arguments

KINDS = ("browser", "renderer")
"""Chromium's processes that can be told apart and matter: its own, and those of pages."""

_PATIENCE_MS = 300_000
_TYPE = "--type="


class Tab:
    """One tab. Use it from the thread that opened it."""

    def __init__(self, page: Any) -> None:
        self._page = page
        page.set_default_timeout(_PATIENCE_MS)
        self.complaints: list[str] = []
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def open(self, url: str, chat_id: int) -> None:
        """Show a chat."""
        self._page.goto(f"{url}#chat={chat_id}")
        self._page.wait_for_selector("body.rs-ready")

    def reload(self) -> None:
        """Load the page again, without waiting for all of it."""
        self._page.reload(wait_until="commit")

    def wait_until_ready(self) -> None:
        """Wait until the page works."""
        self._page.wait_for_selector("body.rs-ready")

    def shown_text(self) -> str:
        """Return what the last reply shows."""
        reply = self._page.locator(".message.assistant .reply").last
        reply.wait_for(state="attached")
        return str(reply.evaluate(SHOWN_TEXT))


@contextmanager
def open_tab() -> Iterator[Tab]:
    """Start Chromium and close it at the end."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=launch_arguments())
        try:
            yield Tab(browser.new_page())
        finally:
            browser.close()


def browser_bytes() -> dict[str, int]:
    """Return the resident memory of Chromium's processes below this one, by kind; those of a kind are added up."""
    sizes: Counter[str] = Counter()
    for process in psutil.Process().children(recursive=True):
        try:
            command = process.cmdline()
            size_bytes = process.memory_info().rss
        except psutil.Error:  # it is going
            continue
        if command and "chrom" in command[0]:
            kinds = [part[len(_TYPE) :] for part in command if part.startswith(_TYPE)]
            sizes[kinds[0] if kinds else "browser"] += size_bytes
    return {kind: size for kind, size in sizes.items() if kind in KINDS}
