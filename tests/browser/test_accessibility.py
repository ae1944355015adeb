"""Every page under axe-core's rules, light and dark, and the names that those rules do not ask for."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import expect

from app.login_page import _PAGE
from tests.browser.conftest import NewTab, StartRingside, Tab

pytestmark = pytest.mark.browser

Scheme = Literal["light", "dark"]

AXE = (resources.files("axe_playwright_python") / "axe.min.js").read_text("utf-8")

_RUN = """
async () => {
  const moving = document.getAnimations().filter((each) => each.effect.getTiming().iterations !== Infinity);
  await Promise.all(moving.map((each) => each.finished.catch(() => {})));
  const { passes, violations } = await axe.run(document);
  const broken = ({ id, nodes }) => nodes.map((node) => `${id}: ${node.html.slice(0, 200)}\\n${node.failureSummary}`);
  return { passed: passes.map(({ id }) => id), broken: violations.flatMap(broken) };
}
"""


def broken_rules(tab: Tab, place: str) -> list[str]:
    """Return what axe-core says against the page as it stands."""
    if tab.page.evaluate("typeof axe") == "undefined":
        tab.page.evaluate(AXE)
    found: dict[str, list[str]] = tab.page.evaluate(_RUN)
    assert "color-contrast" in found["passed"], "it looked at nothing"
    return [f"{place}: {each}" for each in found["broken"]]


def opened(new_tab: NewTab, scheme: Scheme) -> Tab:
    tab = new_tab()
    tab.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    return tab


@pytest.fixture
def url(shared_ringside: StartRingside) -> str:
    return shared_ringside(rate="400", end_after="120").url


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_of_a_chat_breaks_a_rule_of_axe_core(scheme: Scheme, url: str, new_tab: NewTab) -> None:
    tab = opened(new_tab, scheme)
    page = tab.page
    tab.open(url)
    page.wait_for_selector("#rs-outlook-body li")
    found = broken_rules(tab, "chat, empty")
    for heading in ("Long replies", "Finer settings", "More sampling", "Chat template"):
        page.get_by_role("button", name=heading).click()
    found += broken_rules(tab, "settings, everything open")
    tab.send("A **first** message, with `code`.")
    tab.wait_for_end()
    page.wait_for_function("document.getElementById('rs-chart-memory').data?.length")
    found += broken_rules(tab, "chat with a reply")
    page.click("#rs-open-settings")
    found += broken_rules(tab, "settings drawer")
    page.click("#rs-close-settings")
    page.fill("#rs-search", "first")
    page.wait_for_selector("#rs-found [role=option]")
    found += broken_rules(tab, "search")
    page.fill("#rs-search", "")
    page.click("#rs-engine-text")
    found += broken_rules(tab, "facts of the engine")
    page.keyboard.press("Escape")
    page.set_viewport_size({"width": 390, "height": 844})
    found += broken_rules(tab, "narrow")
    assert found == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_dialog_menu_or_box_breaks_a_rule_of_axe_core(scheme: Scheme, url: str, new_tab: NewTab) -> None:
    tab = opened(new_tab, scheme)
    page = tab.page
    tab.open(url)
    tab.send("A first message.")
    tab.wait_for_end()
    reply = page.locator(".message.assistant").last
    reply.locator(".more").click()
    page.wait_for_selector("[role=menu]")
    found = broken_rules(tab, "menu of a message")
    page.get_by_role("menuitem", name="Edit", exact=True).click()
    page.get_by_role("textbox", name="Edit the message").wait_for()
    found += broken_rules(tab, "edit box")
    page.keyboard.press("Escape")
    page.locator(".message.assistant .more").last.click()
    page.get_by_role("menuitem", name="Write another reply").click()
    expect(page.locator(".variant-number")).to_have_text("2 / 2")
    tab.wait_for_end()
    page.locator(".message.assistant .more").last.click()
    page.get_by_role("menuitem", name="Compare variants").click()
    page.wait_for_selector("dialog")
    found += broken_rules(tab, "dialog of variants")
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    page.locator("#rs-branches").click()
    page.wait_for_selector("dialog")
    found += broken_rules(tab, "dialog of branches")
    page.keyboard.press("Escape")
    page.keyboard.press("Control+g")
    page.wait_for_selector("#rs-go-to-box:visible")
    found += broken_rules(tab, "go to")
    assert found == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_notebook_breaks_a_rule_of_axe_core(scheme: Scheme, url: str, new_tab: NewTab) -> None:
    tab = opened(new_tab, scheme)
    tab.open(url)
    tab.page.click("#rs-new-notebook")
    tab.page.wait_for_selector("#rs-notebook-text:visible")
    found = broken_rules(tab, "notebook, empty")
    tab.page.locator("#rs-notebook-text").fill("A beginning.")
    assert found + broken_rules(tab, "notebook") == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["app/compare", "app/doctor"])
def test_no_page_of_measurements_breaks_a_rule_of_axe_core(
    path: str, scheme: Scheme, url: str, new_tab: NewTab
) -> None:
    tab = opened(new_tab, scheme)
    tab.page.goto(url + path)
    tab.page.wait_for_selector("#rs-runs select, #rs-runs input")
    assert broken_rules(tab, path) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_that_asks_for_a_password_breaks_no_rule_of_axe_core(scheme: Scheme, new_tab: NewTab) -> None:
    tab = opened(new_tab, scheme)
    tab.page.route("**/app/health", lambda route: route.fulfill(status=401))
    tab.page.route("**/sign-in", lambda route: route.fulfill(body=_PAGE, content_type="text/html"))
    tab.page.goto("http://127.0.0.1:9/sign-in")
    assert broken_rules(tab, "login") == []


def test_every_group_of_the_settings_has_a_name(url: str, new_tab: NewTab) -> None:
    page = new_tab(url).page
    page.get_by_role("button", name="Long replies").click()
    for name in ("Backend", "Device", "Cache", "Keys and values", "If it goes round in circles"):
        expect(page.get_by_role("radiogroup", name=name, exact=True)).to_have_count(1)


def test_every_picture_is_asked_for_by_a_button_of_its_own_name(url: str, new_tab: NewTab) -> None:
    page = new_tab(url).page
    names = page.locator("[data-png]").evaluate_all("all => all.map((each) => each.ariaLabel)")
    assert names == ["PNG of memory over tokens", "PNG of tokens per second", "PNG of the share of new phrases"]


def test_the_first_tab_stop_skips_to_the_text_field_and_leaves_the_address(url: str, new_tab: NewTab) -> None:
    page = new_tab(url).page
    address = page.url
    assert page.evaluate("document.querySelector('#rs-shell :is(a, button, input, textarea)').id") == "rs-skip"
    page.get_by_role("link", name="Skip to the text field").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#rs-input")).to_be_focused()
    assert page.url == address
    page.click("#rs-new-notebook")
    page.wait_for_selector("#rs-notebook-text:visible")
    page.locator("#rs-skip").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#rs-notebook-text")).to_be_focused()


def luminance(colour: str) -> float:
    """Return the relative luminance of #rrggbb (WCAG 2.2)."""
    shares = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("theme", [":root", ".dark"])
@pytest.mark.parametrize("ink", ["ink", "ink-soft", "ink-faint"])
@pytest.mark.parametrize("ground", ["page", "raised", "sunken", "field", "hover", "accent-soft"])
def test_grey_text_has_enough_contrast_on_every_ground(theme: str, ink: str, ground: str) -> None:
    styles = (Path(__file__).parents[2] / "assets" / "page.css").read_text("utf-8")
    block = re.search(rf"^{re.escape(theme)} {{(.*?)^}}", styles, re.DOTALL | re.MULTILINE)
    assert block is not None
    colours = dict(re.findall(r"--rs-([\w-]+): (#\w{6})", block[1]))
    assert contrast(colours[ink], colours[ground]) >= 4.5
