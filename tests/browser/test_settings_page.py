"""The settings on the page: what has no effect is said beside it, as soon as it is so."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import NewTab, StartRingside

pytestmark = pytest.mark.browser

AT_ZERO = "Without effect: at temperature 0 the likeliest token always comes."


def test_a_setting_without_effect_says_so_beside_it(start_ringside: StartRingside, new_tab: NewTab) -> None:
    page = new_tab(start_ringside(rate="50").url).page
    page.get_by_role("button", name="More sampling").click()
    threshold = page.locator(".rs-set-xtc_threshold .without-effect")
    expect(threshold).to_have_text("Without effect: XTC has a probability of 0.")
    expect(page.locator(".rs-set-xtc_probability .without-effect")).to_have_count(0)
    temperature = page.locator(".rs-set-temperature input[type=number]")
    temperature.fill("0")
    temperature.blur()
    expect(page.locator(".rs-set-xtc_probability .without-effect")).to_have_text(AT_ZERO)
    expect(threshold).to_have_text(AT_ZERO)
    page.get_by_role("button", name="Finer settings").click()
    expect(page.locator(".rs-set-top_p .without-effect")).to_have_text(AT_ZERO)
    temperature.fill("0.7")
    temperature.blur()
    expect(page.locator(".rs-set-top_p .without-effect")).to_have_count(0)
    expect(threshold).to_have_text("Without effect: XTC has a probability of 0.")
