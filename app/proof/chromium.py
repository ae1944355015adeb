"""The Chromium that is installed on this machine, as the figures and the measurement of the page start it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from backends.errors import BackendUnavailableError

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_NAMES = ("chromium", "chromium-browser", "google-chrome")
SWITCHES = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")
"""Without a sandbox and a GPU, which a container may lack."""


def chromium_path() -> str:
    """Return where Chromium is. Raises BackendUnavailableError where it is missing."""
    path = next((found for name in _NAMES if (found := shutil.which(name))), None)
    if path is None:
        raise BackendUnavailableError("This needs Chromium.", "On Debian: apt-get install chromium")
    return path


@contextmanager
def opened() -> Iterator[Browser]:
    """Open a headless Chromium; in a thread that runs no event loop.

    Raises:
        BackendUnavailableError: Playwright or Chromium is missing.
    """
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise BackendUnavailableError("This needs Playwright.", "Run: pip install playwright") from None
    path = chromium_path()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(SWITCHES))
        try:
            yield browser
        finally:
            browser.close()
