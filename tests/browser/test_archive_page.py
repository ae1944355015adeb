"""Search, folders, menus, import, export and presets as a person uses them, on the echo backend."""

from __future__ import annotations

import json
import re
import sqlite3
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.conftest import NewTab, Tab
from tests.browser.driving import Ringside

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def ringside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ringside]:
    """Return a Ringside that all tests of this file share."""
    options = ("--option=rate=max", "--option=end_after=600", "--option=seed=1")
    started = Ringside(tmp_path_factory.mktemp("home"), ("--backend", "echo", "--window", "256", *options))
    started.start()
    yield started
    started.stop()


@pytest.fixture(autouse=True)
def empty(ringside: Ringside) -> None:
    for chat in ask(ringside, "GET", "/chats")["chats"]:
        ask(ringside, "DELETE", f"/chats/{chat['id']}")


def ask(ringside: Ringside, method: str, path: str, body: object = None) -> Any:
    request = urllib.request.Request(f"{ringside.url}app{path}", method=method)
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read())


def add(ringside: Ringside, title: str, folder: str = "", **more: Any) -> int:
    """Add a chat of one question and an answer."""
    messages = [{"role": "user", "text": f"Of {title}."}, {"role": "assistant", "text": "Well."}]
    chat = {"title": title, "folder": folder, "messages": messages, **more}
    return import_chats(ringside, chat)[0]


def import_chats(ringside: Ringside, *chats: dict[str, Any]) -> list[int]:
    content = json.dumps({"format": "ringside-chats", "version": 1, "chats": chats})
    return [chat["id"] for chat in ask(ringside, "POST", "/import", {"name": "x.json", "content": content})["chats"]]


def rows(tab: Tab) -> list[str]:
    """Return the list as it reads from top to bottom."""
    return list(tab.page.locator("#rs-chat-list .chat-name").all_inner_texts())


def row(tab: Tab, title: str) -> Locator:
    return tab.page.locator("#rs-chat-list li", has=tab.page.get_by_text(title, exact=True))


def choose(tab: Tab, title: str, *labels: str) -> None:
    """Choose from the menu of a chat or a folder in the list."""
    row(tab, title).hover()
    row(tab, title).locator("[data-do=menu]").click()
    for label in labels:
        tab.page.get_by_role("menu").get_by_text(label, exact=True).click()


def test_titles_are_found_at_once_and_texts_after_them_with_the_words_marked(
    ringside: Ringside, new_tab: NewTab
) -> None:
    add(ringside, "A history of mills")
    chat = add(ringside, "Rivers", messages=[{"role": "user", "text": "Where is the 🜁 old watermill of the north?"}])
    tab = new_tab(ringside.url)
    tab.page.fill("#rs-search", "mill")
    expect(tab.page.locator(".found-title")).to_have_text([re.compile("A history of mills")])
    tab.page.fill("#rs-search", "waterm")
    expect(tab.page.locator(".found-title")).to_have_count(0)
    expect(tab.page.locator(".found-hit mark")).to_have_text(["watermill"])
    expect(tab.page.get_by_role("group", name="Rivers")).to_have_count(1)
    tab.page.press("#rs-search", "ArrowDown")
    expect(tab.page.locator(".found-hit")).to_have_attribute("aria-selected", "true")
    tab.page.press("#rs-search", "Enter")
    expect(tab.page.locator(".said")).to_contain_text("watermill")
    assert tab.page.url.endswith(f"#chat={chat}")
    tab.page.press("#rs-search", "Escape")
    expect(tab.page.locator("#rs-found")).to_be_hidden()
    expect(tab.page.locator(".chat-row")).to_have_count(2)
    tab.page.fill("#rs-search", "nowhere to be seen")
    expect(tab.page.locator(".found-note")).to_have_text("No text has “nowhere to be seen”.")


def test_a_hit_far_inside_a_long_reply_is_scrolled_to(ringside: Ringside, new_tab: NewTab) -> None:
    paragraphs = [f"Paragraph {number} says nothing new." for number in range(3000)]
    paragraphs[2000] = "Here the heron stands."
    text = "\n\n".join(paragraphs)
    add(ringside, "Long", messages=[{"role": "user", "text": "Go."}, {"role": "assistant", "text": text}])
    tab = new_tab(ringside.url)
    tab.page.fill("#rs-search", "heron")
    tab.page.click(".found-hit")
    expect(tab.page.locator(".reply").get_by_text("Here the heron stands.")).to_be_in_viewport(timeout=30_000)


def test_other_spellings_are_found_in_titles_texts_and_the_open_chat_and_marked_whole(
    ringside: Ringside, new_tab: NewTab
) -> None:
    text = "Cafe einmal, das Cafe\u0301 in der Straße, und **CAFÉ**."
    messages = [{"role": "user", "text": text}, {"role": "assistant", "text": text}]
    add(ringside, "Im Cafe\u0301", messages=messages)
    tab = new_tab(ringside.url)
    tab.page.fill("#rs-search", "CAFÉ")
    expect(tab.page.locator(".found-title")).to_have_count(1)
    expect(tab.page.locator(".found-hit mark").first).to_have_text("Cafe")
    tab.page.fill("#rs-search", "strasse")
    expect(tab.page.locator(".found-hit mark")).to_have_text(["Straße", "Straße"])
    tab.page.locator(".found-hit").first.click()
    tab.page.wait_for_function("String([...CSS.highlights.get('rs-hit') ?? []][0]) == 'Straße'")
    tab.page.press("#rs-search", "Escape")
    tab.page.keyboard.press("Control+g")
    tab.page.fill("#rs-find", "café")
    expect(tab.page.locator("#rs-find-count")).to_have_text("1 of 4")
    for spelling in ("Cafe\u0301", "CAFÉ", "Cafe\u0301", "CAFÉ"):
        tab.page.wait_for_function("said => String([...CSS.highlights.get('rs-hit') ?? []][0]) == said", arg=spelling)
        tab.page.press("#rs-find", "Enter")
    spellings = tab.page.evaluate("[...CSS.highlights.get('rs-hits')].map(String)")
    assert spellings == ["Cafe\u0301", "CAFÉ"]


def test_a_hit_on_another_branch_brings_that_branch_to_the_screen(ringside: Ringside, new_tab: NewTab) -> None:
    messages = [
        {"role": "user", "text": "Of what?"},
        {"role": "assistant", "text": "Of herons."},
        {"role": "assistant", "text": "Of otters.", "follows": 0},
    ]
    add(ringside, "Animals", messages=messages)
    tab = new_tab(ringside.url)
    tab.page.click(".chat-open")
    expect(tab.reply()).to_contain_text("Of otters.")
    tab.page.fill("#rs-search", "herons")
    tab.page.click(".found-hit")
    expect(tab.reply()).to_contain_text("Of herons.")


def test_all_hits_of_one_reply_are_shown_when_asked_for(ringside: Ringside, new_tab: NewTab) -> None:
    text = "\n\n".join(f"{'Filler words stand here. ' * 80}heron number {number}" for number in range(12))
    add(ringside, "Birds", messages=[{"role": "assistant", "text": text}])
    tab = new_tab(ringside.url)
    tab.page.fill("#rs-search", "heron")
    expect(tab.page.locator(".found-more")).to_have_count(1)
    assert tab.page.locator(".found-hit").count() < 12
    tab.page.click(".found-more")
    expect(tab.page.locator(".found-hit")).to_have_count(12)


def test_chats_move_to_folders_by_menu_and_by_drag_and_folders_fold_and_are_renamed(
    ringside: Ringside, new_tab: NewTab
) -> None:
    for title in ("One", "Two", "Three"):
        add(ringside, title)
    tab = new_tab(ringside.url)
    choose(tab, "One", "Move to folder", "New folder…")
    tab.page.fill(".chat-rename", "Novel")
    tab.page.press(".chat-rename", "Enter")
    expect(tab.page.locator(".chat-head")).to_have_count(2)
    assert rows(tab) == ["Novel", "One", "Chats", "Three", "Two"]
    row(tab, "Two").drag_to(row(tab, "Novel"))
    expect(row(tab, "Novel")).to_contain_text("2")
    assert rows(tab) == ["Novel", "Two", "One", "Chats", "Three"]
    tab.page.get_by_role("button", name="Novel 2").click()
    assert rows(tab) == ["Novel", "Chats", "Three"]
    tab.page.reload()
    tab.page.wait_for_selector("body.rs-ready")
    expect(tab.page.locator(".chat-head")).to_have_count(2)
    assert rows(tab) == ["Novel", "Chats", "Three"]
    choose(tab, "Novel", "Rename")
    tab.page.fill(".chat-rename", "Saga")
    tab.page.press(".chat-rename", "Enter")
    expect(row(tab, "Saga")).to_have_count(1)
    assert rows(tab) == ["Saga", "Two", "One", "Chats", "Three"]
    choose(tab, "Saga", "Dissolve, keep the chats")
    expect(tab.page.locator(".chat-head")).to_have_count(0)
    assert sorted(rows(tab)) == ["One", "Three", "Two"]


def test_a_pinned_chat_is_on_top_until_it_is_unpinned(ringside: Ringside, new_tab: NewTab) -> None:
    for title in ("Old", "New"):
        add(ringside, title)
    tab = new_tab(ringside.url)
    choose(tab, "Old", "Pin")
    expect(row(tab, "Pinned")).to_have_count(1)
    assert rows(tab) == ["Pinned", "Old", "Chats", "New"]
    choose(tab, "Old", "Unpin")
    expect(row(tab, "Pinned")).to_have_count(0)
    assert rows(tab) == ["New", "Old"]


def test_the_list_and_its_menus_work_from_the_keyboard_alone(ringside: Ringside, new_tab: NewTab) -> None:
    for title in ("First", "Second", "Third"):
        add(ringside, title)
    tab = new_tab(ringside.url)
    expect(tab.page.locator(".chat-row")).to_have_count(3)
    tab.page.focus("#rs-search")
    tab.page.keyboard.press("Tab")
    tab.page.keyboard.press("ArrowDown")
    tab.page.keyboard.press("ArrowDown")
    expect(row(tab, "First").locator(".chat-open")).to_be_focused()
    tab.page.keyboard.press("ArrowUp")
    tab.page.keyboard.press("Tab")
    tab.page.keyboard.press("Enter")
    expect(tab.page.get_by_role("menuitem", name="Rename")).to_be_focused()
    tab.page.keyboard.press("e")
    tab.page.keyboard.press("ArrowRight")
    expect(tab.page.get_by_role("menuitem", name="Markdown")).to_be_focused()
    tab.page.keyboard.press("Escape")
    expect(tab.page.get_by_role("menuitem", name="Export")).to_be_focused()
    tab.page.keyboard.press("Escape")
    expect(tab.page.get_by_role("menu")).to_have_count(0)
    expect(row(tab, "Second").locator("[data-do=menu]")).to_be_focused()
    tab.page.keyboard.press("F2")
    tab.page.keyboard.type("Middle")
    tab.page.keyboard.press("Enter")
    expect(row(tab, "Middle").locator(".chat-open")).to_be_focused()
    tab.page.keyboard.press("Delete")
    tab.page.keyboard.press("Escape")
    expect(row(tab, "Middle").locator(".chat-open")).to_be_focused()
    tab.page.keyboard.press("Delete")
    tab.page.keyboard.press("Enter")
    expect(tab.page.locator(".chat-row")).to_have_count(2)
    assert rows(tab) == ["Third", "First"]


@pytest.mark.parametrize(
    ("label", "ending", "part"),
    [
        ("Markdown", "md", "# Mills & weirs"),
        ("Plain text", "txt", "Of Mills & weirs."),
        ("Web page (HTML)", "html", '<h1 dir="auto">Mills &amp; weirs</h1>'),
        ("JSON, with everything", "json", '"format":"ringside-chats"'),
    ],
)
def test_a_chat_is_exported_from_its_menu(
    ringside: Ringside, new_tab: NewTab, label: str, ending: str, part: str
) -> None:
    add(ringside, "Mills & weirs")
    tab = new_tab(ringside.url)
    with tab.page.expect_download() as download:
        choose(tab, "Mills & weirs", "Export", label)
    assert download.value.suggested_filename == f"Mills weirs.{ending}"
    assert part in download.value.path().read_text("utf-8")


def file(name: str, content: str | bytes) -> Any:
    content = content.encode() if isinstance(content, str) else content
    return {"name": name, "mimeType": "application/octet-stream", "buffer": content}


def test_several_files_are_imported_at_once_with_a_sentence_for_each(ringside: Ringside, new_tab: NewTab) -> None:
    nodes = {"q": {"id": "q", "parentId": None, "role": "user", "content": "Of mills?"}}
    open_webui = [{"title": "From there", "chat": {"history": {"currentId": "q", "messages": nodes}}}]
    tab = new_tab(ringside.url)
    tab.page.set_input_files(
        "#rs-import-files",
        [
            file("export.json", json.dumps(open_webui)),
            file("log.json", json.dumps({"internal": [["hi", "there"]], "visible": []})),
            file("a tale.txt", "Once upon a time"),
            file("odd.json", '{"x": 1}'),
            file("photo.txt", b"\xff\xd8\xff"),
            file("backup.sqlite", b"SQLite format 3\0rest"),
        ],
    )
    lines = tab.page.locator(".imports li")
    expect(lines).to_have_count(6)
    expect(lines.nth(5)).to_contain_text("backup.sqlite is a database. If it is a backup of Ringside's")
    assert [line.partition(".")[0] for line in lines.all_inner_texts()][:3] == ["export", "log", "a tale"]
    expect(lines.nth(0)).to_contain_text("export.json is here as “From there”.")
    expect(lines.nth(3)).to_contain_text("odd.json is not a file of chats that Ringside knows.")
    expect(lines.nth(4)).to_contain_text("photo.txt is not a text file in UTF-8.")
    lines.nth(2).get_by_role("button").click()
    expect(tab.page.locator(".said")).to_have_text("Once upon a time")
    assert sorted(rows(tab)) == ["From there", "a tale", "log"]


def test_chat_templates_of_imported_chats_come_only_when_ticked(ringside: Ringside, new_tab: NewTab) -> None:
    chat = {"title": "Theirs", "settings": {"chat_template": "{{ 1 }}"}, "messages": [{"role": "user", "text": "Hi."}]}
    content = json.dumps({"format": "ringside-chats", "version": 1, "chats": [chat]})
    tab = new_tab(ringside.url)
    tab.page.set_input_files("#rs-import-files", [file("theirs.json", content)])
    report = tab.page.locator(".imports li")
    expect(report).to_contain_text("theirs.json is here as “Theirs”. Left out: 1 chat template.")
    tab.page.get_by_label("Chat templates of the next files too").check()
    with tab.page.expect_file_chooser() as chooser:
        tab.page.get_by_role("button", name="Choose more files to import").click()
    chooser.value.set_files([file("theirs.json", content)])
    expect(report).to_have_text("theirs.json is here as “Theirs”.Open")
    expect(tab.page.get_by_label("Chat templates of the next files too")).to_be_checked()


def test_files_dropped_on_the_page_are_imported(ringside: Ringside, new_tab: NewTab) -> None:
    tab = new_tab(ringside.url)
    dropped = tab.page.evaluate_handle(
        """() => {
          const carried = new DataTransfer();
          carried.items.add(new File(["Once more"], "dropped.txt"));
          return carried;
        }"""
    )
    tab.page.dispatch_event("#rs-input", "dragenter", {"dataTransfer": dropped})
    expect(tab.page.locator("body.rs-dropping")).to_have_count(1)
    tab.page.dispatch_event("#rs-input", "drop", {"dataTransfer": dropped})
    expect(tab.page.locator(".imports li")).to_contain_text("dropped.txt is here as “dropped”.")
    expect(tab.page.locator("body.rs-dropping")).to_have_count(0)


def test_everything_is_backed_up_into_one_file(ringside: Ringside, new_tab: NewTab, tmp_path: Path) -> None:
    add(ringside, "Kept")
    tab = new_tab(ringside.url)
    with tab.page.expect_download() as download:
        tab.page.click("#rs-backup")
    copy = tmp_path / "copy.sqlite"
    download.value.save_as(copy)
    assert sqlite3.connect(copy).execute("SELECT title FROM chats").fetchall() == [("Kept",)]


def test_presets_are_kept_applied_shared_and_deleted(ringside: Ringside, new_tab: NewTab) -> None:
    tab = new_tab(ringside.url)
    window = tab.page.locator("#rs-window input")
    said = tab.page.locator("#rs-preset-said")
    expect(window).to_have_value("256")
    tab.page.fill("#rs-window input", "128")
    tab.page.click("#rs-preset-save")
    tab.page.fill("#rs-preset-name", "../Small")
    tab.page.press("#rs-preset-name", "Enter")
    expect(said).to_contain_text("A preset cannot be called '../Small'. Use letters")
    tab.page.fill("#rs-preset-name", "Small")
    tab.page.press("#rs-preset-name", "Enter")
    expect(said).to_have_text("The settings are kept as “Small”.")
    tab.page.fill("#rs-window input", "64")
    tab.page.click("#rs-preset-apply")
    expect(window).to_have_value("128")
    tab.page.click("#rs-preset-more")
    with tab.page.expect_download() as download:
        tab.page.get_by_role("menuitem", name="Export “Small”").click()
    content = download.value.path().read_text("utf-8")
    assert download.value.suggested_filename == "Small.toml"
    tab.page.set_input_files("#rs-preset-file", [file("Tiny.toml", content.replace("window = 128", "window = 32"))])
    expect(said).to_have_text("“Tiny” is here; Apply uses it.")
    tab.page.click("#rs-preset-apply")
    expect(window).to_have_value("32")
    tab.page.click("#rs-preset-more")
    tab.page.get_by_role("menuitem", name="Delete “Tiny”").click()
    tab.page.click("#rs-preset-ask .danger")
    expect(tab.page.locator("#rs-preset option")).to_have_text(["Choose one", "Small"])


def test_a_preset_changes_the_chat_on_screen_or_only_new_ones(ringside: Ringside, new_tab: NewTab) -> None:
    ask(ringside, "POST", "/presets/import", {"name": "Wide", "content": "window = 200"})
    ask(ringside, "POST", "/presets/import", {"name": "Narrow", "content": "window = 100"})
    chat = add(ringside, "Mine")
    tab = new_tab(f"{ringside.url}#chat={chat}")
    tab.page.click("#rs-open-settings")
    tab.page.select_option("#rs-preset", "Wide")
    tab.page.click("#rs-preset-apply")
    expect(tab.page.locator("#rs-window input")).to_have_value("200")
    tab.page.select_option("#rs-preset", "Narrow")
    tab.page.check("#rs-preset-new")
    tab.page.click("#rs-preset-apply")
    expect(tab.page.locator("#rs-preset-said")).to_have_text("New chats begin with “Narrow”.")
    expect(tab.page.locator("#rs-window input")).to_have_value("200")
    tab.page.click("#rs-close-settings")
    tab.page.click("#rs-new-chat")
    expect(tab.page.locator("#rs-window input")).to_have_value("100")


# Last, since whatever comes after it would delete them all first.
def test_of_five_thousand_chats_only_those_near_the_screen_are_in_the_page(ringside: Ringside, new_tab: NewTab) -> None:
    message = {"role": "user", "text": "Hi."}
    chats = [{"title": f"Chat {number}", "folder": f"F{number % 3}", "messages": [message]} for number in range(5000)]
    import_chats(ringside, *chats)
    tab = new_tab(ringside.url)
    expect(tab.page.locator("#rs-chat-list li").first).to_be_visible()
    assert tab.page.locator("#rs-chat-list li").count() < 60
    tab.page.focus("#rs-chat-list button")
    tab.page.keyboard.press("End")
    expect(row(tab, "Chat 2")).to_be_in_viewport()
    expect(row(tab, "Chat 2")).to_have_attribute("aria-posinset", "5003")
    assert tab.page.locator("#rs-chat-list li").count() < 60
    tab.page.fill("#rs-search", "chat 4321")
    expect(tab.page.locator(".found-title")).to_have_count(1)
