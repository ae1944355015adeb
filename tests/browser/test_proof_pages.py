"""The proof in a real browser: a comparison on the echo backend, the doctor and the estimate on a tiny file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.backends.tiny_gguf import write_tiny_gguf
from tests.browser.conftest import NewTab, StartRingside

pytestmark = pytest.mark.browser

SLOW_MS = 30_000


def open_page(page: Page, url: str) -> None:
    page.goto(url)
    page.wait_for_selector("body.rs-ready")


def curve(page: Page, figure: int, trace: int) -> list[float]:
    """Return the values of one line as the page draws them."""
    found: Any = page.evaluate(
        "([figure, trace]) => document.querySelectorAll('.figure .chart')[figure]?.data?.[trace]?.y ?? []",
        [figure, trace],
    )
    return [value for value in found if value is not None]


def begun_with(page: Page) -> Any:
    """Return what new chats, and the forms, begin with."""
    return page.evaluate("() => fetch('/app/measurements/choices').then((answer) => answer.json())")["chosen"]


def test_a_comparison_grows_live_stops_without_loss_is_listed_and_downloaded(
    start_ringside: StartRingside, new_tab: NewTab, tmp_path: Path
) -> None:
    ringside = start_ringside(rate="300")
    page = new_tab().page
    open_page(page, ringside.url + "app/compare")
    before = begun_with(page)
    expect(page.locator("#rs-runs fieldset")).to_have_count(2, timeout=SLOW_MS)
    page.get_by_role("button", name="Add a configuration").press("Enter")
    expect(page.locator("#rs-runs fieldset")).to_have_count(3)
    page.get_by_role("button", name="Leave this configuration out").last.press("Enter")
    page.fill("[name=tokens]", "0")
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.locator("#rs-form-problem")).to_contain_text("Tokens:")
    page.fill("[name=tokens]", "2000")
    page.get_by_role("button", name="Compare", exact=True).click()
    page.wait_for_function("document.querySelectorAll('.figure .chart')[1]?.data?.length === 2", timeout=60_000)
    expect(page.locator("#rs-stage")).to_contain_text("2 of 2", timeout=SLOW_MS)
    expect(page.locator("#rs-engine-note")).to_contain_text("wait until the measurement is over")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#rs-stage")).to_have_text("stopped early", timeout=SLOW_MS)
    ring = curve(page, 1, 0)
    assert max(ring) == ring[-1] == ring[len(ring) // 2]  # flat past the window
    expect(page.locator("#rs-kept li")).to_have_count(1)
    with page.expect_download() as downloaded:
        page.locator("#rs-html").click()
    html = tmp_path / "report.html"
    downloaded.value.save_as(html)
    assert "Side by side" in html.read_text("utf-8")
    open_page(page, ringside.url + "app/compare")
    page.locator("#rs-kept a").click()
    expect(page.locator(".table").first).to_contain_text("Tokens written", timeout=SLOW_MS)
    page.get_by_role("button", name="Delete").click()
    expect(page.locator("#rs-kept-empty")).to_be_visible()
    assert begun_with(page) == before


def test_the_doctor_answers_check_by_check_and_a_window_is_taken_from_the_estimate(
    start_ringside: StartRingside, new_tab: NewTab, tmp_path: Path
) -> None:
    pytest.importorskip("llama_cpp")
    model = write_tiny_gguf(tmp_path / "tiny.gguf", sliding_window=32, sliding_pattern=2)
    ringside = start_ringside("--backend", "ring", "--model", str(model))
    page = new_tab().page
    open_page(page, ringside.url)
    expect(page.locator("#rs-estimate-window")).to_have_attribute("aria-valuetext", "256 tokens", timeout=SLOW_MS)
    page.wait_for_function("document.querySelector('.estimate-chart')?.data?.length === 3")
    flat = page.evaluate("document.querySelector('.estimate-chart').data[0].y")
    page.locator("#rs-estimate-window").press("ArrowRight")
    expect(page.locator(".estimate output")).to_have_text("384 tokens")
    assert page.evaluate("document.querySelector('.estimate-chart').data[0].y[0]") > max(flat)
    page.get_by_role("button", name="Use this window").click()
    expect(page.locator(".estimate-tables")).to_contain_text("384 (now)", timeout=SLOW_MS)
    page.evaluate("document.querySelector('.estimate').style.width = '300px'")  # as in the drawer: narrower than before
    page.wait_for_function(
        "(() => { const chart = document.querySelector('.estimate-chart');"
        " return chart._fullLayout.width <= chart.clientWidth; })()"
    )
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    open_page(page, ringside.url + "app/doctor")
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    expect(page.locator("[name=window]")).to_have_value("384", timeout=SLOW_MS)
    page.select_option("[name=backend]", "llamacpp")
    page.fill("[name=tokens]", "0")
    page.fill("[name=reference_tokens]", "0")
    page.get_by_role("button", name="Examine").click()
    expect(page.locator(".verdict")).to_have_count(5, timeout=200_000)
    expect(page.locator(".verdict").nth(2)).to_contain_text("Are mask and positions right?")
    expect(page.locator(".verdict.good")).to_have_count(3)
    expect(page.locator("#rs-stage")).to_have_text("finished", timeout=SLOW_MS)
