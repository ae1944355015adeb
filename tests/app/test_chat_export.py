from __future__ import annotations

import re
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.archive import ArchivedChat, ArchivedMessage
from app.chat_export import ExportFormat, exported, file_name
from app.metrics import MetricsRecord, Summary
from app.routes import assets_folder

METRICS = MetricsRecord(Summary(num_tokens=3, tokens_per_s_average=12.5, elapsed_s=75.0)).pack()
REPLY = ArchivedMessage(
    "assistant",
    "# A heading\n\nSome *words*.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\nprint(1)\n```\n\n$x^2$",
    token_ids=array("i", [1, 2, 3]),
    seed=7,
    model_name="Gemma <3>",
    packed_metrics=METRICS,
)
CHAT = ArchivedChat("Rivers & mills", (ArchivedMessage("user", "Write  of\n\trivers <b>"), REPLY))


def file_of(chat: ArchivedChat, format_: ExportFormat) -> str:
    return "".join(exported(chat, format_, assets_folder()))


def test_markdown_has_every_text_as_it_is_under_whose_it_is() -> None:
    text = file_of(CHAT, "md")
    assert text.startswith("# Rivers & mills\n\n## You\n\nWrite  of\n\trivers <b>\n\n## Gemma <3>\n\n# A heading")
    assert text.endswith("*3 tokens · 12.5 tokens/s · 1 min 15 s · seed 7*\n")


def test_a_notebook_is_its_text_under_its_title() -> None:
    notebook = ArchivedChat("Rivers", (ArchivedMessage("assistant", "They flow."),), kind="notebook")
    assert file_of(notebook, "md") == "# Rivers\n\nThey flow.\n"
    assert file_of(notebook, "txt") == "Rivers\n======\n\nThey flow.\n"
    assert "<h2>" not in file_of(notebook, "html")


@pytest.mark.parametrize(
    ("text", "closing"),
    [
        ("```\ncode", "\n```"),
        ("~~~~py\ncode\n~~~\n", "\n~~~~"),
        ("```\ncode\n```", ""),
        ("```\ncode\n```\nmore", ""),
        ("```", "\n```"),
        ("```\n```\n", ""),
        ("```\r\ncode\r\n```\r\n", ""),
        ("    ```\n    code", ""),
        ("plain", ""),
    ],
)
def test_a_fence_left_open_does_not_swallow_what_follows_in_markdown(text: str, closing: str) -> None:
    chat = ArchivedChat("", (ArchivedMessage("assistant", text), ArchivedMessage("user", "next")))
    assert file_of(chat, "md") == f"# Chat\n\n## Reply\n\n{text}{closing}\n\n## You\n\nnext\n"


def test_plain_text_is_the_texts_and_who_wrote_them() -> None:
    text = file_of(CHAT, "txt")
    assert text.startswith(
        "Rivers & mills\n==============\n\nYou:\n\nWrite  of\n\trivers <b>\n\nGemma <3>:\n\n# A head"
    )


def test_html_is_one_file_that_renders_and_asks_nobody_for_anything() -> None:
    text = file_of(CHAT, "html")
    assert "<title>Rivers &amp; mills</title>" in text
    assert "Write  of\n\trivers &lt;b&gt;" in text
    assert "<h2>Gemma &lt;3&gt;</h2>" in text
    assert '<h1 dir="auto">A heading</h1>' in text
    assert "<em>words</em>" in text
    assert "<table>" in text
    assert "<math" in text
    assert 'class="hl-' in text
    assert "--rs-hl-keyword" in text, "the page's style sheet comes along"
    assert not re.search(r"<script|<link|<img|url\(|@import|src=", text)
    assert "default-src 'none'" in text


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet="<>&\"'`*_[]()!# \n|a-:/script", max_size=200))
def test_hostile_text_stays_text_in_html(text: str) -> None:
    hostile = f"<script>alert(1)</script>\n\n[x](javascript:alert(1)) <img src=x onerror=alert(1)>\n\n{text}"
    chat = ArchivedChat(hostile, (ArchivedMessage("assistant", hostile, model_name=hostile),))
    body = file_of(chat, "html").partition("</style>")[2]
    assert not re.search(r"<(script|img|iframe|style)|<[^>]*(\son\w+\s*=|javascript:)", body, re.IGNORECASE)


def test_a_long_reply_comes_in_sections_and_whole() -> None:
    words = [f"word{number}" for number in range(12_000)]
    chat = ArchivedChat("", (ArchivedMessage("assistant", "\n\n".join(words)),))
    text = file_of(chat, "html")
    assert re.findall(r"word\d+", text) == words
    assert text.count("<section>") >= 2


def test_variants_that_are_not_on_screen_are_not_for_reading() -> None:
    chat = ArchivedChat("", (ArchivedMessage("user", "old draft"), ArchivedMessage("user", "new", follows=-1)))
    for format_ in ("md", "txt", "html"):
        assert "old draft" not in file_of(chat, format_)
    assert "old draft" in file_of(chat, "json")


def test_how_a_reply_ended_is_said() -> None:
    chat = ArchivedChat("", (ArchivedMessage("assistant", "so far", status="cut"),))
    assert file_of(chat, "md").endswith("so far\n\n*cut*\n")


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Rivers & mills", "Rivers mills.md"),
        ("../../etc/passwd", "etc passwd.md"),
        ("川の流れ", "川の流れ.md"),
        ('a:b*c?"d<e>|f\\g', "a b c d e f g.md"),
        ("", "chat.md"),
        ("x" * 500, "x" * 60 + ".md"),
    ],
)
def test_file_names_suit_every_file_system(title: str, name: str) -> None:
    assert file_name(ArchivedChat(title, ()), "md") == name
