"""Drawings on buttons are inline SVG, and every one that is used is in the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import NewTab, StartRingside

ROOT = Path(__file__).parents[2]
SYMBOLS = re.compile("[\u2190-\u21ff\u2300-\u23ff\u25a0-\u27bf\u2b00-\u2bff\u22ee\u22ef\u2039\u203a\uff0b]")
EMPTY = """
() => [...document.querySelectorAll('svg.line-icon use')]
  .filter((use) => !document.querySelector(use.getAttribute('href')))
  .map((use) => use.getAttribute('href'))
"""


def test_no_button_is_a_character_that_a_font_may_lack() -> None:
    shown = [*(ROOT / "app" / "ui").glob("*.py"), *(ROOT / "assets").glob("*.css"), *(ROOT / "assets").glob("*.js")]
    found = {
        f"{path.name}: {line.strip()}"
        for path in shown
        for line in path.read_text("utf-8").splitlines()
        if SYMBOLS.search(line) and "document.title" not in line and not line.startswith("const VISIBLE")
    }
    assert found == set()


@pytest.mark.browser
@pytest.mark.parametrize("path", ["", "app/compare", "app/doctor"])
def test_every_drawing_is_in_the_page(shared_ringside: StartRingside, new_tab: NewTab, path: str) -> None:
    page = new_tab(shared_ringside().url + path).page
    expect(page.locator("#rs-theme .line-icon")).to_be_visible()
    assert page.locator("svg.line-icon use").count() > 0
    assert page.evaluate(EMPTY) == []


@pytest.mark.browser
def test_new_notebook_pressed_again_leaves_no_empty_ones_and_the_composer_is_back_after_it(
    shared_ringside: StartRingside, new_tab: NewTab
) -> None:
    page = new_tab(shared_ringside(rate="max").url).page
    height = page.locator("#rs-input").bounding_box()
    for _ in range(3):
        page.locator("#rs-new-notebook").click()
        expect(page.locator("#rs-notebook-text")).to_be_visible()
        page.locator("#rs-new-chat").click()
        expect(page.locator("#rs-input")).to_be_visible()
    expect(page.locator("#rs-chat-list .chat-row")).to_have_count(1)
    page.wait_for_function("parseFloat(document.getElementById('rs-input').style.height) > 20")
    assert page.locator("#rs-input").bounding_box() == height
    assert not page.locator("#rs-refresh").is_visible()
