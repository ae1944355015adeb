"""The page in a real browser on the real Gemma, with both engines: pick, send, watch, stop, continue, reload."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import NewTab, StartRingside, Tab
from tests.browser.test_charts import chart
from tests.browser.test_page import shown_text, stored_text, words

pytestmark = [pytest.mark.browser, pytest.mark.real_model, pytest.mark.timeout(600)]

WINDOW = 128
PROMPT = "The history of the lighthouse begins"
TITLES = {"ring": "Ring cache (PyTorch)", "llamacpp": "llama.cpp"}
FLAT_FROM_TOKENS = {"ring": WINDOW + 4, "llamacpp": 768}
"""Where a cache is full: S + W in the ring; llama.cpp's cells come in steps of 256 and hold the trained window."""
FLATNESS = {"ring": 1.0, "llamacpp": 1.1}
"""Most over least bytes held from there on: a ring swaps token for token, llama.cpp frees cells by the block."""


@pytest.fixture
def gemma_in_its_place(tmp_path: Path, gemma_path: Path, conversions: Path) -> None:
    """The demo model where the application looks for it, and its conversion shared by the whole test run."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / gemma_path.name).symlink_to(gemma_path)
    (tmp_path / "cache").symlink_to(conversions)


def pick(page: Page, backend: str, window: int) -> None:
    """Choose in the form what a person would."""
    page.get_by_label(TITLES[backend], exact=True).check()
    page.click("#rs-model input")
    page.get_by_role("option", name="Gemma 3 270M").click()
    page.fill("#rs-window input", str(window))
    page.locator("#rs-keep-writing input").check()


def run_to(tab: Tab, num_tokens: int) -> None:
    tab.page.wait_for_function(
        "count => Number(document.querySelector('[data-number=tokens]').textContent.replace(/\\D/g, '')) >= count",
        arg=num_tokens,
        timeout=400_000,
    )


@pytest.mark.usefixtures("gemma_in_its_place")
@pytest.mark.parametrize("backend", TITLES)
def test_a_long_reply_of_the_real_model_stays_flat_and_under_control(
    backend: str, start_ringside: StartRingside, new_tab: NewTab
) -> None:
    ringside = start_ringside()
    tab = new_tab(ringside.url)
    pick(tab.page, backend, WINDOW)
    tab.send(PROMPT)
    run_to(tab, 60)
    beginning = words(shown_text(tab))[:20]

    tab.page.reload()
    tab.page.wait_for_selector("body.rs-ready")
    num_tokens = FLAT_FROM_TOKENS[backend] + 3 * WINDOW
    run_to(tab, num_tokens)
    assert words(shown_text(tab))[:20] == beginning
    tab.page.click("#rs-stop")
    tab.wait_for_end()
    expect(tab.page.locator(".message.assistant footer")).to_contain_text("stopped by you")
    tab.page.wait_for_timeout(1500)  # the charts are drawn once more at the end

    held = flat_part(tab, "kv_held_bytes", FLAT_FROM_TOKENS[backend])
    full = flat_part(tab, "kv_full_bytes", FLAT_FROM_TOKENS[backend])
    assert max(held) <= FLATNESS[backend] * min(held), "the cache is not flat"
    assert full[-1] > 1.2 * full[0], "a full cache would have grown"
    assert all(later >= earlier for earlier, later in itertools.pairwise(full))
    assert chart(tab, "speed", "smooth")

    first = stored_text(ringside.url, tab)
    tab.page.click("[data-action=continue]")
    expect(tab.page.locator("#rs-stop")).to_be_visible()
    run_to(tab, num_tokens + 40)
    tab.page.click("#rs-stop")
    tab.wait_for_end()
    second = stored_text(ringside.url, tab)
    assert second.startswith(first)
    assert len(second) > len(first)

    tab.page.click("[data-action=regenerate]")
    expect(tab.page.locator("#rs-stop")).to_be_visible()
    run_to(tab, 20)
    tab.page.click("#rs-stop")
    tab.wait_for_end()
    assert stored_text(ringside.url, tab)
    assert tab.page.locator(".message.assistant").count() == 1


def flat_part(tab: Tab, trace: str, first_token: int) -> list[float]:
    """Return the values of a memory trace from a token on."""
    points: list[list[float | None]] = tab.page.evaluate(
        "trace => { const found = document.getElementById('rs-chart-memory').data.find(t => t.uid === trace);"
        " return [...found.x].map((x, place) => [x, found.y[place]]); }",
        trace,
    )
    values = [y for x, y in points if x is not None and y is not None and x >= first_token]
    assert len(values) > 3
    return values
