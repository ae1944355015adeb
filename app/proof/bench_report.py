"""A benchmark's results as JSON, a figure, and the README's tables, which are made from the JSON and never typed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from app.proof.bench_rounds import Row
from app.proof.bench_tables import decode_rate, depths_of, names_of, tables
from app.proof.picture import draw_svg
from app.proof.quantities import bytes_text, seconds_text
from app.proof.report import PALETTE, Figure, axes, line
from app.proof.slopes import median_and_quartiles
from backends.errors import RingsideError

BEGIN_MARK, END_MARK = "<!-- bench: made by make bench -->", "<!-- bench: end -->"

Values = Mapping[str, Any]


def line_of(row: Row) -> str:
    """Return one row as a progress line."""
    if row.sample is None:
        return f"{row.contestant} at {row.depth:,}: {row.why_not}"
    rate = row.sample.decode_rate
    return (
        f"{row.contestant} at {row.depth:,}, round {row.round}: first token {seconds_text(row.sample.first_token_s)}, "
        f"{f'{rate:.1f} tokens/s' if rate else 'one token'}, peak {bytes_text(row.sample.peak_bytes)}"
    )


def write(results: Values, path: Path, readme: Path | None) -> None:
    """Write the JSON, the figure beside it, and the tables into the README if one is given."""
    from app.proof.printing import note

    write_json(results, path)
    note(f"Wrote {path}")
    try:
        draw_svg(figures(results), path.with_suffix(".svg"))
        note(f"Wrote {path.with_suffix('.svg')}")
    except RingsideError as error:
        note(f"No figure: {error}")
    if readme is not None:
        update_readme(readme, results)
        note(f"Wrote the tables into {readme}")


def write_json(results: Values, path: Path) -> None:
    """Write the results, the old file staying whole until the new one is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    os.replace(partial, path)


def update_readme(path: Path, results: Values) -> None:
    """Replace what stands between the marks.

    Raises:
        ValueError: the file has no such marks.
    """
    text = path.read_text("utf-8")
    before, begin, rest = text.partition(BEGIN_MARK)
    _, end, after = rest.partition(END_MARK)
    if not begin or not end:
        raise ValueError(f"{path} has no place for the table; put {BEGIN_MARK} and {END_MARK} on lines of their own")
    path.write_text(f"{before}{begin}\n{tables(results)}\n{end}{after}", encoding="utf-8")


def figures(results: Values) -> list[Figure]:
    """Return decode speed and peak memory by depth."""
    return [
        _figure(results, "Tokens per second by depth", "tokens/s", decode_rate),
        _figure(results, "Peak memory of the process by depth", "GiB", _peak_gib, log_y=True),
    ]


def _peak_gib(sample: Values) -> float:
    return float(sample["peak_bytes"]) / 2**30


def _figure(
    results: Values, title: str, unit: str, value: Callable[[Values], float | None], log_y: bool = False
) -> Figure:
    """Draw a line a contestant: ours whole and thick, the others dashed."""
    traces, depths = [], depths_of(results)
    for number, name in enumerate(names_of(results)):
        by_depth = {
            depth: [
                found
                for row in results["rows"]
                if row["contestant"] == name and row["depth"] == depth and row["sample"]
                if (found := value(row["sample"])) is not None
            ]
            for depth in depths
        }
        known = [(depth, median_and_quartiles(values)[0]) for depth, values in by_depth.items() if values]
        is_ours = name.startswith("Ringside")
        colour, dash = PALETTE[number % len(PALETTE)], "solid" if is_ours else "dash"
        trace = line(name, [depth for depth, _ in known], [median for _, median in known], colour, dash)
        trace["line"]["width"] = 3.2 if is_ours else 1.8
        traces.append(trace | {"mode": "lines+markers"})
    layout = axes("tokens before", unit, log_x=True, log_y=log_y)
    layout["xaxis"] |= {"tickvals": depths, "ticktext": [f"{depth:,}" for depth in depths]}
    if log_y:
        layout["yaxis"] |= {"tickvals": [2.0**power for power in range(-4, 8)]}
    return Figure(title, traces, layout)
