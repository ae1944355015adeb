"""Notebooks in a real browser on the echo backend: typed in, written at the end and at the cursor, in two tabs."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import NewTab, Tab
from tests.browser.driving import Ringside

pytestmark = pytest.mark.browser

SHOWN = "[...document.querySelectorAll('#rs-notebook-text .sheet')].map(sheet => sheet.firstChild.data).join('')"
AWKWARD = "Tab\there,  two spaces, 👩‍👩‍👧 and é.\n\nעברית"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One server for all of them, which writes a document at a rate that a test can stop."""
    ringside = Ringside(tmp_path_factory.mktemp("ringside"), ("--backend", "echo", "--option=rate=100"))
    ringside.start()
    yield ringside.url
    ringside.stop()


def asked(url: str, path: str, method: str = "GET", body: Any = None) -> Any:
    """Return what a route of the page answers."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{url}app{path}", data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def shown(page: Page) -> str:
    return str(page.evaluate(SHOWN))


def kept(url: str, chat_id: int) -> str:
    return str(asked(url, f"/notebooks/{chat_id}")["text"])


def expect_kept(page: Page, url: str, chat_id: int, text: str) -> None:
    """Wait until the server has exactly this text, and the page shows it."""
    for _ in range(100):
        if kept(url, chat_id) == text:
            break
        page.wait_for_timeout(100)
    assert kept(url, chat_id) == shown(page) == text


def open_notebook(tab: Tab, text: str = "") -> int:
    """Begin a notebook, type into it, and return the chat's id."""
    tab.page.click("#rs-new-notebook")
    expect(tab.page.locator("body")).to_have_attribute("data-rs-view", "notebook")
    tab.page.click("#rs-notebook-text")
    tab.page.wait_for_function("document.activeElement?.id === 'rs-notebook-text'")
    tab.page.keyboard.insert_text(text)
    return int(tab.page.evaluate("window.ringside.chatId"))


def wait_until_written(tab: Tab, count: int) -> None:
    """Wait until the document has grown to so many characters."""
    tab.page.wait_for_function(f"count => ({SHOWN}).length >= count", arg=count)


def test_what_is_typed_pasted_and_deleted_is_kept_character_by_character_and_undone(url: str, new_tab: NewTab) -> None:
    tab = new_tab(url)
    page = tab.page
    chat_id = open_notebook(tab, AWKWARD)
    page.keyboard.press("Enter")
    page.keyboard.type("The end👧")
    page.keyboard.press("Backspace")
    whole = f"{AWKWARD}\nThe end"
    expect_kept(page, url, chat_id, whole)
    expect(page.locator("#rs-title")).to_have_text("Tab here, two spaces, 👩‍👩‍👧 and é.")
    page.keyboard.press("Control+a")
    page.keyboard.press("Control+c")
    assert page.evaluate("navigator.clipboard.readText()") == whole
    page.keyboard.press("Delete")
    expect_kept(page, url, chat_id, "")
    page.keyboard.press("Control+z")
    expect_kept(page, url, chat_id, whole)
    page.keyboard.press("Control+Home")
    page.keyboard.press("Control+v")
    expect_kept(page, url, chat_id, whole * 2)
    page.reload()
    page.wait_for_selector("[data-rs-view=notebook]")
    assert shown(page) == whole * 2


def test_the_model_writes_at_the_cursor_while_the_text_is_locked_and_the_cursor_stays(
    url: str, new_tab: NewTab
) -> None:
    tab = new_tab(url)
    page = tab.page
    chat_id = open_notebook(tab, "The beginning. The end.")
    for _ in "The end.":
        page.keyboard.press("ArrowLeft")
    page.keyboard.press("Control+Enter")
    wait_until_written(tab, 60)
    page.keyboard.type("refused")
    expect(page.locator("[data-notebook=here]")).to_be_hidden()
    tab.wait_for_tokens(20)
    page.keyboard.press("Escape")
    expect(page.locator("[data-notebook=here]")).to_be_visible()
    page.keyboard.insert_text("Here:")
    written = shown(page)
    assert written.startswith("The beginning. Here:")
    assert written.endswith("The end.")
    assert "refused" not in written
    expect_kept(page, url, chat_id, written)
    page.click("[data-notebook=undo]")
    page.click("[data-notebook=undo]")
    expect_kept(page, url, chat_id, "The beginning. The end.")


def test_a_run_is_followed_by_a_tab_that_comes_late_and_after_a_reload(url: str, new_tab: NewTab) -> None:
    first = new_tab(url)
    chat_id = open_notebook(first, "Once upon a time")
    first.page.click("[data-notebook=end]")
    wait_until_written(first, 100)
    late = new_tab(f"{url}#chat={chat_id}")
    expect(late.page.locator("[data-notebook=stop]")).to_be_visible()
    first.page.reload()
    first.page.wait_for_selector("[data-rs-view=notebook]")
    wait_until_written(late, 600)
    late.page.click("[data-notebook=stop]")
    for tab in (first, late):
        expect(tab.page.locator("[data-notebook=here]")).to_be_visible()
        assert shown(tab.page) == kept(url, chat_id)
    assert kept(url, chat_id).startswith("Once upon a time")


def test_a_stale_tab_says_so_once_and_keeps_both_texts(url: str, new_tab: NewTab) -> None:
    tab = new_tab(url)
    page = tab.page
    chat_id = open_notebook(tab, "Mine")
    expect_kept(page, url, chat_id, "Mine")
    version = asked(url, f"/notebooks/{chat_id}")["version"]
    asked(url, f"/notebooks/{chat_id}", "PATCH", {"start": 0, "end": 4, "text": "Theirs", "version": version})
    page.keyboard.type(" and more")
    expect(page.locator("#rs-notebook-problem")).to_contain_text("changed in another tab")
    assert shown(page) == kept(url, chat_id) == "Theirs"
    page.get_by_role("button", name="Open the copy").click()
    expect(page.locator("#rs-notebook-text")).to_have_text("Mine and more")


def test_a_document_of_a_megabyte_is_typed_in_without_touching_the_rest_of_it(url: str, new_tab: NewTab) -> None:
    text = "".join(f"Line {number} of a long document, as long as lines are.\n" for number in range(20_000))
    chat_id = asked(url, "/notebooks", "POST")["id"]
    version = asked(url, f"/notebooks/{chat_id}")["version"]
    asked(url, f"/notebooks/{chat_id}", "PATCH", {"start": 0, "end": 0, "text": text, "version": version})
    tab = new_tab(f"{url}#chat={chat_id}")
    page = tab.page
    page.wait_for_function("document.querySelectorAll('#rs-notebook-text .sheet').length > 300")
    page.evaluate(
        """() => {
          window.touched = new Set();
          const text = document.getElementById('rs-notebook-text');
          new MutationObserver((changes) => {
            for (const { target } of changes) window.touched.add((target.parentElement ?? target).closest('.sheet'));
          }).observe(text, { subtree: true, childList: true, characterData: true });
        }"""
    )
    page.click("#rs-notebook-text", position={"x": 300, "y": 300})
    page.keyboard.press("Home")
    page.keyboard.type("Typed here. ")
    changed = shown(page)
    assert "Typed here. Line" in changed
    assert page.evaluate("window.touched.size") == 1
    expect_kept(page, url, chat_id, changed)
    page.keyboard.press("Control+End")
    page.keyboard.type("Fin")
    expect_kept(page, url, chat_id, changed + "Fin")
    box = page.evaluate(
        "(() => { const s = getSelection().getRangeAt(0).getBoundingClientRect(); return [s.top, s.bottom] })()"
    )
    assert 0 < box[1] < 900


def test_text_in_sheets_is_the_same_text_after_any_changes(url: str, new_tab: NewTab) -> None:
    page = new_tab(url).page
    wrong = page.evaluate(
        """async () => {
          const { SheetText, countPoints } = await import('/app/assets/notebook_text.js');
          const text = new SheetText(document.createElement('div'));
          let model = '';
          let seed = 7;
          const draw = (below) => (seed = (seed * 48271) % 2147483647) % below;
          const words = ['a', '\\n', 'word ', '🌊', 'x'.repeat(9000), 'line\\n'.repeat(900), 'é\\n\\n'];
          for (let turn = 0; turn < 600; turn += 1) {
            const start = draw(model.length + 1);
            const end = Math.min(model.length, start + (turn % 3 ? draw(12) : draw(6000)));
            const put = draw(4) ? words[draw(words.length)] : '';
            text.splice(start, end, put);
            model = model.slice(0, start) + put + model.slice(end);
            const at = draw(model.length + 1);
            const place = text.placeOf(at);
            if (text.slice(0, text.length) !== model || text.root.textContent !== model) return `text at ${turn}`;
            if (text.offsetOf(place.node, place.offset) !== at) return `place at ${turn}`;
            if (text.pointsBefore(at) !== countPoints(model.slice(0, at))) return `points at ${turn}`;
          }
          return '';
        }"""
    )
    assert wrong == ""


def test_a_notebook_fits_a_narrow_screen_and_escape_stops_from_the_keyboard(url: str, new_tab: NewTab) -> None:
    tab = new_tab(url, width=360, height=740)
    page = tab.page
    page.click("[data-open=side]")
    open_notebook(tab, "Small. ")
    page.keyboard.press("Control+Enter")
    wait_until_written(tab, 60)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.keyboard.press("Escape")
    expect(page.locator("[data-notebook=here]")).to_be_visible()
