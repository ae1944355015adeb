"""Reading a reply of two million characters: few elements at any time, every place reached, copies exact."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from app.store import Store
from tests.browser.conftest import Tab
from tests.browser.driving import Ringside

pytestmark = pytest.mark.browser

MAX_ELEMENTS = 5_000
"""Of a reply, loaded at once; all of the long one would be more than 200,000."""


def chapter(number: int) -> str:
    return (
        f"## Chapter {number}\n\nIn chapter {number} the ring keeps **what it has** seen, some `words` of it, and goes "
        f"on for as long as anybody likes to read.\n\n- first of {number}\n- second of {number}\n\n"
        f"```python\ndef chapter_{number}(page):\n    return page + {number}\n```\n\n"
    )


NUM_CHAPTERS = 8_600
LONG_TEXT = "".join(map(chapter, range(NUM_CHAPTERS)))
ODD_TEXT = (
    "One **bold** word.\n\nTwo\u00a0spaced and soft\u00adhyphened.\n\n```text\n\ta\u00a0b  c\n\n  d\n```\n\nThe *end*."
)
LINE = "".join(f"{number:07d} " for number in range(125_000))


FROM_END = "(s => s.scrollHeight - s.scrollTop - s.clientHeight)(document.getElementById('rs-scroller'))"


@dataclass
class Reader:
    """One tab that all tests read in: what takes long is to begin, not to read."""

    tab: Tab
    chats: dict[str, int]

    @property
    def page(self) -> Page:
        return self.tab.page

    def open(self, name: str, width: int = 1440, height: int = 900) -> None:
        """Open a chat by name, at its end, with nothing else open."""
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.evaluate("location.hash = ''")
        expect(self.page.locator("#rs-title")).to_have_text("New chat", timeout=60_000)
        self.page.evaluate("id => { location.hash = `chat=${id}` }", self.chats[name])
        expect(self.page.locator("#rs-title")).to_have_text(name, timeout=60_000)
        self.page.wait_for_function("document.querySelector('.reply')?.textContent.length > 10")
        self.page.wait_for_selector(".reply > .live:not(.preview)", state="attached", timeout=120_000)
        self.page.wait_for_function(f"{FROM_END} < 60")


@pytest.fixture(scope="module")
def reader(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    ringside = Ringside(tmp_path_factory.mktemp("library"), ("--backend", "echo", "--window", "256"))
    texts = {"long": LONG_TEXT, "odd": ODD_TEXT, "line": LINE}
    chats = {name: seed(ringside.home / "chats.sqlite", name, text) for name, text in texts.items()}
    ringside.start()
    context = chromium.new_context(permissions=["clipboard-read", "clipboard-write", "notifications"])
    tab = Tab(context.new_page())
    tab.page.set_default_timeout(60_000)
    tab.page.on("pageerror", lambda error: tab.complaints.append(str(error)))
    tab.page.add_init_script(COUNT_QUESTIONS)
    tab.open(ringside.url)
    yield Reader(tab, chats)
    context.close()
    ringside.stop()
    assert not tab.complaints


COUNT_QUESTIONS = """
window.asked = 0;
const ask = Notification.requestPermission.bind(Notification);
Notification.requestPermission = () => { window.asked += 1; return ask(); };
"""
"""Script that counts how often the page asks for leave to notify."""


def seed(path: Path, title: str, text: str) -> int:
    """Put a chat with one finished reply into the store; return its id."""
    store = Store(path)
    chat = store.add_chat(title, "")
    reply = store.add_turn(chat.id, "Write.")
    store.append(reply, text, array("i", [1]))
    store.finish(reply, "complete", "stop")
    store.close()
    return chat.id


def num_elements(tab: Tab) -> int:
    return int(tab.page.evaluate("document.querySelectorAll('.reply section *').length"))


IN_VIEW = """
() => {
  const screen = document.getElementById('rs-scroller').getBoundingClientRect();
  return [...document.querySelectorAll('.reply section > *, .reply > .live > *')].filter(block => {
    const { top, bottom } = block.getBoundingClientRect();
    return bottom > screen.top + 1 && top < screen.bottom - 1;
  }).map(block => block.textContent).join('\\n');
}
"""
"""Script that returns the text of the blocks on the screen."""


def text_in_view(tab: Tab, awaited: str = "") -> str:
    """Return the text of the blocks on the screen, once there is some, or once `awaited` is in it."""
    script = f"awaited => {{ const text = ({IN_VIEW})(); return text.includes(awaited) ? text : ''; }}"
    return str(tab.page.wait_for_function(script, arg=awaited, timeout=60_000).json_value())


def chapters_in_view(tab: Tab) -> list[int]:
    return [int(number) for number in re.findall(r"Chapter (\d+)", text_in_view(tab))]


def wait_for_chapter(tab: Tab, number: int) -> None:
    """Wait until a chapter's heading is in the upper half of the screen."""
    tab.page.wait_for_function(
        """number => {
          const screen = document.getElementById('rs-scroller').getBoundingClientRect();
          return [...document.querySelectorAll('.reply h2')].some(heading => {
            const { top } = heading.getBoundingClientRect();
            const near = top >= screen.top - 1 && top < screen.top + screen.height / 2;
            return near && heading.textContent === `Chapter ${number}`;
          });
        }""",
        arg=number,
    )


def test_scrolling_through_all_of_it_keeps_few_elements_and_shows_each_place(reader: Reader) -> None:
    reader.open("long")
    tab = reader.tab
    assert len(LONG_TEXT) > 2_000_000
    assert max(chapters_in_view(tab), default=NUM_CHAPTERS - 1) == NUM_CHAPTERS - 1  # it opens at its end
    most = num_elements(tab)
    for share in (0.75, 0.5, 0.25, 0.0):
        tab.page.evaluate(
            f"(s => {{ s.scrollTop = s.scrollHeight * {share} }})(document.getElementById('rs-scroller'))"
        )
        tab.page.locator("#rs-scroller").hover()
        for _ in range(5):
            tab.page.mouse.wheel(0, 900)
            tab.page.wait_for_timeout(40)
            most = max(most, num_elements(tab))
        shown = text_in_view(tab, awaited="chapter_")
        numbers = [int(number) for number in re.findall(r"chapter_(\d+)", shown)]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        assert abs(numbers[0] / NUM_CHAPTERS - share) < 0.05
    assert 0 < most < MAX_ELEMENTS


def test_start_end_a_percentage_and_a_heading_are_reached_with_the_keyboard(reader: Reader) -> None:
    reader.open("long")
    tab = reader.tab
    page = tab.page
    page.keyboard.press("Control+g")
    expect(page.locator("#rs-find")).to_be_focused()
    page.wait_for_selector(".go-to-heading", timeout=60_000)
    page.fill("#rs-go-to-share input", "50")
    page.keyboard.press("Enter")
    middle = LONG_TEXT.rindex("## Chapter", 0, len(LONG_TEXT) // 2)
    number = int(LONG_TEXT[middle:].split(maxsplit=3)[2])
    page.wait_for_function(f"({IN_VIEW})().includes('chapter_{number}(')")
    page.get_by_label("Narrow the headings down").fill("Chapter 1234")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    wait_for_chapter(tab, 1234)
    page.locator("#rs-go-to-start").press("Enter")
    wait_for_chapter(tab, 0)
    page.locator("#rs-go-to-end").press("Enter")
    page.wait_for_function(f"{FROM_END} < 60")
    page.keyboard.press("Escape")
    expect(page.locator("#rs-go-to-box")).to_be_hidden()
    expect(page.locator("#rs-scroller")).to_be_focused()
    assert num_elements(tab) < MAX_ELEMENTS


START_WHILE_GOING = """
async () => {
  const scroller = document.getElementById('rs-scroller');
  const wanted = document.querySelector('.go-to-heading');
  const isShown = heading => {
    const { top } = heading.getBoundingClientRect();
    return heading.textContent === wanted.textContent && top > 0 && top < scroller.clientHeight;
  };
  wanted.click();
  while (![...document.querySelectorAll('.reply h2')].some(isShown)) await new Promise(requestAnimationFrame);
  document.getElementById('rs-go-to-start').click();
  for (let frame = 0; frame < 30; frame += 1) await new Promise(requestAnimationFrame);
  return scroller.scrollTop;
}
"""
"""Script that goes to the first heading listed, to the start before that has come to rest, and tells where it ends."""


def test_a_place_that_is_being_gone_to_gives_way_to_the_next(reader: Reader) -> None:
    reader.open("long")
    page = reader.page
    page.keyboard.press("Control+g")
    page.get_by_label("Narrow the headings down").fill("Chapter 2345")
    expect(page.locator(".go-to-heading")).to_have_count(1)
    assert page.evaluate(START_WHILE_GOING) == 0


def marked(tab: Tab) -> str:
    """Return the words marked strongly, with a little of what follows."""
    return str(
        tab.page.evaluate(
            """() => {
              const [range] = CSS.highlights.get('rs-hit') ?? [];
              return range ? range.startContainer.data.slice(range.startOffset, range.startOffset + 40) : '';
            }"""
        )
    )


def test_words_are_found_in_what_is_not_loaded_one_place_after_the_other(reader: Reader) -> None:
    reader.open("long")
    tab = reader.tab
    page = tab.page
    page.keyboard.press("Control+g")
    page.fill("#rs-find", "page + 777")
    expect(page.locator("#rs-find-count")).to_contain_text("of 11")
    for number, key in ((777, ""), (7770, "Enter"), (777, "Shift+Enter"), (7779, "Shift+Enter")):
        if key:
            page.press("#rs-find", key)
        page.wait_for_function(
            """number => {
              const [range] = CSS.highlights.get('rs-hit') ?? [];
              const screen = document.getElementById('rs-scroller').getBoundingClientRect();
              if (!range || !range.startContainer.isConnected) return false;
              const { top } = range.getBoundingClientRect();
              const code = range.startContainer.parentElement.closest('code').textContent;
              return code.includes(`chapter_${number}(`) && top >= screen.top && top < screen.bottom;
            }""",
            arg=number,
        )
    page.fill("#rs-find", "nowhere to be found")
    expect(page.locator("#rs-find-count")).to_have_text("Not in this chat.")
    page.fill("#rs-find", "chapter 4100 THE  ring keeps what it has seen")  # bold and plain, in any case
    expect(page.locator("#rs-find-count")).to_have_text("1 of 1")
    tab.page.wait_for_function("CSS.highlights.has('rs-hit')")
    assert marked(tab).startswith("chapter 4100 the ring keeps")


def copied(tab: Tab, select: str) -> str:
    """Select by script, press Ctrl+C and return what is in the clipboard."""
    tab.page.evaluate("navigator.clipboard.writeText('nothing')")
    tab.page.evaluate(select)
    tab.page.keyboard.press("Control+c")
    return str(
        tab.page.evaluate(
            """async () => {
              let text = 'nothing';
              for (let tries = 0; text === 'nothing' && tries < 300; tries += 1) {
                await new Promise(resolve => setTimeout(resolve, 100));
                text = await navigator.clipboard.readText();
              }
              return text;
            }"""
        )
    )


SELECT = "(([a, b]) => getSelection().setBaseAndExtent(a, 0, b, b.childNodes.length))"


def test_copies_of_parts_are_the_characters_as_they_are_kept(reader: Reader) -> None:
    reader.open("odd")
    tab = reader.tab
    code = "[document.querySelector('.reply pre code'), document.querySelector('.reply pre code')]"
    assert copied(tab, f"{SELECT}({code})") == "\ta\u00a0b  c\n\n  d\n"
    one = "[document.querySelectorAll('.reply p')[1], document.querySelectorAll('.reply p')[1]]"
    assert copied(tab, f"{SELECT}({one})") == "Two\u00a0spaced and soft\u00adhyphened."
    whole = "[document.querySelector('.reply p'), [...document.querySelectorAll('.reply p')].at(-1)]"
    assert copied(tab, f"{SELECT}({whole})") == ODD_TEXT
    part = """getSelection().setBaseAndExtent(
      document.querySelector('.reply p').lastChild, 1, document.querySelectorAll('.reply p')[1].firstChild, 3)"""
    assert copied(tab, part) == "word.\n\nTwo"


def test_a_selection_over_parts_that_are_not_loaded_is_copied_whole(reader: Reader) -> None:
    reader.open("long")
    tab = reader.tab
    body = "[document.querySelector('.reply'), document.querySelector('.reply')]"
    assert copied(tab, f"{SELECT}({body})") == LONG_TEXT.rstrip()


def test_a_line_of_a_million_characters_is_shown_in_parts(reader: Reader) -> None:
    reader.open("line", width=360, height=740)
    tab = reader.tab
    tab.page.keyboard.press("Control+g")
    tab.page.fill("#rs-find", "0062500")
    expect(tab.page.locator("#rs-find-count")).to_have_text("1 of 1")
    tab.page.wait_for_function("CSS.highlights.has('rs-hit')")
    assert "0062499 0062500 0062501" in text_in_view(tab)
    loaded = tab.page.evaluate("document.querySelector('.reply').textContent.length")
    assert loaded < 250_000
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_reply_that_grows_long_gives_its_far_parts_back(reader: Reader) -> None:
    reader.open("odd")
    tab = reader.tab
    tab.page.evaluate(
        """async () => {
          const { Reply } = await import('/app/assets/reply.js');
          const { SectionWindow } = await import('/app/assets/section_window.js');
          const reply = new Reply(0, new SectionWindow(document.getElementById('rs-scroller')));
          document.getElementById('rs-messages').append(reply.body);
          for (let first = 0; first < 8000; first += 100) {
            reply.take(first, Array.from({ length: 100 }, (_, number) => `<p>Block ${first + number}</p>`), 'open');
            await new Promise(requestAnimationFrame);
          }
          window.grown = reply;
        }"""
    )
    tab.page.wait_for_function("window.grown.body.querySelectorAll('p').length < 2000")
    assert tab.page.evaluate("window.grown.count") == 8000
    last = tab.page.evaluate("[...window.grown.body.querySelectorAll('section p')].at(-1).textContent")
    assert last == "Block 7999"


def test_leave_to_notify_is_asked_for_by_a_click_only(reader: Reader) -> None:
    tab = reader.tab
    tab.page.evaluate("location.hash = ''")
    expect(tab.page.locator("#rs-title")).to_have_text("New chat")
    tab.send("Write without end.")
    tell = tab.page.locator("#rs-tell")
    expect(tell).to_be_visible()
    assert tab.page.evaluate("window.asked") == 0
    tell.press("Enter")
    expect(tell).to_have_attribute("aria-pressed", "true")
    assert tab.page.evaluate("window.asked") == 1
    tell.press("Enter")
    expect(tell).to_have_attribute("aria-pressed", "false")
    tab.page.click("#rs-stop")
    expect(tell).to_be_hidden()
