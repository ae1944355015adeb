"""A tab for which there is no stream left: it says why, and goes on by itself."""

from __future__ import annotations

import urllib.request
from contextlib import ExitStack

import pytest
from playwright.sync_api import expect

from app.broadcast import MAX_STREAMS_PER_ADDRESS
from tests.browser.conftest import NewTab, StartRingside

pytestmark = pytest.mark.browser


def test_a_tab_too_many_says_so_until_another_closes(shared_ringside: StartRingside, new_tab: NewTab) -> None:
    ringside = shared_ringside()
    with ExitStack() as others:
        for _ in range(MAX_STREAMS_PER_ADDRESS):
            others.enter_context(urllib.request.urlopen(f"{ringside.url}app/stream"))
        tab = new_tab(ringside.url)
        problem = tab.page.locator("#rs-composer-problem")
        expect(problem).to_contain_text("48 tabs at this address follow Ringside already")
        expect(problem).to_contain_text("Close some; this one goes on by itself.")
    expect(problem).to_be_hidden(timeout=20_000)
