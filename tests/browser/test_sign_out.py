"""Signing in and out on the page, where a password is in force."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

pytestmark = pytest.mark.browser

PASSWORD = "long enough"


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """The address of a Ringside behind a password."""
    command = [
        sys.executable,
        "-m",
        "app",
        "chat",
        "--no-browser",
        "--json",
        "--backend",
        "echo",
        "--password",
        PASSWORD,
    ]
    environment = {**os.environ, "RINGSIDE_HOME": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
        process.terminate()


def signed_in(page: Page, url: str) -> Page:
    page.goto(url)
    page.fill("#password", PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#rs-sign-out")).to_be_attached()
    expect(page.locator("#rs-sign-out")).not_to_have_attribute("hidden", "", timeout=20_000)
    return page


def test_signing_out_leads_to_the_password_in_this_browser_or_in_all(chromium: Browser, url: str) -> None:
    wide, narrow = chromium.new_context(), chromium.new_context(viewport={"width": 390, "height": 844})
    first, second = signed_in(wide.new_page(), url), signed_in(narrow.new_page(), url)
    first.click("#rs-sign-out")
    first.get_by_role("menuitem", name="In this browser").click()
    expect(first.locator("#password")).to_be_visible()
    expect(second.locator("#rs-input")).to_be_visible()
    signed_in(first, url)
    second.click("[data-open=side]")
    second.click("#rs-sign-out")
    second.get_by_role("menuitem", name="In every browser").click()
    expect(second.locator("#password")).to_be_visible()
    expect(first.locator("#password")).to_be_visible(timeout=30_000)  # its stream ends and asks again
    wide.close()
    narrow.close()
