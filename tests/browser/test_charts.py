"""The charts of the live panel, on the echo backend: what they show, and that they stay small."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import NewTab, StartRingside, Tab

pytestmark = pytest.mark.browser


@pytest.fixture
def url(shared_ringside: StartRingside) -> str:
    return shared_ringside(rate="400", end_after="300").url


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


def test_units_stand_apart_from_their_numbers_on_every_axis(url: str, new_tab: NewTab) -> None:
    tab = new_tab(url)
    linear, log, zoomed, nothing = tab.page.evaluate(
        """async () => {
          const { bytesTicks, linearBytesTicks } = await import('/app/assets/bytes_axis.js');
          const texts = ({ ticktext }) => ticktext;
          return [
            texts(linearBytesTicks(0, 1.7e9)), texts(bytesTicks()), texts(linearBytesTicks(4.4e8, 4.6e8)),
            linearBytesTicks(0, 0),
          ];
        }"""
    )
    assert linear == ["0", "500 MB", "1 GB", "1.5 GB", "2 GB"]
    assert log[:4] == ["1 kB", "10 kB", "100 kB", "1 MB"]
    assert zoomed == ["440 MB", "445 MB", "450 MB", "455 MB", "460 MB", "465 MB"]
    assert nothing == {}


def test_keys_and_values_stand_alone_on_a_linear_axis_where_asked_for(url: str, new_tab: NewTab) -> None:
    tab = new_tab(url)
    tab.send("Go.")
    tab.wait_for_end()
    tab.page.wait_for_function("document.getElementById('rs-chart-memory').data?.length > 2")
    kv_only = tab.page.get_by_role("button", name="KV linear")
    kv_only.click()
    tab.page.wait_for_function("document.getElementById('rs-chart-memory').layout.yaxis.type === 'linear'")
    names = "document.getElementById('rs-chart-memory').data.map((trace) => trace.uid)"
    assert tab.page.evaluate(names) == ["kv_held_bytes", "kv_full_bytes"]
    labels = tab.page.locator("#rs-chart-memory .ytick text").all_text_contents()
    assert labels[0] == "0"
    assert all(re.fullmatch(r"[\d.,]+ [kMGT]?B", label) for label in labels[1:])
    expect(tab.page.locator("#rs-scale")).to_be_disabled()
    tab.page.reload()
    expect(kv_only).to_have_attribute("aria-pressed", "true")
    kv_only.click()
    tab.page.wait_for_function("document.getElementById('rs-chart-memory').layout?.yaxis.type === 'log'")


@pytest.mark.parametrize(
    ("button", "title", "values"),
    [
        ("PNG of memory over tokens", "Memory over tokens", "Memory"),
        ("PNG of tokens per second", "Tokens per second", "Tokens per second"),
        ("PNG of the share of new phrases", "Repetition: share of new phrases", "New among the last 512 phrases"),
    ],
)
def test_a_picture_says_what_it_shows(button: str, title: str, values: str, url: str, new_tab: NewTab) -> None:
    tab = new_tab(url)
    tab.send("Go.")
    tab.wait_for_end()
    tab.page.wait_for_function("document.getElementById('rs-chart-phrases').data?.length")
    tab.page.evaluate("() => { Plotly.downloadImage = (figure) => { window.pictured = figure.layout; }; }")
    tab.page.get_by_role("button", name=button).click()
    tab.page.wait_for_function("window.pictured")
    written = "({ title, xaxis, yaxis }) => [title, xaxis.title, yaxis.title].map(({ text }) => text)"
    assert tab.page.evaluate(f"({written})(window.pictured)") == [title, "Tokens of the reply", values]


def test_a_pause_is_left_by_resuming(url: str, new_tab: NewTab) -> None:
    tab = new_tab(url)
    tab.page.get_by_role("button", name="Pause charts").click()
    tab.page.get_by_role("button", name="Resume charts").click()
    expect(tab.page.get_by_role("button", name="Pause charts")).to_have_count(1)


def test_no_figure_is_cut_whatever_its_length(url: str, new_tab: NewTab) -> None:
    tab = new_tab(url)
    tab.send("Go.")
    tab.wait_for_end()
    tab.page.evaluate(
        """() => {
          const said = { tokens: 'prompt 1,402,402, 1,402,401 of it reused', window: 'of 32,512 tokens, 16,256 asked' };
          for (const name in said) document.querySelector(`[data-sub=${name}]`).textContent = said[name];
        }"""
    )
    cut = "all => all.filter((each) => each.scrollWidth > each.clientWidth).map((each) => each.textContent)"
    assert tab.page.locator("[data-sub], [data-number]").evaluate_all(cut) == []


def test_what_is_not_known_yet_is_a_dash_and_no_zero(url: str, new_tab: NewTab) -> None:
    tab = new_tab(url)
    loading = {"num_tokens": 0, "position_tokens": 0, "window_tokens": 0, "kv_held_bytes": 0, "process_bytes": 0}
    tab.page.evaluate(
        """async (summary) => {
          const { Panel } = await import('/app/assets/panel.js');
          new Panel().follow({ message: 1, state: { status: 'loading', summary } });
        }""",
        loading,
    )
    for name in ("window", "kv", "memory", "rate", "first"):
        expect(tab.page.locator(f"[data-number={name}]")).to_have_text("–")


def test_the_window_in_force_has_the_asked_one_beside_it(url: str, new_tab: NewTab) -> None:
    tab = new_tab(url)
    shown = tab.page.evaluate(
        """async (filled) => {
          const { windowFill } = await import('/app/assets/panel.js');
          const gemma = { position_tokens: 9000, window_tokens: 768, window: 512, asked_window: 256 };
          return filled.map((window_filled_tokens) => windowFill({ ...gemma, window_filled_tokens }));
        }""",
        [100, 700],
    )
    assert [each["number"] for each in shown] == ["100", "512"]
    assert {each["sub"] for each in shown} == {"of 512 tokens, 256 asked"}
    assert shown[1]["share"] == 1
