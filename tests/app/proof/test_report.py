"""Reports: one file, no network, everything in it escaped, the numbers beside it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from app.proof.quantities import bytes_text, seconds_text, tokens_text
from app.proof.report import Figure, Report, Table, axes, line, to_html, write

REPORT = Report(
    title="Flat & <b>true</b>",
    sentences=["W = 512 <script>alert(1)</script>"],
    figures=[Figure("KV", [line("ring </script><script>", [1, 2], [3, None], "#123456")], axes("tokens", "bytes"))],
    tables=[Table("Peaks", ("", "Peak"), [("ring", "1 < 2")])],
    results={"text": "</script><!-- a reply that breaks out -->", "peak": 12},
)


def own_markup(document: str) -> str:
    """The document without plotly.js, which is the first script."""
    return re.sub(r"<script>.*?</script>", "<script></script>", document, count=1, flags=re.DOTALL)


def test_the_page_loads_nothing_from_anywhere() -> None:
    document = own_markup(to_html(REPORT))
    assert not re.search(r"(src|href)\s*=", document.replace("link.href =", ""))
    assert "http" not in document


def test_no_text_can_break_out_of_its_place() -> None:
    document = own_markup(to_html(REPORT))
    assert "<b>true</b>" not in document
    assert "alert(1)</script>" not in document
    assert document.count("<script>") == document.count("</script>") == 2
    assert "<!-- a reply" not in document


def test_figures_and_results_survive_the_embedding() -> None:
    document = own_markup(to_html(REPORT))
    found = re.search(r"const figures = (.*), results = (.*);\n", document)
    assert found is not None
    assert json.loads(found.group(2)) == REPORT.results
    assert json.loads(found.group(1))[0]["data"][0]["y"] == [3, None]


def test_writing_gives_the_page_and_the_same_numbers_as_json(tmp_path: Path) -> None:
    html_path, json_path = write(REPORT, tmp_path / "new" / "proof.html")
    assert (html_path.name, json_path.name) == ("proof.html", "proof.json")
    assert json.loads(json_path.read_text("utf-8")) == REPORT.results
    assert html_path.stat().st_size > 1_000_000  # plotly.js is inside


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "0.98 KiB"),
        (1536, "1.50 KiB"),
        (117_440_512, "112 MiB"),
        (-2048, "-2.00 KiB"),
    ],
)
def test_bytes_are_told_in_binary_units_with_three_digits(value: float, text: str) -> None:
    assert bytes_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(2.5e-6, "2.50 µs"), (0.0212, "21.2 ms"), (0.9999, "1.00 s"), (75, "75.0 s")]
)
def test_durations_are_told_with_three_digits(value: float, text: str) -> None:
    assert seconds_text(value) == text


def test_token_counts_have_separators() -> None:
    assert tokens_text(20_000) == "20,000"
