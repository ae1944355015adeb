"""The exact prompt of a reply, the chart of repetition and the settings of long replies, in a real browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from backends.echo_text import piece_id, pieces_of
from tests.browser.conftest import NewTab, StartRingside
from tests.browser.test_charts import chart

pytestmark = pytest.mark.browser


def words_of_their_own(count: int) -> list[str]:
    """Return numbers that share no id with another one, as some do with the echo backend."""
    found: dict[int, str] = {}
    for number in range(100_000, 100_000 + 2 * count):
        found.setdefault(piece_id(f" {number}"), str(number))
    return list(found.values())[:count]


def test_the_prompt_is_shown_token_by_token_in_pages_and_copied_as_text_and_ids(
    start_ringside: StartRingside, new_tab: NewTab
) -> None:
    asked = " ".join(words_of_their_own(300)) * 2
    pieces = pieces_of(asked)
    tab = new_tab(start_ringside(rate="max", end_after="5").url)
    page = tab.page
    page.fill("#rs-input", asked)
    page.click("#rs-send")
    tab.wait_for_end()
    page.locator(".message.assistant").hover()
    page.locator(".message.assistant .more").click()
    page.get_by_role("menuitem", name="Exact prompt").click()
    tokens = page.locator(".prompt-tokens li")
    expect(tokens).to_have_count(500)
    expect(tokens.nth(2).locator(".token-piece")).to_have_text(pieces[2].replace("\n", "↵").replace(" ", "·"))
    expect(tokens.nth(2).locator(".token-id")).to_have_text(str(piece_id(pieces[2])))
    expect(page.get_by_role("button", name="Earlier")).to_be_disabled()
    page.keyboard.press("PageDown")
    expect(tokens.first.locator(".token-id")).to_have_text(str(piece_id(pieces[500])))
    for button, copied in (("Copy text", asked), ("Copy ids", ", ".join(str(piece_id(piece)) for piece in pieces))):
        page.get_by_role("button", name=button).click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == copied
        expect(page.get_by_role("button", name=button)).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".prompt-dialog")).to_have_count(0)


def test_a_reply_in_circles_is_charted_told_of_and_stopped_by_the_settings(
    start_ringside: StartRingside, new_tab: NewTab
) -> None:
    tab = new_tab(start_ringside(rate="300", text="prompt").url)
    page = tab.page
    page.locator("#rs-keep-writing input").check()
    page.get_by_role("button", name="Long replies").click()
    page.locator("#rs-on-loop").get_by_label("Stop").check()
    tab.send("round and round the same garden path we go again and again")
    expect(page.locator(".message.assistant footer")).to_contain_text("going round in circles", timeout=60_000)
    expect(page.locator("#rs-loop")).to_contain_text("the same 12 tokens over and over")
    page.wait_for_function("document.getElementById('rs-chart-phrases').data?.[0].y.at(-1) < 0.2")
    shares = chart(tab, "phrases", "distinct_share")
    assert max(shares) > 0.9
    assert shares[-1] < 0.2
