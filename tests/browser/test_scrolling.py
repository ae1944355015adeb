"""Whatever is larger than its place scrolls there, by wheel and by Tab, at four sizes, light and dark."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import NewTab, StartRingside, Tab

pytestmark = pytest.mark.browser

SIZES = ((1440, 900), (1366, 768), (1920, 1080), (390, 844))
MOST_STEPS = 200

IN_SIGHT = """
element => {
  const box = element.getBoundingClientRect();
  const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
  if (x < 0 || y < 0 || x > innerWidth || y > innerHeight) return false;
  const there = document.elementFromPoint(x, y);
  return element.contains(there) || Boolean(there?.contains(element));
}
"""
FRAME_PLACE = """
() => ['.top', '#rs-shell', '#rs-middle', '.gradio-container', 'html', 'body'].map((name) => {
  const element = document.querySelector(name);
  return [element.getBoundingClientRect().top, element.scrollTop, element.scrollLeft];
})
"""
OUTSIDE = """
() => [...document.querySelectorAll('#rs-shell *')].filter((element) => {
  const box = element.getBoundingClientRect();
  if (!box.width || !box.height || element.closest('.visually-hidden, svg')) return false;
  if (getComputedStyle(element).visibility === 'hidden') return false;
  if (box.right <= innerWidth + 1 && box.bottom <= innerHeight + 1 && box.left >= -1 && box.top >= -1) return false;
  for (let around = element.parentElement; around.id !== 'rs-shell'; around = around.parentElement) {
    const { overflowX, overflowY } = getComputedStyle(around);
    if (/auto|scroll|hidden/.test(overflowX + overflowY)) return false;
  }
  return true;
}).map((element) => `${element.tagName} #${element.id} .${element.className}`)
"""
CUT_ACROSS = """
() => [...document.querySelectorAll('.scrolls')]
  .filter((area) => area.clientWidth && area.scrollWidth > area.clientWidth)
  .map((area) => `${area.id} ${area.className}: ${area.scrollWidth} in ${area.clientWidth}`)
"""
AT_ITS_END = "area => area.scrollTop + area.clientHeight >= area.scrollHeight - 2"
HEIGHT = "area => area.clientHeight"
SETTLED = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


@pytest.fixture(
    params=[(*size, theme) for size in SIZES for theme in ("light", "dark")], ids=lambda each: "-".join(map(str, each))
)
def tab(request: pytest.FixtureRequest, shared_ringside: StartRingside, new_tab: NewTab) -> Tab:
    """A chat with a reply, on a window of one size in one theme, beside so many chats that their list scrolls."""
    width, height, theme = request.param
    url = shared_ringside(rate="max", end_after="500").url
    for number in range(40):
        ask(f"{url}app/chats/{ask(f'{url}app/chats')['id']}", {"title": f"Chat {number}"}, "PATCH")
    tab = new_tab(width=width, height=height)
    tab.page.emulate_media(color_scheme=theme)
    tab.open(url)
    assert tab.page.evaluate("document.body.classList.contains('dark')") is (theme == "dark")
    return tab


def ask(url: str, content: Any = None, method: str = "POST") -> Any:
    body = json.dumps(content or {}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def write_reply(tab: Tab) -> None:
    tab.send("Write on.")
    tab.wait_for_end()
    expect(tab.page.locator("#rs-csv")).to_be_attached()


def is_narrow(page: Page) -> bool:
    return bool(page.evaluate("innerWidth") < 860)


def reach_by_wheel(page: Page, area: str, last: Locator) -> None:
    """Turn the wheel over an area until its last control is in sight."""
    turn_wheel(page, area, lambda: last.count() == 1 and last.evaluate(IN_SIGHT))


def turn_wheel(page: Page, area: str, is_there: Callable[[], bool]) -> None:
    place = page.locator(area)
    place.hover(position={"x": 60, "y": min(page.evaluate("innerHeight"), place.evaluate(HEIGHT)) / 2})
    for _ in range(MOST_STEPS):
        if is_there():
            return
        page.mouse.wheel(0, 300)
        page.evaluate(SETTLED)
    raise AssertionError(f"the wheel does not bring the end of {area} into sight")


def reach_by_tab(page: Page, first: str, last: Locator) -> None:
    """Press Tab from a control on until the last one has the focus; it must be in sight then."""
    page.locator(first).focus()
    for _ in range(MOST_STEPS):
        if last.evaluate("element => element === document.activeElement"):
            page.wait_for_function(IN_SIGHT, arg=last.element_handle())
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab does not reach {last} from {first}")


def test_every_area_of_a_chat_is_reached_to_its_end_and_the_frame_stays(tab: Tab) -> None:
    page = tab.page
    write_reply(tab)
    frame = page.evaluate(FRAME_PLACE)

    def check() -> None:
        assert page.evaluate(FRAME_PLACE) == frame
        assert page.evaluate(OUTSIDE) == []
        assert page.evaluate(CUT_ACROSS) == []

    check()
    page.evaluate("document.getElementById('rs-scroller').scrollTop = 0")
    last = page.locator(".message.assistant footer button:visible").last
    reach_by_wheel(page, "#rs-scroller", last)
    page.evaluate("document.getElementById('rs-scroller').scrollTop = 0")
    reach_by_tab(page, "#rs-scroller", last)
    check()
    if is_narrow(page):
        page.get_by_role("button", name="Figures").click()
    pause = page.locator("#rs-pause")
    reach_by_wheel(page, ".panel", page.locator("#rs-csv"))
    page.evaluate("document.querySelector('.panel').scrollTop = 0")
    reach_by_tab(page, "#rs-scale", pause)
    reach_by_tab(page, "#rs-scale", page.locator("#rs-csv"))
    check()
    if is_narrow(page):
        page.keyboard.press("Escape")
    page.locator("#rs-open-settings").click()
    expect(page.locator("#rs-settings")).not_to_have_attribute("inert", "")
    for card in page.locator("#rs-settings button.label-wrap").all():
        card.click()
    last = page.locator("#rs-chat-template textarea")
    expect(last).to_be_visible()
    page.evaluate("document.getElementById('rs-start').scrollTop = 0")
    reach_by_wheel(page, "#rs-start", last)
    page.evaluate("document.getElementById('rs-start').scrollTop = 0")
    reach_by_tab(page, "#rs-close-settings", last)
    check()


def test_menus_and_windows_are_reached_to_their_ends_and_the_frame_stays(tab: Tab) -> None:
    page = tab.page
    write_reply(tab)
    frame = page.evaluate(FRAME_PLACE)
    page.locator(".message.assistant .more").click()
    last = page.locator(".menu-item").last
    reach_by_wheel(page, ".menu", last)
    page.keyboard.press("End")
    assert last.evaluate("element => element === document.activeElement")
    assert last.evaluate(IN_SIGHT)
    page.keyboard.press("Escape")
    page.locator(".message.assistant .more").click()
    page.get_by_role("menuitem", name="Prompt").click()
    last = page.locator(".rs-dialog button").last
    expect(last).to_be_visible()
    reach_by_wheel(page, ".dialog-body", last)
    reach_by_tab(page, ".rs-dialog .dialog-head button", last)
    page.keyboard.press("Escape")
    page.locator("#rs-engine-text").click()
    assert page.locator("#rs-engine-facts").evaluate(IN_SIGHT)
    assert page.evaluate(FRAME_PLACE) == frame
    assert page.evaluate(OUTSIDE) == []


def test_the_side_and_the_first_screen_are_reached_to_their_ends_and_the_frame_stays(tab: Tab) -> None:
    page = tab.page
    page.wait_for_selector("#rs-openings button")
    frame = page.evaluate(FRAME_PLACE)
    if is_narrow(page):
        page.get_by_role("button", name="Chats", exact=True).click()
    oldest = page.locator("#rs-chat-list").get_by_text("Chat 0", exact=True)
    reach_by_wheel(page, "#rs-chat-scroller", oldest)
    reach_by_tab(page, "#rs-new-chat", page.get_by_role("link", name="Doctor"))
    if is_narrow(page):
        page.keyboard.press("Escape")
    last = page.locator("#rs-openings button").last
    reach_by_wheel(page, "#rs-start", last)
    page.evaluate("document.getElementById('rs-start').scrollTop = 0")
    reach_by_tab(page, "#rs-demo", last)
    assert page.evaluate(FRAME_PLACE) == frame
    assert page.evaluate(OUTSIDE) == []
    assert page.evaluate(CUT_ACROSS) == []


def test_a_notebook_is_reached_to_its_end_and_the_frame_stays(tab: Tab) -> None:
    page = tab.page
    frame = page.evaluate(FRAME_PLACE)
    page.locator("#rs-new-notebook").evaluate("button => button.click()")
    page.locator("#rs-notebook-text").click()
    page.keyboard.insert_text("\n".join(f"Line {number}" for number in range(200)))
    page.evaluate("document.getElementById('rs-notebook-scroller').scrollTop = 0")
    turn_wheel(page, "#rs-notebook-scroller", lambda: page.locator("#rs-notebook-scroller").evaluate(AT_ITS_END))
    reach_by_tab(page, "#rs-notebook-text", page.locator("[data-notebook=copy]"))
    assert page.evaluate(FRAME_PLACE) == frame
    assert page.evaluate(OUTSIDE) == []


@pytest.mark.parametrize("name", ["compare", "doctor"])
def test_compare_and_doctor_are_reached_to_their_ends_and_their_head_stays(tab: Tab, name: str) -> None:
    page = tab.page
    page.goto(f"{page.url.split('#')[0]}app/{name}")
    page.wait_for_selector("body.rs-ready")
    page.wait_for_selector("#rs-runs fieldset")
    last = page.locator("#rs-proof-form button").last
    head = page.locator(".proof-top")
    reach_by_wheel(page, "main", last)
    assert head.evaluate("element => element.getBoundingClientRect().top") == 0
    page.evaluate("window.scrollTo(0, 0)")
    reach_by_tab(page, "#rs-theme", last)
    assert head.evaluate("element => element.getBoundingClientRect().top") == 0
    assert page.evaluate("document.documentElement.scrollWidth") == page.evaluate("innerWidth")
