"""A chat of two thousand messages: few elements at any time, every message reached, and changed where it stands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from app.content import Content
from app.message_window import NUM_NEWEST
from app.settings import Settings
from app.store import Store
from tests.browser.conftest import PATIENCE_MS, Tab
from tests.browser.driving import Ringside
from tests.browser.test_long_reading import FROM_END, copied
from tests.browser.test_message_controls import asked, choose

pytestmark = pytest.mark.browser

MAX_ELEMENTS = 3_000
"""Of the whole page; all messages in it would be more than 25,000."""

NUM_MESSAGES = 2_000
NUM_TO_CHANGE = 300
"""Messages of the chat in which tests change something."""


def text_of(number: int) -> str:
    """Return the text of message `number`: questions are even, answers odd and of different lengths."""
    if number % 2 == 0:
        return f"question {number} about the ring"
    heading = f"## Part {number}\n\n" if number % 100 == 1 else ""
    body = "The ring keeps **what it has** seen and goes on. " * (1 + number % 23)
    return f"{heading}answer {number}: {body.strip()}\n\n- first of {number}\n- second of {number}"


def seed(path: Path, title: str, num_messages: int) -> tuple[int, list[int]]:
    """Put a chat of so many messages into the store; return its id and theirs."""
    store = Store(path)
    chat = store.add_chat(title, "")
    ids: list[int] = []
    with store.database.writing():
        for number in range(num_messages):
            parent = ids[-1] if ids else None
            role: Literal["user", "assistant"] = "assistant" if number % 2 else "user"
            ids.append(store.tree.add(chat.id, role, parent, Content(text_of(number)), "complete"))
    store.close()
    return chat.id, ids


@dataclass
class Reader:
    """One tab that all tests read in, and the ids of the messages by chat."""

    tab: Tab
    url: str
    chats: dict[str, int]
    ids: dict[str, list[int]]

    @property
    def page(self) -> Page:
        return self.tab.page

    def open(self, name: str) -> None:
        """Open a chat by name, at its end, with nothing else open."""
        self.page.evaluate("location.hash = ''")
        expect(self.page.locator("#rs-title")).to_have_text("New chat")
        self.page.evaluate("id => { location.hash = `chat=${id}` }", self.chats[name])
        expect(self.page.locator("#rs-title")).to_have_text(name)
        self.wait_for_view(len(self.ids[name]) - 1)
        self.page.wait_for_function(f"{FROM_END} < 60")

    def wait_for_view(self, number: int) -> None:
        """Wait until message `number` is on the screen, with its text."""
        self.page.wait_for_function(f"number => ({IN_VIEW})().includes(number)", arg=number)

    def go_to_share(self, percent: int) -> None:
        self.page.keyboard.press("Control+g")
        self.page.fill("#rs-go-to-share input", str(percent))
        self.page.keyboard.press("Enter")
        self.page.keyboard.press("Escape")


IN_VIEW = """
() => {
  const screen = document.getElementById('rs-scroller').getBoundingClientRect();
  return [...document.querySelectorAll('.message')].filter(message => {
    const { top, bottom } = message.getBoundingClientRect();
    return bottom > screen.top + 1 && top < screen.bottom - 1;
  }).map(message => Number(message.textContent.match(/(?:question|answer) (\\d+)/)?.[1] ?? -1));
}
"""
"""Script that returns the numbers of the messages on the screen."""

REST = """
() => new Promise(resolve => {
  const scroller = document.getElementById('rs-scroller');
  let place = '', still = 0;
  const look = () => {
    const now = `${scroller.scrollTop} ${scroller.scrollHeight} ${document.querySelectorAll('.message').length}`;
    still = now === place ? still + 1 : 0;
    place = now;
    if (still === 10) resolve();
    else requestAnimationFrame(look);
  };
  look();
})
"""
"""Script that waits until the messages are where they stay."""


def in_view(page: Page) -> list[int]:
    return [int(number) for number in page.evaluate(IN_VIEW)]


def num_elements(page: Page) -> int:
    return int(page.evaluate("document.querySelectorAll('*').length"))


@pytest.fixture(scope="module")
def reader(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    home = tmp_path_factory.mktemp("many")
    path = Settings(data_folder=home).database_path
    seeded = {"Many": seed(path, "Many", NUM_MESSAGES), "Changing": seed(path, "Changing", NUM_TO_CHANGE)}
    ringside = Ringside(home, ("--backend", "echo", "--window", "256", "--option=text=prompt", "--option=rate=200"))
    ringside.start()
    context = chromium.new_context(
        viewport={"width": 1280, "height": 800}, permissions=["clipboard-read", "clipboard-write"]
    )
    tab = Tab(context.new_page())
    tab.page.set_default_timeout(PATIENCE_MS)
    tab.page.on("pageerror", lambda error: tab.complaints.append(str(error)))
    tab.open(ringside.url)
    chats = {name: chat for name, (chat, _) in seeded.items()}
    yield Reader(tab, ringside.url, chats, {name: ids for name, (_, ids) in seeded.items()})
    context.close()
    ringside.stop()
    assert not tab.complaints


def test_a_long_chat_opens_at_its_end_with_few_elements_and_tells_screen_readers_how_long_it_is(reader: Reader) -> None:
    page = reader.page
    asked_for: list[str] = []
    page.on("request", lambda request: asked_for.append(request.url))
    reader.open("Many")
    page.evaluate(REST)
    assert num_elements(page) < MAX_ELEMENTS
    ids = [int(number) for url in asked_for if "/app/messages?" in url for number in re.findall(r"ids=(\d+)", url)]
    assert not set(ids) & set(reader.ids["Many"][-NUM_NEWEST:])  # what came with the chat is not asked for again
    last = page.locator("[role=feed] .message").last
    expect(last).to_have_attribute("aria-posinset", str(NUM_MESSAGES))
    expect(last).to_have_attribute("aria-setsize", str(NUM_MESSAGES))
    expect(last.locator("[data-action=regenerate]")).to_be_visible()


@pytest.mark.parametrize("step", [-500, 500])
def test_the_wheel_reaches_messages_one_after_the_other_and_nothing_jumps(reader: Reader, step: int) -> None:
    reader.open("Many")
    page = reader.page
    if step > 0:
        reader.go_to_share(0)
        reader.wait_for_view(0)
    page.evaluate(REST)
    page.locator("#rs-scroller").hover()
    seen = set(in_view(page))
    for _ in range(30):
        page.evaluate(MARK)
        page.mouse.wheel(0, step)
        page.wait_for_function("step => Math.abs(window.moved() + step) < 100", arg=step)
        page.evaluate(REST)
        assert abs(page.evaluate("window.moved()") + step) < 3
        seen.update(in_view(page))
        assert num_elements(page) < MAX_ELEMENTS
    assert seen == set(range(min(seen), max(seen) + 1))
    assert len(seen) > 40


MARK = """
() => {
  const screen = document.getElementById('rs-scroller').getBoundingClientRect();
  const below = screen.top + screen.height / 2;
  const marked = [...document.querySelectorAll('.message')].find(each => each.getBoundingClientRect().bottom > below);
  const before = marked.getBoundingClientRect().top;
  window.moved = () => marked.getBoundingClientRect().top - before;
}
"""
"""Script that notes where the message in the middle of the screen is, for `moved()` to tell how far it has moved."""


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6])
def test_a_place_dragged_to_shows_its_messages_without_a_gap(reader: Reader, share: float) -> None:
    reader.open("Many")
    page = reader.page
    page.evaluate(f"(s => {{ s.scrollTop = s.scrollHeight * {share} }})(document.getElementById('rs-scroller'))")
    page.wait_for_function(f"({IN_VIEW})().length > 0")
    page.evaluate(REST)
    shown = in_view(page)
    assert shown == list(range(shown[0], shown[0] + len(shown)))
    assert abs(shown[0] / NUM_MESSAGES - share) < 0.15
    filled = page.evaluate("""() => {
      const screen = document.getElementById('rs-scroller').getBoundingClientRect();
      return [...document.querySelectorAll('.message-group')]
        .filter(group => {
          const { top, bottom } = group.getBoundingClientRect();
          return bottom > screen.top && top < screen.bottom;
        }).every(group => group.childElementCount > 0);
    }""")
    assert filled
    assert num_elements(page) < MAX_ELEMENTS


def test_start_end_a_share_and_a_heading_are_gone_to(reader: Reader) -> None:
    reader.open("Many")
    page = reader.page
    page.keyboard.press("Control+g")
    page.locator("#rs-go-to-start").press("Enter")
    reader.wait_for_view(0)
    page.get_by_label("Narrow the headings down").fill("Part 1201")
    page.locator(".go-to-heading", has_text="Part 1201").click()
    reader.wait_for_view(1201)
    page.locator("#rs-go-to-end").press("Enter")
    reader.wait_for_view(NUM_MESSAGES - 1)
    page.wait_for_function(f"{FROM_END} < 60")
    page.keyboard.press("Escape")
    reader.go_to_share(50)
    page.wait_for_function(f"({IN_VIEW})().some(number => Math.abs(number - {NUM_MESSAGES // 2}) < 40)")
    assert num_elements(page) < MAX_ELEMENTS


def test_words_are_found_in_the_first_a_middle_and_the_last_message(reader: Reader) -> None:
    reader.open("Many")
    page = reader.page
    page.keyboard.press("Control+g")
    for words, number in (("question 0 about", 0), ("answer 1203", 1203), ("second of 1999", 1999), ("answer 7:", 7)):
        page.fill("#rs-find", words)
        expect(page.locator("#rs-find-count")).to_have_text("1 of 1")
        reader.wait_for_view(number)
        page.wait_for_function(
            """number => {
              const [range] = CSS.highlights.get('rs-hit') ?? [];
              const screen = document.getElementById('rs-scroller').getBoundingClientRect();
              if (!range?.startContainer.isConnected || !range.toString().includes(number)) return false;
              const { top } = range.getBoundingClientRect();
              return top >= screen.top && top < screen.bottom;
            }""",
            arg=str(number),
        )
    page.keyboard.press("Escape")


def test_a_search_hit_opens_the_message_wherever_it_is(reader: Reader) -> None:
    reader.open("Changing")
    page = reader.page
    page.fill("#rs-search", '"answer 901"')
    page.locator("#rs-found [role=option]").first.click()
    expect(page.locator("#rs-title")).to_have_text("Many")
    reader.wait_for_view(901)
    page.fill("#rs-search", "")


@pytest.mark.parametrize("share", [50, 100])
def test_a_selection_over_messages_that_are_not_in_the_page_is_copied_whole(reader: Reader, share: int) -> None:
    reader.open("Many")
    page = reader.page
    reader.go_to_share(share)
    page.evaluate(REST)
    number = int(page.evaluate(SELECT_A_REPLY))
    page.evaluate("document.getElementById('rs-scroller').scrollTop = 0")  # the selection stays, and so does its end
    reader.wait_for_view(0)
    page.evaluate(REST)
    assert num_elements(page) < MAX_ELEMENTS
    text = copied(
        reader.tab,
        """getSelection().setBaseAndExtent(
          document.querySelector('.message .said').firstChild, 0, window.end, window.end.length)""",
    )
    assert text == "\n\n".join(map(text_of, range(number + 1)))


SELECT_A_REPLY = """
() => {
  const screen = document.getElementById('rs-scroller').getBoundingClientRect();
  const isShown = item => item.getBoundingClientRect().bottom < screen.bottom;
  window.end = [...document.querySelectorAll('.message .reply li:last-child')].findLast(isShown).lastChild;
  getSelection().setBaseAndExtent(window.end, 0, window.end, window.end.length);
  return window.end.data.match(/\\d+/)[0];
}
"""
"""Script that selects the end of the last reply that ends on the screen and returns its number."""


def test_all_of_the_chat_is_selected_and_copied(reader: Reader) -> None:
    reader.open("Many")
    feed = "document.getElementById('rs-messages')"
    assert copied(reader.tab, f"getSelection().selectAllChildren({feed})") == "\n\n".join(
        map(text_of, range(NUM_MESSAGES))
    )


def test_the_keyboard_walks_back_through_the_messages(reader: Reader) -> None:
    reader.open("Many")
    page = reader.page
    page.locator(".message .more").last.focus()
    numbers = []
    for _ in range(150):
        page.keyboard.press("Shift+Tab")
        focused = page.evaluate("document.activeElement.closest('.message')?.textContent ?? ''")
        numbers += [int(number) for number in re.findall(r"(?:question|answer) (\d+)", focused)]
        page.evaluate("() => new Promise(requestAnimationFrame)")
    walked = list(dict.fromkeys(numbers))
    assert walked == list(range(NUM_MESSAGES - 1, NUM_MESSAGES - 1 - len(walked), -1))
    assert len(walked) > 60
    assert num_elements(page) < MAX_ELEMENTS


def open_in_the_middle(reader: Reader) -> int:
    """Open the chat that tests change and scroll to its middle; return the number of a question in view there."""
    reader.open("Changing")
    reader.go_to_share(50)
    reader.page.wait_for_function(f"({IN_VIEW})().some(number => number < 200)")
    reader.page.evaluate(REST)
    return next(number for number in in_view(reader.page)[1:] if number % 2 == 0)


def test_a_message_in_the_middle_is_edited_where_it_stands_and_the_edit_is_undone(reader: Reader) -> None:
    page, number = reader.page, open_in_the_middle(reader)
    edited = page.locator(f"[data-id='{reader.ids['Changing'][number]}']")
    choose(edited, "Edit")
    page.get_by_role("textbox", name="Edit the message").fill("something else")
    top = edited.evaluate("message => message.getBoundingClientRect().top")
    page.keyboard.press("Control+Enter")
    expect(edited.locator(".said")).to_have_text("something else")
    expect(edited.locator(".more")).to_be_focused()
    page.evaluate(REST)
    assert abs(edited.evaluate("message => message.getBoundingClientRect().top") - top) < 3
    page.keyboard.press("Control+z")
    expect(edited.locator(".said")).to_have_text(text_of(number))


def test_what_is_being_typed_into_a_message_outlasts_the_reader_going_far_away(reader: Reader) -> None:
    reader.open("Changing")
    page = reader.page
    edited = page.locator(".message.user").last
    choose(edited, "Edit")
    box = page.get_by_role("textbox", name="Edit the message")
    box.fill("half typed")
    page.evaluate("document.activeElement.blur(); document.getElementById('rs-scroller').scrollTop = 0")
    reader.wait_for_view(0)
    page.evaluate(REST)
    page.click("#rs-to-end")
    expect(box).to_have_value("half typed")
    page.get_by_role("button", name="Cancel").click()


def test_a_variant_in_the_middle_is_switched_and_the_reader_stays_there(reader: Reader) -> None:
    ids = reader.ids["Changing"]
    number = NUM_TO_CHANGE // 2
    reader.open("Changing")
    page = reader.page
    asked(reader.url, f"/messages/{ids[number]}/ask", "POST", {"text": f"question {number} asked anew"})
    expect(page.locator(".message.user").last).to_contain_text("asked anew")  # which is the end now
    reader.tab.wait_for_end()
    page.get_by_role("button", name="Previous variant").last.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".variant-number").last).to_have_text("1 / 2")
    expect(page.get_by_role("button", name="Next variant")).to_be_focused()
    reader.wait_for_view(number)
    expect(page.locator(f"[data-id='{ids[number + 1]}']")).to_contain_text(f"answer {number + 1}")


def test_a_message_in_the_middle_is_deleted_with_what_followed_and_all_of_it_comes_back(reader: Reader) -> None:
    page, number = reader.page, open_in_the_middle(reader)
    choose(page.locator(f"[data-id='{reader.ids['Changing'][number]}']"), "Delete")
    expect(page.locator("[aria-posinset]").last).to_have_attribute("aria-posinset", str(number))
    expect(page.locator("[aria-posinset]").last).to_have_attribute("aria-setsize", str(number))
    expect(page.locator("#rs-undo")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("[aria-posinset]").last).to_have_attribute("aria-posinset", str(NUM_TO_CHANGE))
    reader.wait_for_view(NUM_TO_CHANGE - 1)
    page.keyboard.press("Control+g")
    page.fill("#rs-find", f"question {number} about")
    reader.wait_for_view(number)
    page.keyboard.press("Escape")


def test_an_edit_in_another_tab_leaves_the_reader_where_he_is_and_is_there_once_he_comes(reader: Reader) -> None:
    ids = reader.ids["Changing"]
    reader.open("Changing")
    page = reader.page
    reader.go_to_share(50)
    page.wait_for_function(f"({IN_VIEW})().some(number => number < 200)")
    page.evaluate(REST)
    number = in_view(page)[0]
    page.evaluate(MARK)
    with page.expect_response(re.compile(r"/app/chats/\d+\?first=\d+&count=\d+$")):
        asked(reader.url, f"/messages/{ids[0]}", "PATCH", {"text": "edited elsewhere " * 200, "version": 0})
        asked(reader.url, f"/messages/{ids[number]}", "PATCH", {"text": "changed elsewhere", "version": 0})
    expect(page.locator(f"[data-id='{ids[number]}']")).to_contain_text("changed elsewhere")
    page.evaluate(REST)
    assert abs(page.evaluate("window.moved()")) < 3
    page.locator("#rs-scroller").focus()
    page.keyboard.press("Home")
    expect(page.locator(f"[data-id='{ids[0]}']")).to_contain_text("edited elsewhere")
    for _ in range(2):
        asked(reader.url, f"/chats/{reader.chats['Changing']}/undo", "POST")


def test_a_reply_is_written_at_the_end_while_the_reader_is_far_up_and_stays_there(reader: Reader) -> None:
    reader.open("Changing")
    page = reader.page
    reader.go_to_share(30)
    page.wait_for_function(f"({IN_VIEW})().some(number => number < 150)")
    page.evaluate(REST)
    before = in_view(page), page.evaluate("document.getElementById('rs-scroller').scrollTop")
    asked(reader.url, f"/chats/{reader.chats['Changing']}/send", "POST", {"text": "on and " * 600})
    reply = page.locator(".message.writing .reply")
    expect(reply).to_contain_text("on and on and", timeout=PATIENCE_MS)
    page.evaluate(REST)
    assert (in_view(page), page.evaluate("document.getElementById('rs-scroller').scrollTop")) == before
    page.click("#rs-to-end")
    page.wait_for_function(f"{FROM_END} < 60")
    shown = int(reply.evaluate("reply => reply.textContent.length"))
    page.wait_for_function(
        "length => document.querySelector('.message.writing .reply').textContent.length > length", arg=shown
    )
    page.wait_for_function(f"{FROM_END} < 60")  # it is followed
    page.click("#rs-stop")
    reader.tab.wait_for_end()
    asked(reader.url, f"/messages/{page.locator('.message.user').last.get_attribute('data-id')}", "DELETE")
    reader.wait_for_view(NUM_TO_CHANGE - 1)
