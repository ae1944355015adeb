"""Text from right to left beside text from left to right, and Enter that belongs to an input method."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import NewTab, StartRingside, Tab

pytestmark = pytest.mark.browser

HEBREW = "שלום `ls -l` לכולם"
ARABIC = "مرحبا بكم في الدردشة"
TEXT = f"# {ARABIC}\n\nPlain words.\n\n{HEBREW}\n\n- {HEBREW}\n- item\n\n> {HEBREW}\n\n```\nls -l\n```\n\n"


@pytest.fixture
def tab(shared_ringside: StartRingside, new_tab: NewTab) -> Tab:
    return new_tab(shared_ringside(rate="max", text="prompt").url)


def direction(page: Page, selector: str, nth: int = 0) -> Any:
    return page.locator(selector).nth(nth).evaluate("element => getComputedStyle(element).direction")


def fill(page: Page, selector: str, text: str) -> str:
    page.fill(selector, text)
    return str(direction(page, selector))


def test_each_piece_of_text_begins_at_the_side_of_its_first_letter(tab: Tab) -> None:
    page = tab.page
    assert fill(page, "#rs-input", ARABIC) == "rtl"
    assert fill(page, "#rs-input", TEXT) == "rtl"
    page.press("#rs-input", "Enter", no_wait_after=True)
    tab.wait_for_end()
    expect(page.locator(".reply pre")).to_be_visible()
    assert direction(page, ".message.user .said") == "rtl"
    assert [direction(page, f".reply {name}") for name in ("h1", "li", "blockquote", "blockquote p")] == ["rtl"] * 4
    assert [direction(page, ".reply li", number) for number in (0, 1)] == ["rtl", "ltr"]
    assert [direction(page, ".reply section > p", number) for number in (0, 1)] == ["ltr", "rtl"]
    assert [direction(page, ".reply code", number) for number in range(3)] == ["ltr"] * 3
    assert direction(page, ".reply pre") == "ltr"
    marker_room, border = (
        page.locator(selector).first.evaluate(f"element => getComputedStyle(element).{side}")
        for selector, side in ((".reply li", "marginRight"), (".reply blockquote", "borderRightWidth"))
    )
    assert (marker_room != "0px", border) == (True, "3px")
    assert direction(page, "#rs-title") == direction(page, "#rs-chat-list .chat-name") == "rtl"
    page.fill("#rs-search", "לכולם")
    expect(page.locator("#rs-found .snippet").first).to_be_visible()
    assert direction(page, "#rs-search") == "rtl"
    assert direction(page, "#rs-found .snippet") == "rtl"
    page.fill("#rs-search", "")
    page.locator("#rs-new-notebook").click()
    page.locator("#rs-notebook-text").click()
    page.keyboard.insert_text(ARABIC)
    assert direction(page, "#rs-notebook-text") == "rtl"


@pytest.mark.parametrize("event", ["{ isComposing: true }", "{ keyCode: 229 }"])
def test_enter_that_ends_a_composition_sends_and_renames_nothing(tab: Tab, event: str) -> None:
    page = tab.page
    press = f"(box) => box.dispatchEvent(new KeyboardEvent('keydown', {{ key: 'Enter', bubbles: true, ...{event} }}))"
    page.fill("#rs-input", "にほ")
    page.locator("#rs-input").evaluate(press)
    expect(page.locator("#rs-input")).to_have_value("にほ")
    page.press("#rs-input", "Enter", no_wait_after=True)
    tab.wait_for_end()
    page.locator("#rs-chat-list .chat-open").first.press("F2")
    page.fill(".chat-rename", "日本")
    page.locator(".chat-rename").evaluate(press)
    expect(page.locator(".chat-rename")).to_be_visible()
    page.press(".chat-rename", "Enter")
    expect(page.locator("#rs-chat-list .chat-name").first).to_have_text("日本")
    page.fill("#rs-search", "日本")
    expect(page.locator("#rs-found [role=option]").first).to_be_visible()
    page.locator("#rs-search").evaluate(press)
    assert page.locator("#rs-found [aria-selected=true]").count() == 0
    page.fill("#rs-search", "")
    page.locator(".message.user .more").click()
    page.get_by_role("menuitem", name="Edit").first.click()
    page.locator(".edit textarea").evaluate(press)
    expect(page.locator(".edit textarea")).to_be_visible()
