"""Benchmark: the screen of a 50,000-token reply, in a real browser in front of the real server.

    python -m tests.browser.flat_screen [--tokens 50000] [--rate 100] [--json]

The echo backend writes at a fixed rate. Every few seconds the page's own count is compared with the server's (lag), a
50 ms timer in the page notes how late it ever was (stall), and the size of each event of the stream is taken from the
browser. At the end every word of the reply must be on the screen. Figures go into the README; nothing here is a test.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import urllib.request
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from app.proof.chromium import chromium_path
from tests.browser.driving import SHOWN_TEXT, Ringside, launch_arguments, words

_SAMPLE_S = 5.0
_STALL_SCRIPT = """
window.stall = 0;
let last = performance.now();
setInterval(() => {
  const now = performance.now();
  window.stall = Math.max(window.stall, now - last - 50);
  last = now;
}, 50);
"""


@dataclass(frozen=True)
class Moment:
    """One look at page and server: tokens on each, and the longest stall of the page since the look before."""

    time_s: float
    server_tokens: int
    page_tokens: int
    stall_ms: float

    def lag_s(self, rate: float) -> float:
        """Return how many seconds of writing the page was behind."""
        return (self.server_tokens - self.page_tokens) / rate


@dataclass(frozen=True)
class Result:
    """What the README states.

    Attributes:
        longest_lag_s: seconds of writing that the page was ever behind the server.
        longest_stall_ms: how late the page's 50 ms timer ever was.
        early_event_bytes, late_event_bytes: median size of an event in the first and last tenth.
        wire_bytes: all events together.
        reload_s: from pressing reload, at the end, to the whole text on the screen.
        heap_bytes: JavaScript heap at the end.
        words_missing: of the reply, not on the screen.
    """

    tokens: int
    rate: float
    longest_lag_s: float
    longest_stall_ms: float
    early_event_bytes: float
    late_event_bytes: float
    wire_bytes: int
    reload_s: float
    heap_bytes: int
    words_missing: int


def measure(tokens: int, rate: float) -> Result:
    """Run the reply and return its figures; takes tokens / rate seconds and a little more."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        ringside = Ringside(
            Path(folder), ("--backend", "echo", f"--option=rate={rate}", f"--option=end_after={tokens}")
        )
        ringside.start()
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=launch_arguments())
        try:
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.add_init_script(_STALL_SCRIPT)
            sizes = _note_event_sizes(page)
            page.goto(ringside.url)
            page.wait_for_selector("body.rs-ready", timeout=60_000)
            page.wait_for_selector("#rs-chart-speed .main-svg")
            page.wait_for_timeout(2000)
            page.evaluate("window.stall = 0")  # drawing the page for the first time is not what is measured
            page.fill("#rs-input", "Write on.")
            page.press("#rs-input", "Enter")
            page.wait_for_selector(".message.assistant", timeout=60_000)
            moments = _watch(page, ringside.url, tokens)
            return _result(page, ringside.url, rate, moments, sizes)
        finally:
            browser.close()
            ringside.stop()


def _watch(page: Page, url: str, tokens: int) -> list[Moment]:
    started = time.monotonic()
    moments: list[Moment] = []
    while not moments or moments[-1].page_tokens < tokens:
        page.wait_for_timeout(1000 * _SAMPLE_S)
        on_server = _server_tokens(url)  # before the page is asked, so a slow answer counts against it
        on_page, stall_ms = page.evaluate(
            "() => { const s = window.stall; window.stall = 0;"
            " return [Number(document.querySelector('[data-number=tokens]').textContent.replace(/\\D/g, '')), s] }"
        )
        moments.append(Moment(time.monotonic() - started, on_server, on_page, stall_ms))
        print(json.dumps(asdict(moments[-1])), flush=True)
    return moments


def _result(page: Page, url: str, rate: float, moments: list[Moment], sizes: list[int]) -> Result:
    page.wait_for_selector("[data-action=regenerate]", timeout=60_000)
    reply = page.locator(".message.assistant .reply")
    shown = reply.evaluate(SHOWN_TEXT)
    length = reply.evaluate("element => element.textContent.length")
    message = page.get_attribute(".message.assistant", "data-id")
    kept = _get(f"{url}app/messages/{message}/text").decode()
    heap = page.evaluate("performance.memory.usedJSHeapSize")
    started = time.monotonic()
    page.reload()
    page.wait_for_function(
        "count => document.querySelector('.message.assistant .reply')?.textContent.length >= count",
        arg=length,
        timeout=120_000,
    )
    tenth = max(1, len(sizes) // 10)
    return Result(
        tokens=moments[-1].page_tokens,
        rate=rate,
        longest_lag_s=max(moment.lag_s(rate) for moment in moments),
        longest_stall_ms=max(moment.stall_ms for moment in moments),
        early_event_bytes=statistics.median(sizes[:tenth]),
        late_event_bytes=statistics.median(sizes[-tenth:]),
        wire_bytes=sum(sizes),
        reload_s=time.monotonic() - started,
        heap_bytes=heap,
        words_missing=_num_missing(words(kept), words(shown)),
    )


def _num_missing(kept: list[str], shown: list[str]) -> int:
    """Return how many words are not where they belong; 0 says that every one is on the screen."""
    differing = sum(one != other for one, other in zip(kept, shown, strict=False))
    return differing + abs(len(kept) - len(shown))


def _note_event_sizes(page: Page) -> list[int]:
    """Return a list that grows by the size of every event of the reply."""
    sizes: list[int] = []

    def note(event: dict[str, Any]) -> None:
        if event.get("eventName") == "run":
            sizes.append(len(event["data"].encode()))

    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    session.on("Network.eventSourceMessageReceived", note)
    return sizes


def _server_tokens(url: str) -> int:
    chat = json.loads(_get(f"{url}app/chats"))["chats"][0]["id"]
    message = json.loads(_get(f"{url}app/chats/{chat}?known=1000000000"))["messages"][-1]
    return int(message["num_tokens"])


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url) as answer:
        return bytes(answer.read())


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=50_000)
    parser.add_argument("--rate", type=float, default=100.0)
    arguments = parser.parse_args()
    print(json.dumps(asdict(measure(arguments.tokens, arguments.rate)), indent=2))


if __name__ == "__main__":
    main()
