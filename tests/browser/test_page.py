"""The page in a real browser, on the echo backend: what a person does in the first ten minutes."""

from __future__ import annotations

import json
import urllib.request

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import NewTab, StartRingside, Tab
from tests.browser.driving import SHOWN_TEXT
from tests.browser.driving import words as words

pytestmark = pytest.mark.browser


def stored_text(url: str, tab: Tab) -> str:
    """Return the last reply's text as the server keeps it."""
    message = tab.page.locator(".message.assistant").last.get_attribute("data-id")
    with urllib.request.urlopen(f"{url}app/messages/{message}/text") as answer:
        return str(answer.read().decode())


def shown_text(tab: Tab) -> str:
    return str(tab.reply().evaluate(SHOWN_TEXT))


def test_a_reply_streams_with_its_figures_and_ends(start_ringside: StartRingside, new_tab: NewTab) -> None:
    ringside = start_ringside(rate="150", end_after="600")
    tab = new_tab(ringside.url)
    tab.send("Write something long.")
    tab.wait_for_tokens(100)
    expect(tab.page.locator("#rs-stop")).to_be_visible()
    tab.wait_for_end()
    expect(tab.page.locator("[data-number=tokens]")).to_have_text("600")
    expect(tab.page.locator(".message.assistant footer")).to_contain_text("finished")
    kept = stored_text(ringside.url, tab)
    assert words(shown_text(tab)) == words(kept)
    assert tab.page.title().startswith("Write something long.")


def test_stop_keeps_the_text_and_continue_goes_on_in_the_same_message(
    shared_ringside: StartRingside, new_tab: NewTab
) -> None:
    ringside = shared_ringside(rate="150")
    tab = new_tab(ringside.url)
    tab.send("Write without end.")
    tab.wait_for_tokens(80)
    tab.page.click("#rs-stop")
    tab.wait_for_end()
    expect(tab.page.locator(".message.assistant footer")).to_contain_text("stopped by you")
    first = stored_text(ringside.url, tab)
    tab.page.click("[data-action=continue]")
    tab.wait_for_tokens(200)
    tab.page.click("#rs-stop")
    tab.wait_for_end()
    second = stored_text(ringside.url, tab)
    assert second.startswith(first)
    assert len(second) > len(first)
    assert tab.page.locator(".message.assistant").count() == 1
    assert words(shown_text(tab)) == words(second)


def test_regenerate_and_edit_replace_what_followed(start_ringside: StartRingside, new_tab: NewTab) -> None:
    ringside = start_ringside(rate="max", text="prompt", end_after="30")
    tab = new_tab(ringside.url)
    tab.send("alpha beta")
    tab.wait_for_end()
    before = tab.page.locator(".message.assistant").get_attribute("data-id")
    tab.page.click("[data-action=regenerate]")
    expect(tab.page.locator(f".message[data-id='{before}']")).to_have_count(0)
    tab.wait_for_end()
    tab.page.locator(".message.user").hover()
    tab.page.click("[data-action=edit]")
    tab.page.fill(".edit textarea", "gamma delta")
    tab.page.press(".edit textarea", "Enter")
    expect(tab.page.locator(".message.user .said")).to_have_text(["gamma delta"])
    tab.wait_for_end()
    expect(tab.reply()).to_contain_text("gamma delta")
    assert tab.page.locator(".message").count() == 2


def test_reload_in_mid_reply_shows_all_of_it_and_goes_on(start_ringside: StartRingside, new_tab: NewTab) -> None:
    ringside = start_ringside(rate="120", end_after="900")
    tab = new_tab(ringside.url)
    tab.send("Write on.")
    tab.wait_for_tokens(150)
    beginning = words(shown_text(tab))[:40]
    tab.page.reload()
    tab.page.wait_for_selector("body.rs-ready")
    expect(tab.page.locator("#rs-stop")).to_be_visible()
    tab.wait_for_tokens(300)
    assert words(shown_text(tab))[:40] == beginning
    other = new_tab(tab.page.url)
    other.wait_for_end()
    tab.wait_for_end()
    assert shown_text(tab) == shown_text(other)
    assert words(shown_text(tab)) == words(stored_text(ringside.url, tab))


def test_reload_right_after_stop_shows_the_partial_reply(shared_ringside: StartRingside, new_tab: NewTab) -> None:
    ringside = shared_ringside(rate="150")
    tab = new_tab(ringside.url)
    tab.send("Write on.")
    tab.wait_for_tokens(60)
    tab.page.click("#rs-stop")
    tab.page.reload()
    tab.wait_for_end()
    kept = stored_text(ringside.url, tab)
    assert words(shown_text(tab)) == words(kept)
    expect(tab.page.locator(".message.assistant footer")).to_contain_text("stopped by you")


def test_a_second_tab_sees_a_message_sent_in_the_first(start_ringside: StartRingside, new_tab: NewTab) -> None:
    ringside = start_ringside(rate="100", end_after="150")
    first = new_tab(ringside.url)
    first.send("One.")
    first.wait_for_end()
    second = new_tab(first.page.url)
    expect(second.page.locator(".message.user")).to_have_count(1)
    first.send("Two.")
    expect(second.page.locator(".message.user")).to_have_count(2)
    for tab in (first, second):  # each hears of the end by itself
        tab.page.wait_for_function("document.querySelectorAll('.message.assistant [data-action=copy]').length === 2")
    assert shown_text(first) == shown_text(second)


def test_a_stale_tab_goes_on_by_itself_once_the_application_is_back(
    start_ringside: StartRingside, new_tab: NewTab
) -> None:
    ringside = start_ringside(rate="100", end_after="100")
    tab = new_tab(ringside.url)
    tab.send("Before.")
    tab.wait_for_end()
    kept = stored_text(ringside.url, tab)
    ringside.stop()
    tab.page.fill("#rs-input", "While it was away.")
    tab.page.press("#rs-input", "Enter")
    expect(tab.page.locator("#rs-composer-problem")).to_contain_text("does not answer")
    expect(tab.page.locator("#rs-input")).to_have_value("While it was away.")
    ringside.start()
    expect(tab.page.locator("#rs-composer-problem")).to_be_hidden(timeout=20_000)
    assert words(shown_text(tab)) == words(kept)
    tab.page.press("#rs-input", "Enter")
    expect(tab.page.locator(".message.user")).to_have_count(2)
    tab.page.wait_for_function("document.querySelectorAll('.message.assistant [data-action=copy]').length === 2")


def test_what_is_typed_survives_a_reload_and_each_chat_has_its_own_draft(
    shared_ringside: StartRingside, new_tab: NewTab
) -> None:
    ringside = shared_ringside(rate="max", end_after="5")
    tab = new_tab(ringside.url)
    tab.send("First chat.")
    tab.wait_for_end()
    tab.page.fill("#rs-input", "half a thought")
    tab.page.reload()
    tab.page.wait_for_selector("body.rs-ready")
    expect(tab.page.locator("#rs-input")).to_have_value("half a thought")
    tab.page.click("#rs-new-chat")
    expect(tab.page.locator("#rs-input")).to_have_value("")
    tab.page.click(".chat-open")
    expect(tab.page.locator("#rs-input")).to_have_value("half a thought")


def test_enter_sends_and_shift_enter_breaks_the_line(shared_ringside: StartRingside, new_tab: NewTab) -> None:
    ringside = shared_ringside(rate="max", end_after="5")
    tab = new_tab(ringside.url)
    tab.page.focus("#rs-input")
    tab.page.keyboard.type("one")
    tab.page.keyboard.press("Shift+Enter")
    tab.page.keyboard.type("two")
    assert tab.page.input_value("#rs-input") == "one\ntwo"
    tab.page.keyboard.press("Enter")
    expect(tab.page.locator(".said")).to_have_text("one\ntwo")
    expect(tab.page.locator("#rs-input")).to_have_value("")


def test_chats_are_found_renamed_switched_and_deleted(shared_ringside: StartRingside, new_tab: NewTab) -> None:
    ringside = shared_ringside(rate="max", end_after="5")
    tab = new_tab(ringside.url)
    for title in ("About rivers", "About stones"):
        tab.page.click("#rs-new-chat")
        tab.send(title)
        tab.wait_for_end()
    rows = tab.page.locator("#rs-chat-list li")
    expect(rows).to_have_count(2)
    tab.page.fill("#rs-search", "river")
    expect(tab.page.locator(".found-title")).to_have_count(1)
    tab.page.click(".found-title")
    expect(tab.page.locator(".said")).to_have_text("About rivers")
    tab.page.fill("#rs-search", "")
    choose(tab, "About rivers", "Rename")
    tab.page.fill(".chat-rename", "About rivers and lakes")
    tab.page.press(".chat-rename", "Enter")
    expect(rows.last).to_contain_text("About rivers and lakes")
    choose(tab, "lakes", "Delete")
    tab.page.click(".confirm .danger")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("About stones")


def choose(tab: Tab, title: str, *labels: str) -> None:
    """Choose from the menu of a chat in the list."""
    row = tab.page.locator(".chat-row", has_text=title)
    row.hover()
    row.locator("[data-do=menu]").click()
    for label in labels:
        tab.page.get_by_role("menu").get_by_text(label, exact=True).click()


def test_settings_are_plain_before_the_first_message_and_reach_the_reply(
    start_ringside: StartRingside, new_tab: NewTab
) -> None:
    ringside = start_ringside(rate="200")
    tab = new_tab(ringside.url)
    expect(tab.page.locator("#rs-window input")).to_have_value("256")
    expect(tab.page.locator("#rs-settings[inert]")).to_have_count(0)
    tab.page.fill("#rs-window input", "128")
    tab.page.fill("#rs-max-new-tokens input", "40")
    tab.send("Short, please.")  # at once: the settings on the screen count
    tab.wait_for_end()
    expect(tab.page.locator("[data-number=tokens]")).to_have_text("40")
    expect(tab.page.locator("#rs-engine")).to_contain_text("W 128")
    expect(tab.page.locator(".message.assistant footer")).to_contain_text("reached its length limit")
    tab.page.click("#rs-open-settings")
    expect(tab.page.locator("#rs-window input")).to_have_value("128")
    tab.page.fill("#rs-window input", "0")
    expect(tab.page.locator("#rs-settings-problem")).to_contain_text("Window cannot be 0")


def test_the_figures_of_an_old_reply_are_shown_when_its_chat_is_opened(
    shared_ringside: StartRingside, new_tab: NewTab
) -> None:
    ringside = shared_ringside(rate="300", end_after="300")
    tab = new_tab(ringside.url)
    tab.send("Long ago.")
    tab.wait_for_end()
    tab.page.click("#rs-new-chat")
    expect(tab.page.locator("[data-number=tokens]")).to_have_text("–")
    tab.page.click(".chat-open")
    expect(tab.page.locator("[data-number=tokens]")).to_have_text("300")
    tab.page.wait_for_function("document.getElementById('rs-chart-memory').data?.some(t => t.x.at(-1) >= 290)")
    with tab.page.expect_download() as download:
        tab.page.click("#rs-csv")
    assert "tokens" in download.value.path().read_text().splitlines()[0]
    with tab.page.expect_download() as picture:
        tab.page.click("[data-png=memory]")
    assert picture.value.path().read_bytes().startswith(b"\x89PNG")


HOSTILE = [
    "# Hi <script>window.hacked = 1</script>\n\n",
    "<img src=x onerror='window.hacked = 1'>\n\n[link](javascript:window.hacked=1)\n\n",
    "![pixel](https://example.org/pixel.png)\n\n  def f():\n\treturn 1\n\n",
    "```python\n    a\tb\n\nc\n```\n\nand <think>this</think> stays.",
]


def test_hostile_text_is_harmless_and_copies_are_exact(start_ringside: StartRingside, new_tab: NewTab) -> None:
    ringside = start_ringside(rate="20", text="script", script=json.dumps(HOSTILE))
    tab = new_tab(ringside.url)
    tab.send("Attack.")
    tab.wait_for_end()
    expect(tab.reply()).to_contain_text("<script>window.hacked = 1</script>")
    expect(tab.reply()).to_contain_text("<think>this</think>")
    assert tab.page.evaluate("window.hacked") is None
    assert tab.reply().locator("img, script").count() == 0
    assert stored_text(ringside.url, tab) == "".join(HOSTILE)
    tab.page.click(".copy-code")
    expect(tab.page.locator(".copy-code").first).to_have_text("Copied")
    assert tab.page.evaluate("navigator.clipboard.readText()") == "    a\tb\n\nc\n"
    tab.page.locator(".message.assistant [data-action=copy]").click()
    tab.page.wait_for_function("async text => (await navigator.clipboard.readText()) === text", arg="".join(HOSTILE))


def test_following_lets_go_when_the_reader_scrolls_up_and_comes_back_on_request(
    shared_ringside: StartRingside, new_tab: NewTab
) -> None:
    ringside = shared_ringside(rate="150")
    tab = new_tab(ringside.url)
    tab.send("Go on.")
    tab.wait_for_tokens(900)
    at_end = "(s => s.scrollHeight - s.scrollTop - s.clientHeight)(document.getElementById('rs-scroller'))"
    tab.page.wait_for_function(f"{at_end} < 60")
    tab.page.locator("#rs-scroller").hover()
    tab.page.mouse.wheel(0, -600)
    expect(tab.page.locator("#rs-to-end")).to_be_visible()
    place = tab.page.evaluate("document.getElementById('rs-scroller').scrollTop")
    tab.wait_for_tokens(1300)
    assert abs(tab.page.evaluate("document.getElementById('rs-scroller').scrollTop") - place) < 5
    tab.page.click("#rs-to-end")
    tab.page.wait_for_function(f"{at_end} < 60")
    tab.page.click("#rs-stop")


@pytest.mark.parametrize("kind", ["runtime", "kill"])
def test_an_error_is_one_sentence_and_the_next_try_works(
    start_ringside: StartRingside, new_tab: NewTab, kind: str
) -> None:
    ringside = start_ringside(rate="100", fail_at="60", fail_kind=kind)
    tab = new_tab(ringside.url)
    tab.send("Break in the middle.")
    problem = tab.page.locator(".message.assistant .problem")
    expect(problem).to_be_visible(timeout=60_000)
    assert "Traceback" not in problem.inner_text()
    assert len(problem.inner_text()) < 300
    assert len(words(shown_text(tab))) > 5
    tab.page.click("[data-action=regenerate]")
    expect(problem).to_be_hidden()
    tab.page.wait_for_function(f"({SHOWN_TEXT})(document.querySelector('.message.assistant .reply')).length > 60")


@pytest.mark.parametrize("width", [360, 700])
def test_a_narrow_screen_has_everything_in_drawers(shared_ringside: StartRingside, new_tab: NewTab, width: int) -> None:
    ringside = shared_ringside(rate="300", end_after="300")
    tab = new_tab(ringside.url, width=width, height=740)
    tab.send("Narrow.")
    tab.wait_for_end()
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width
    tab.page.click("[data-open=panel]")
    expect(tab.page.locator("#rs-chart-memory .main-svg").first).to_be_visible()
    tab.page.keyboard.press("Escape")
    expect(tab.page.locator("#rs-panel")).to_be_hidden()
    tab.page.click("[data-open=side]")
    expect(tab.page.locator("#rs-new-chat")).to_be_visible()
    tab.page.click("#rs-new-chat")
    expect(tab.page.locator("#rs-settings")).to_be_visible()


def test_ctrl_c_ends_it_at_once_with_a_tab_open_and_keeps_the_text(
    start_ringside: StartRingside, new_tab: NewTab
) -> None:
    ringside = start_ringside(rate="100")
    tab = new_tab(ringside.url)
    tab.send("Keep this.")
    tab.wait_for_tokens(80)
    beginning = words(shown_text(tab))[:20]
    assert ringside.stop() == 0
    ringside.start()
    tab.wait_for_end()
    assert words(shown_text(tab))[:20] == beginning
