"""The charts of the live panel, on the echo backend: what they show, and that they stay small."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.conftest import NewTab, StartRingside, Tab

pytestmark = pytest.mark.browser


def chart(tab: Tab, name: str, trace: str) -> list[float]:
    """Return the values of one trace as the chart draws them."""
    values: Any = tab.page.evaluate(
        "([name, trace]) => document.getElementById(`rs-chart-${name}`).data.find(t => t.uid === trace)?.y ?? []",
        [name, trace],
    )
    return [value for value in values if value is not None]


def test_both_charts_move_and_the_kept_cache_is_flat_while_a_full_one_grows(
    start_ringside: StartRingside, new_tab: NewTab
) -> None:
    ringside = start_ringside(rate="150", end_after="1500")
    tab = new_tab(ringside.url)
    tab.send("Go on and on.")
    tab.wait_for_tokens(200)
    tab.page.wait_for_function("document.getElementById('rs-chart-memory').data?.some(t => t.x.length > 3)")
    first = chart(tab, "memory", "kv_full_bytes")[-1]
    tab.wait_for_tokens(900)
    tab.page.wait_for_timeout(1200)
    assert chart(tab, "memory", "kv_full_bytes")[-1] > first
    assert chart(tab, "speed", "smooth")
    tab.wait_for_end()
    tab.page.wait_for_function("document.getElementById('rs-chart-memory').data.some(t => t.x.at(-1) >= 1500)")
    held = chart(tab, "memory", "kv_held_bytes")
    assert max(held[len(held) // 2 :]) == min(held[len(held) // 2 :])
    assert chart(tab, "memory", "kv_full_bytes")[-1] > 4 * held[-1]


def test_paused_charts_stand_still_and_take_the_colours_of_the_theme(
    shared_ringside: StartRingside, new_tab: NewTab
) -> None:
    tab = new_tab(shared_ringside(rate="200", end_after="2000").url)
    page = tab.page
    tab.send("Go on and on.")
    tab.wait_for_tokens(150)
    page.wait_for_function("document.getElementById('rs-chart-speed').data?.[1]?.x.length > 5")
    page.locator("#rs-pause").click()
    drawn = "() => (({ x, line }) => [x.length, line.color])(document.getElementById('rs-chart-speed').data[1])"
    length, colour = page.evaluate(drawn)
    tab.wait_for_tokens(600)
    page.locator("#rs-theme").click()
    page.wait_for_function(f"({drawn})()[1] !== '{colour}'")
    assert page.evaluate(drawn)[0] == length
    page.locator("#rs-pause").click()
    page.wait_for_function(f"({drawn})()[0] > {length}")


def test_a_trace_is_bounded_and_a_spike_of_one_sample_stays(shared_ringside: StartRingside, new_tab: NewTab) -> None:
    tab = new_tab(shared_ringside(rate="150").url)
    length, highest, lowest, last = tab.page.evaluate(
        """async () => {
          const { Series } = await import('/app/assets/series.js');
          const series = new Series();
          for (let at = 0; at < 100000; at += 1) series.add(at, at / 10, at === 31415 ? 99 : at === 92653 ? -9 : 1);
          return [series.length, Math.max(...series.values), Math.min(...series.values), series.tokens.at(-1)];
        }"""
    )
    assert length <= 2000
    assert (highest, lowest, last) == (99, -9, 99999)


def test_zoom_stays_while_the_chart_grows(shared_ringside: StartRingside, new_tab: NewTab) -> None:
    ringside = shared_ringside(rate="150")
    tab = new_tab(ringside.url)
    tab.send("Go.")
    tab.wait_for_tokens(200)
    tab.page.wait_for_function("document.getElementById('rs-chart-speed').data?.[0].x.length > 3")
    tab.page.evaluate("Plotly.relayout('rs-chart-speed', {'xaxis.range': [50, 100]})")
    tab.wait_for_tokens(600)
    tab.page.wait_for_timeout(1200)
    assert tab.page.evaluate("document.getElementById('rs-chart-speed').layout.xaxis.range") == [50, 100]
    assert tab.page.locator("#rs-chart-speed .main-svg").count() < 6
    tab.page.click("#rs-stop")
