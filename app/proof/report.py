"""Reports: sentences, figures and tables as plain values, and one self-contained HTML page made of them.

Figures are Plotly's own dictionaries (`data` and `layout`), so a page of the app can draw the same ones. Nothing is
fetched when the file is opened: plotly.js comes from the installed package and is written into it.
"""

from __future__ import annotations

import html
import importlib.resources
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PALETTE = ("#2563eb", "#d97706", "#059669", "#dc2626", "#7c3aed", "#0891b2")
"""Line colours, readable on light and on dark."""


@dataclass(frozen=True)
class Figure:
    """One chart: Plotly traces and layout, and a sentence that says what to see in it."""

    title: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    caption: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of text under a header; the first column names the row.

    `detail` tables are for the HTML page; a terminal leaves them out.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    detail: bool = False


@dataclass(frozen=True)
class Report:
    """What an experiment found.

    Attributes:
        sentences: conclusions, each naming its numbers.
        results: everything measured, as JSON-ready values; embedded in the page for download.
    """

    title: str
    sentences: Sequence[str]
    figures: Sequence[Figure]
    tables: Sequence[Table]
    results: dict[str, Any] = field(default_factory=dict)


def line(name: str, x: Sequence[float], y: Sequence[float | None], colour: str, dash: str = "solid") -> dict[str, Any]:
    """Return a Plotly line trace."""
    style = {"color": colour, "dash": dash, "width": 2}
    return {"type": "scatter", "mode": "lines", "name": name, "x": list(x), "y": list(y), "line": style}


def axes(x_title: str, y_title: str, log_x: bool = False, log_y: bool = False) -> dict[str, Any]:
    """Return a Plotly layout with both axes titled."""
    y_axis: dict[str, Any] = {"title": {"text": y_title}, "type": "log" if log_y else "linear"}
    if not log_y:
        y_axis["rangemode"] = "tozero"
    if y_title == "bytes":
        y_axis |= {"exponentformat": "SI", "ticksuffix": "B"}  # 1.5GB, where Plotly by itself writes 1.5B
    return {
        "xaxis": {"title": {"text": x_title}, "type": "log" if log_x else "linear"},
        "yaxis": y_axis,
        "hovermode": "x unified",
        "legend": {"orientation": "h", "y": 1.12},
        "margin": {"l": 70, "r": 20, "t": 40, "b": 55},
    }


def to_html(report: Report) -> str:
    """Return the report as one HTML document that needs no network."""
    body = [f"<h1>{html.escape(report.title)}</h1>", _sentences_html(report.sentences)]
    for index, figure in enumerate(report.figures):
        body.append(
            f"<section><h2>{html.escape(figure.title)}</h2><p>{html.escape(figure.caption)}</p>"
            f'<div class="figure" id="figure-{index}"></div></section>'
        )
    body += [_table_html(table) for table in report.tables]
    body.append('<p><button id="save">Save the numbers as JSON</button></p>')
    figures = [{"data": figure.data, "layout": figure.layout} for figure in report.figures]
    return _PAGE.format(
        title=html.escape(report.title),
        body="\n".join(body),
        plotly=plotly_script(),
        figures=_script_json(figures),
        results=_script_json(report.results),
    )


def write(report: Report, path: Path) -> tuple[Path, Path]:
    """Write `path` as HTML and the numbers beside it as JSON; return both paths."""
    html_path, json_path = path.with_suffix(".html"), path.with_suffix(".json")
    html_path.parent.mkdir(parents=True, exist_ok=True)
    html_path.write_text(to_html(report), encoding="utf-8")
    json_path.write_text(json.dumps(report.results, indent=1) + "\n", encoding="utf-8")
    return html_path, json_path


def _sentences_html(sentences: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{html.escape(sentence)}</li>" for sentence in sentences) + "</ul>"


def _table_html(table: Table) -> str:
    header = "".join(f"<th>{html.escape(column)}</th>" for column in table.columns)
    rows = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows)
    return (
        f"<section><h2>{html.escape(table.title)}</h2><div class=scroll><table><thead><tr>{header}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div></section>"
    )


def _script_json(value: object) -> str:
    """JSON that may stand in a script element: no `</script>` and no comment opener can occur in it."""
    return json.dumps(value, allow_nan=False).replace("<", "\\u003c")


def plotly_script() -> str:
    """Return plotly.js as the installed package ships it."""
    return (importlib.resources.files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root {{ color-scheme: light dark; --ink: #1f2937; --paper: #fff; --line: #d1d5db; }}
@media (prefers-color-scheme: dark) {{ :root {{ --ink: #e5e7eb; --paper: #111827; --line: #374151; }} }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem;
  color: var(--ink); background: var(--paper); }}
.figure {{ height: 26rem; }} .scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th, td {{ border-bottom: 1px solid var(--line); padding: .35rem .8rem; text-align: right; }}
th:first-child, td:first-child {{ text-align: left; }}
</style><script>{plotly}</script></head><body>
{body}
<script>
const figures = {figures}, results = {results};
const style = getComputedStyle(document.documentElement);
const ink = style.getPropertyValue("--ink").trim(), line = style.getPropertyValue("--line").trim();
figures.forEach((figure, index) => {{
  const clear = {{ paper_bgcolor: "transparent", plot_bgcolor: "transparent", font: {{ color: ink }} }};
  const layout = {{ ...figure.layout, ...clear }};
  for (const axis of ["xaxis", "yaxis"]) layout[axis] = {{ ...layout[axis], gridcolor: line, zerolinecolor: line }};
  Plotly.newPlot("figure-" + index, figure.data, layout, {{ responsive: true, displaylogo: false }});
}});
document.getElementById("save").onclick = () => {{
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(results, null, 1)], {{ type: "application/json" }}));
  link.download = document.title.replace(/[^a-z0-9]+/gi, "-").toLowerCase() + ".json";
  link.click();
}};
</script></body></html>
"""
