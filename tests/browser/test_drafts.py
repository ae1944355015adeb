"""Several variants of one reply in a real browser: side by side while they are written, one picked, the rest kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.backends.tiny_gguf import write_tiny_gguf
from tests.browser.conftest import NewTab, StartRingside, Tab

pytestmark = pytest.mark.browser

SOON_MS = 30_000


def ask_for(tab: Tab, num_variants: int, text: str = "Of rivers") -> None:
    tab.page.select_option("#rs-variants", str(num_variants))
    tab.send(text)
    expect(tab.page.locator(".draft")).to_have_count(num_variants, timeout=SOON_MS)


def test_variants_written_together_are_watched_one_is_picked_and_the_others_stop(
    start_ringside: StartRingside, new_tab: NewTab, tmp_path: Path
) -> None:
    model = write_tiny_gguf(tmp_path / "tiny.gguf", sliding_window=64, sliding_pattern=2)
    tab = new_tab(start_ringside("--backend", "ring", "--model", str(model), "--keep-writing").url)
    page = tab.page
    ask_for(tab, 3)
    expect(page.locator(".drafts-words")).to_contain_text("written together", timeout=60_000)
    for note in page.locator(".draft-note").all():
        expect(note).to_contain_text("/s", timeout=SOON_MS)
    expect(page.locator("[data-sub=kv]")).to_contain_text("of 3 variants")
    assert page.locator(".message.assistant").is_hidden(), "what is in a column is not shown twice"
    page.reload()
    expect(page.locator(".draft.writing")).to_have_count(3, timeout=SOON_MS)
    page.get_by_role("button", name="Stop variant 1").press("Enter")
    expect(page.locator(".draft-note").first).to_contain_text("stopped", timeout=SOON_MS)
    picked = page.locator(".draft").nth(1).get_attribute("data-id")
    page.get_by_role("button", name="Continue with variant 2").press("Enter")
    expect(page.locator(".drafts")).to_be_hidden(timeout=SOON_MS)
    shown = page.locator(".message.assistant")
    expect(shown).to_be_visible()
    assert shown.get_attribute("data-id") == picked
    expect(shown).to_have_class("message assistant writing")
    expect(page.locator("#rs-input")).to_be_focused()
    page.click("#rs-stop")
    expect(shown.locator(".switcher")).to_contain_text("2 / 3", timeout=SOON_MS)
    expect(shown.locator("footer")).to_contain_text("stopped by you", timeout=SOON_MS)


def test_where_a_backend_writes_one_at_a_time_the_others_wait_in_sight(
    start_ringside: StartRingside, new_tab: NewTab
) -> None:
    tab = new_tab(start_ringside(rate="60", end_after="300").url)
    page = tab.page
    ask_for(tab, 3)
    expect(page.locator(".drafts-words")).to_contain_text("this backend writes one at a time", timeout=SOON_MS)
    expect(page.locator(".draft-note").last).to_contain_text("Waiting: 1 before it", timeout=SOON_MS)
    expect(page.locator(".drafts-words")).to_contain_text("pick one to continue with", timeout=SOON_MS)
    for note in page.locator(".draft-note").all():
        expect(note).to_have_text("300 tokens · finished")
    page.reload()
    expect(page.locator(".draft")).to_have_count(3, timeout=SOON_MS)
    expect(page.locator(".draft .reply").last).not_to_be_empty()
    page.set_viewport_size({"width": 360, "height": 740})
    boxes = [draft.bounding_box() for draft in page.locator(".draft").all()]
    assert all(box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 360 for box in boxes)
    page.get_by_role("button", name="Continue with variant 3").click()
    expect(page.locator(".message.assistant .switcher")).to_contain_text("3 / 3", timeout=SOON_MS)
    tab.send("And lakes")
    expect(page.locator(".message.assistant")).to_have_count(2, timeout=SOON_MS)
