"""What the page draws while nothing, or little, is new: the model writes with the same cores."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil
import pytest

from tests.browser.conftest import NewTab, StartRingside

pytestmark = pytest.mark.browser

COUNT_FRAMES = """{
  const ask = window.requestAnimationFrame.bind(window);
  window.framesAsked = 0;
  window.requestAnimationFrame = (draw) => {
    window.framesAsked += 1;
    return ask(draw);
  };
}"""

SLOW_DRAWINGS = """() => {
  const { react } = window.Plotly;
  window.drawings = 0;
  window.Plotly.react = (...figure) => {
    const until = performance.now() + 100;
    while (performance.now() < until);
    window.drawings += 1;
    return react(...figure);
  };
}"""


def expect_rest(count: Callable[[], int], limit: int) -> None:
    """Wait until less than `limit` is counted in two seconds: what began before goes on for some seconds."""
    in_two_seconds = []
    for _ in range(10):
        before = count()
        time.sleep(2)
        in_two_seconds.append(count() - before)
        if in_two_seconds[-1] < limit:
            return
    raise AssertionError(f"counted {in_two_seconds}, two seconds each")


def test_a_page_on_which_nothing_happens_comes_to_rest(shared_ringside: StartRingside, new_tab: NewTab) -> None:
    tab = new_tab()
    tab.page.add_init_script(COUNT_FRAMES)
    tab.open(shared_ringside().url)
    expect_rest(lambda: int(tab.page.evaluate("window.framesAsked")), 12)


def test_an_application_that_nobody_asks_anything_comes_to_rest(shared_ringside: StartRingside) -> None:
    process = shared_ringside().process
    assert process is not None
    event_loop = psutil.Process(process.pid)  # counts the main thread, which is the loop's
    expect_rest(lambda: int(event_loop.num_ctx_switches().voluntary), 200)  # Gradio's own pace is a thousand a second


def test_nothing_is_animated_beside_text_that_moves(shared_ringside: StartRingside, new_tab: NewTab) -> None:
    tab = new_tab(shared_ringside(rate="40").url)
    tab.send("Go on.")
    tab.wait_for_tokens(40)
    endless = "document.getAnimations().filter((one) => one.effect.getTiming().iterations === Infinity).length"
    assert tab.page.evaluate(endless) == 0
    tab.page.click("#rs-stop")
    tab.wait_for_end()


def test_charts_that_take_long_to_draw_are_drawn_less_often(shared_ringside: StartRingside, new_tab: NewTab) -> None:
    tab = new_tab(shared_ringside(rate="40").url)
    tab.send("Go on.")
    tab.page.wait_for_selector("#rs-chart-speed .main-svg")
    tab.page.evaluate(SLOW_DRAWINGS)
    tab.page.wait_for_function("window.drawings >= 6", timeout=60_000)  # two rounds: how long it takes is known
    before = tab.page.evaluate("window.drawings")
    tab.page.wait_for_timeout(4000)
    assert tab.page.evaluate("window.drawings") - before <= 6  # once a second would be twelve
    tab.page.click("#rs-stop")
    tab.wait_for_end()
    tab.page.wait_for_function("before => window.drawings > before", arg=before)  # the end is drawn at once
