"""What a writer does to messages, in a real browser on the echo backend: variants, edits, cuts, branches, undo."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from app.content import Content
from app.settings import Settings
from app.store import Store
from tests.browser.conftest import Tab
from tests.browser.driving import Ringside
from tests.browser.test_page import stored_text

pytestmark = pytest.mark.browser

NUM_MANY = 1000


def asked(url: str, path: str, method: str = "GET", body: Any = None) -> Any:
    """Return what a route of the page answers."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{url}app{path}", data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def message(page: Page, role: str, place: int = 0) -> Locator:
    return page.locator(f".message.{role}").nth(place)


def choose(of: Locator, name: str) -> None:
    """Open a message's menu and take an entry of it."""
    of.hover()
    of.locator(".more").click()
    of.page.get_by_role("menuitem", name=name, exact=True).click()


def say(tab: Tab, text: str) -> None:
    """Send a message and wait for the end of the reply to it."""
    users = tab.page.locator(".message.user")
    before = users.count()
    tab.send(text)
    expect(users).to_have_count(before + 1)
    tab.wait_for_end()
    expect(message(tab.page, "assistant", before).locator(".reply p")).not_to_be_empty()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One server for all of them, on a backend that says the last message again; the long chat is in it already."""
    home = tmp_path_factory.mktemp("ringside")
    keep_long_chat(home)
    ringside = Ringside(home, ("--backend", "echo", "--window", "256", "--option=text=prompt", "--option=rate=200"))
    ringside.start()
    yield ringside.url
    ringside.stop()


def keep_long_chat(home: Path) -> None:
    store = Store(Settings(data_folder=home).database_path)
    chat, parent = store.add_chat("Long", ""), None
    for number in range(NUM_MANY // 2):
        question = store.tree.add(chat.id, "user", parent, Content(f"question {number}"), "complete")
        parent = store.tree.add(chat.id, "assistant", question, Content(f"answer {number}"), "complete")
    store.close()


@pytest.fixture(scope="module")
def one_tab(url: str, chromium: Browser) -> Iterator[Tab]:
    context = chromium.new_context(viewport={"width": 1280, "height": 800}, permissions=["clipboard-read"])
    tab = Tab(context.new_page())
    tab.page.on("pageerror", lambda error: tab.complaints.append(str(error)))
    tab.open(url)
    yield tab
    context.close()
    assert not tab.complaints


@pytest.fixture
def tab(one_tab: Tab) -> Tab:
    """The tab, with a new chat."""
    one_tab.page.set_viewport_size({"width": 1280, "height": 800})
    one_tab.page.keyboard.press("Escape")  # whatever a test that failed has left open
    one_tab.page.click("#rs-new-chat")
    expect(one_tab.page.locator(".message")).to_have_count(0)
    return one_tab


def test_variants_are_switched_with_the_keyboard_and_compared_side_by_side(tab: Tab) -> None:
    page = tab.page
    say(tab, "alpha beta")
    first = message(page, "assistant").get_attribute("data-id")
    choose(message(page, "assistant"), "Write another reply")
    number = page.locator(".variant-number")
    expect(number).to_have_text("2 / 2")
    page.get_by_role("button", name="Previous variant").focus()
    page.keyboard.press("ArrowLeft")
    expect(number).to_have_text("1 / 2")
    expect(message(page, "assistant")).to_have_attribute("data-id", str(first))
    expect(page.get_by_role("button", name="Next variant")).to_be_focused()
    expect(page.locator("#rs-said")).to_have_text("Variant 1 of 2")
    page.keyboard.press("Enter")
    expect(number).to_have_text("2 / 2")

    choose(message(page, "assistant"), "Compare variants")
    columns = page.locator(".variant")
    expect(columns).to_have_count(2)
    expect(columns.nth(1)).to_contain_text("on screen")
    for column in (columns.nth(0), columns.nth(1)):
        expect(column.locator(".variant-text")).to_contain_text("alpha beta")
    page.get_by_role("button", name="Use variant 1").click()
    expect(page.locator("dialog")).to_have_count(0)
    expect(number).to_have_text("1 / 2")


def test_a_menu_is_walked_with_arrow_keys_and_left_with_escape(tab: Tab) -> None:
    page = tab.page
    say(tab, "alpha beta")
    more = message(page, "assistant").locator(".more")
    more.focus()
    page.keyboard.press("Enter")
    expect(more).to_have_attribute("aria-expanded", "true")
    focused = page.locator("[role=menuitem]:focus")
    expect(focused).to_have_text("Copy")
    page.keyboard.press("ArrowUp")
    expect(focused).to_have_text("Delete")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("s")
    expect(focused).to_have_text("Show as plain text")
    page.keyboard.press("Escape")
    expect(page.locator("[role=menu]")).to_have_count(0)
    expect(more).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("s")
    page.keyboard.press("Enter")
    expect(message(page, "assistant").locator(".plain-text")).to_have_text("alpha beta")
    choose(message(page, "assistant"), "Show formatted")
    expect(message(page, "assistant").locator(".reply")).to_be_visible()
    choose(message(page, "user"), "Copy")
    page.wait_for_function("async () => (await navigator.clipboard.readText()) === 'alpha beta'")


def test_a_reply_is_edited_where_it_stands_and_ctrl_z_brings_the_former_text_back(tab: Tab) -> None:
    page = tab.page
    say(tab, "alpha beta")
    say(tab, "gamma")
    choose(message(page, "assistant"), "Edit")
    box = page.get_by_role("textbox", name="Edit the message")
    expect(box).to_have_value("alpha beta")
    box.fill("one <b>\ntwo")
    box.press("Control+Enter")
    expect(message(page, "assistant").locator(".reply")).to_contain_text("one <b>")
    expect(page.locator(".message")).to_have_count(4)  # what follows stays
    page.locator("#rs-scroller").focus()
    page.keyboard.press("Control+z")
    expect(message(page, "assistant").locator(".reply")).to_have_text("alpha beta")
    expect(page.locator("#rs-said")).to_contain_text("the former text is back")
    expect(page.locator("#rs-undo")).to_be_hidden()
    page.fill("#rs-input", "typed")
    page.press("#rs-input", "Control+z")  # belongs to the text field
    expect(page.locator(".message")).to_have_count(4)


def test_ctrl_z_takes_an_edit_back_before_the_button_for_it_has_come(tab: Tab) -> None:
    page = tab.page
    say(tab, "alpha beta")
    page.route("**/variants", lambda route: None)  # the answer that would show the button is still on its way
    choose(message(page, "assistant"), "Edit")
    box = page.get_by_role("textbox", name="Edit the message")
    box.fill("one two")
    box.press("Control+Enter")
    expect(message(page, "assistant").locator(".reply")).to_have_text("one two")
    expect(page.locator("#rs-undo")).to_be_hidden()
    page.keyboard.press("Control+z")
    expect(message(page, "assistant").locator(".reply")).to_have_text("alpha beta")
    page.keyboard.press("Control+z")  # nothing is left, which is no problem to show
    expect(page.locator("#rs-said")).to_contain_text("There is nothing to undo here.")
    expect(page.locator("#rs-composer-problem")).to_be_hidden()
    page.unroute("**/variants")


def test_what_is_typed_stays_when_the_message_was_changed_or_deleted_elsewhere(tab: Tab, url: str) -> None:
    page = tab.page
    say(tab, "alpha beta")
    choose(message(page, "user"), "Edit")
    box = page.get_by_role("textbox", name="Edit the message")
    box.fill("mine")
    path = f"/messages/{message(page, 'user').get_attribute('data-id')}"
    asked(url, path, "PATCH", {"text": "theirs", "version": 0})
    page.get_by_role("button", name="Save").click()
    problem = page.locator(".edit .problem")
    expect(problem).to_contain_text("This message was changed elsewhere in the meantime.")
    expect(box).to_have_value("mine")
    page.get_by_role("button", name="Cancel").click()
    expect(message(page, "user").locator(".said")).to_have_text("theirs")

    choose(message(page, "user"), "Ask again")
    box = page.get_by_role("textbox", name="Ask again")
    box.fill("mine again")
    asked(url, path, "DELETE")
    expect(page.locator(".message.assistant")).to_have_count(0)  # this tab has heard of it
    box.press("Enter")
    expect(problem).to_contain_text("This message is gone.")
    expect(box).to_have_value("mine again")
    box.press("Escape")
    box.press("Escape")
    expect(page.locator(".message")).to_have_count(0)


def test_what_was_typed_into_a_message_is_there_again_after_a_reload_until_it_is_dropped(tab: Tab) -> None:
    page = tab.page
    say(tab, "alpha beta")
    choose(message(page, "assistant"), "Edit")
    box = page.get_by_role("textbox", name="Edit the message")
    box.press_sequentially(" and more")
    page.reload()
    page.wait_for_selector("body.rs-ready")
    choose(message(page, "assistant"), "Edit")
    expect(box).to_have_value("alpha beta and more")
    expect(page.locator(".edit-note")).to_have_text("What you typed before is here again")
    box.press("Escape")
    box.press("Escape")
    expect(message(page, "assistant").locator(".reply")).to_have_text("alpha beta")
    choose(message(page, "assistant"), "Edit")
    expect(box).to_have_value("alpha beta")
    page.get_by_role("button", name="Cancel").click()


def test_a_question_is_asked_again_beside_the_former_one(tab: Tab) -> None:
    page = tab.page
    say(tab, "alpha beta")
    say(tab, "gamma")
    choose(message(page, "user"), "Ask again")
    page.get_by_role("textbox", name="Ask again").fill("delta")
    page.keyboard.press("Enter")
    expect(page.locator(".message")).to_have_count(2)
    expect(message(page, "assistant")).to_contain_text("delta")
    expect(message(page, "user").locator(".variant-number")).to_have_text("2 / 2")
    page.click("#rs-undo")
    expect(page.locator(".message")).to_have_count(4)


def test_a_reply_is_kept_up_to_the_end_of_a_selection(tab: Tab, url: str) -> None:
    page = tab.page
    say(tab, "Some *bold* words 🎈 and the bold end of it all")
    page.evaluate(
        """() => {
          const text = document.querySelector('.message.assistant .reply p').lastChild;
          const at = text.data.indexOf('the') + 3;
          getSelection().setBaseAndExtent(text, 2, text, at);
        }"""
    )
    choose(message(page, "assistant"), "Keep up to the selection’s end…")
    expect(page.locator("dialog [role=status]")).to_contain_text("and the”")
    page.keyboard.press("ArrowRight")
    expect(page.locator("dialog [role=status]")).to_contain_text("Keeps 28 of 46 characters")
    page.keyboard.press("ArrowLeft")
    page.get_by_role("button", name="Keep up to the cursor").click()
    expect(page.locator(".variant-number")).to_have_text("2 / 2")
    assert stored_text(url, tab) == "Some *bold* words 🎈 and the"
    expect(message(page, "assistant").locator("footer")).to_contain_text("cut by you")


def test_deleting_and_branching_are_undone(tab: Tab) -> None:
    page = tab.page
    say(tab, "alpha beta")
    say(tab, "gamma")
    choose(message(page, "user", 1), "Delete")
    expect(page.locator(".message")).to_have_count(2)
    expect(page.locator("#rs-undo")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".message")).to_have_count(4)
    choose(message(page, "assistant"), "Branch from here")
    expect(page.locator(".message")).to_have_count(2)
    expect(page.locator("#rs-input")).to_be_focused()
    say(tab, "elsewhere")
    expect(message(page, "user", 1).locator(".variant-number")).to_have_text("2 / 2")
    page.click("#rs-undo")
    expect(message(page, "user", 1).locator(".said")).to_have_text("gamma")


def test_the_tree_is_walked_with_arrow_keys_and_enter_goes_there(tab: Tab) -> None:
    page = tab.page
    say(tab, "alpha beta")
    choose(message(page, "assistant"), "Write another reply")
    expect(page.locator(".variant-number")).to_have_text("2 / 2")
    tab.wait_for_end()
    say(tab, "gamma")
    page.click("#rs-branches")
    rows = page.get_by_role("treeitem")
    expect(rows).to_have_count(5)
    expect(page.locator("[role=treeitem][aria-current=true]")).to_have_count(4)
    focused = page.locator("[role=treeitem]:focus")
    expect(focused).to_contain_text("gamma")
    page.keyboard.press("ArrowLeft")
    expect(focused).to_contain_text("2 of 2")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("[role=treeitem]:visible")).to_have_count(3)
    page.keyboard.press("ArrowUp")
    expect(focused).to_contain_text("1 of 2")
    page.keyboard.press("Enter")
    expect(page.locator("dialog")).to_have_count(0)
    expect(page.locator(".message")).to_have_count(2)
    expect(page.locator(".variant-number")).to_have_text("1 / 2")
    expect(message(page, "assistant").locator(".more")).to_be_focused()


def test_another_branch_is_looked_at_while_a_reply_is_written(tab: Tab) -> None:
    page = tab.page
    tab.send("on and " * 4000)
    tab.wait_for_tokens(20)
    page.click("#rs-stop")
    tab.wait_for_end()
    page.click("[data-action=regenerate]")
    expect(page.locator(".variant-number")).to_have_text("2 / 2")
    tab.wait_for_tokens(20)
    page.get_by_role("button", name="Previous variant").click()
    expect(page.locator(".variant-number")).to_have_text("1 / 2")
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    expect(page.locator("#rs-stop")).to_be_visible()
    page.wait_for_timeout(2000)  # several events of the reply that is not on screen
    assert len([asked_for for asked_for in requests if "/app/stream" in asked_for]) <= 1
    message(page, "assistant").locator(".more").click()
    expect(page.get_by_role("menuitem", name="Delete")).to_have_attribute("aria-disabled", "true")
    page.get_by_role("menuitem", name="Compare variants").click()
    column = page.locator(".variant").nth(1)
    expect(column).to_contain_text("being written")
    column.locator(".variant-text").evaluate("text => text.scrollTo(0, 1e9)")  # it loads as far as the reader is
    shown = column.locator(".variant-text").inner_text()
    grown = "known => document.querySelectorAll('.variant-text')[1].innerText.length > known"
    page.wait_for_function(grown, arg=len(shown))
    page.keyboard.press("Escape")
    page.click("#rs-stop")
    expect(page.locator("#rs-send")).to_be_visible()


def test_a_tree_of_a_thousand_messages_is_walked_at_360_pixels(tab: Tab) -> None:
    page = tab.page
    page.locator(".chat-open", has_text="Long").click()
    expect(page.locator(".message").last).to_contain_text(f"answer {NUM_MANY // 2 - 1}")
    page.set_viewport_size({"width": 360, "height": 740})
    page.click("#rs-branches")
    expect(page.get_by_role("treeitem")).to_have_count(NUM_MANY)
    expect(page.locator("[role=treeitem]:focus")).to_contain_text(f"answer {NUM_MANY // 2 - 1}")
    page.keyboard.press("Home")
    expect(page.locator("[role=treeitem]:focus")).to_contain_text("question 0")
    page.keyboard.press("Enter")
    expect(message(page, "user").locator(".more")).to_be_focused()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
