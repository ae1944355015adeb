"""A benchmark's results as JSON, a figure, and the README's table, which is made from the JSON and never typed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from app.proof.bench import Row
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
    """Write the JSON, the figure beside it, and the table into the README if one is given."""
    from app.proof.printing import note

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    note(f"Wrote {path}")
    try:
        draw_svg(figures(results), path.with_suffix(".svg"))
        note(f"Wrote {path.with_suffix('.svg')}")
    except RingsideError as error:
        note(f"No figure: {error}")
    if readme is not None:
        update_readme(readme, results)
        note(f"Wrote the table into {readme}")


def table(results: Values) -> str:
    """Return Markdown: a row a contestant and depth, medians with quartiles over the rounds."""
    header = "| Depth | | First token | Prefill, tokens/s | Decode, tokens/s | Peak memory | After |"
    lines = [header, "|---:|:---|---:|---:|---:|---:|---:|"]
    for depth in _depths(results):
        for name in _names(results):
            rows = [row for row in results["rows"] if row["depth"] == depth and row["contestant"] == name]
            if rows:
                lines.append(_table_line(depth, name, rows))
    return "\n".join([*lines, "", _conditions(results)])


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
    path.write_text(f"{before}{begin}\n{table(results)}\n{end}{after}", encoding="utf-8")


def figures(results: Values) -> list[Figure]:
    """Return decode speed and peak memory by depth."""
    return [
        _figure(results, "Tokens per second by depth", "tokens/s", decode_rate),
        _figure(results, "Peak memory of the process by depth", "GiB", lambda sample: sample["peak_bytes"] / 2**30),
    ]


def decode_rate(sample: Values) -> float | None:
    """Return tokens per second after the first token of a sample read from JSON."""
    return (sample["num_tokens"] - 1) / sample["decode_s"] if sample["num_tokens"] > 1 else None


def prefill_rate(sample: Values) -> float:
    """Return prompt tokens per second up to the first token."""
    return float(sample["num_prompt_tokens"] / sample["first_token_s"])


def _table_line(depth: int, name: str, rows: Sequence[Values]) -> str:
    samples = [row["sample"] for row in rows if row["sample"] is not None]
    if not samples:
        return f"| {depth:,} | {name} | {rows[0]['why_not']} | | | | |"
    cells = (
        _spread([sample["first_token_s"] for sample in samples], seconds_text),
        _spread([prefill_rate(sample) for sample in samples], "{:.0f}".format),
        _spread([rate for sample in samples if (rate := decode_rate(sample)) is not None], "{:.1f}".format),
        _spread([sample["peak_bytes"] for sample in samples], bytes_text),
        _spread([sample["final_bytes"] for sample in samples], bytes_text),
    )
    return f"| {depth:,} | {name} | {' | '.join(cells)} |"


def _spread(values: Sequence[float], text: Callable[[float], str]) -> str:
    if not values:
        return "-"
    median, low, high = median_and_quartiles(values)
    words = (text(median), text(low), text(high))
    return words[0] if len(set(words)) == 1 else f"{words[0]} ({words[1]} to {words[2]})"


def _conditions(results: Values) -> str:
    machine = ", ".join(f"{name} {value}" for name, value in results["machine"].items())
    rounds = max((row["round"] for row in results["rows"]), default=0)
    return (
        f"{results['model']}, {results['num_tokens']} tokens after each prompt, median and quartiles of {rounds} "
        f"rounds, contestants in turn. {machine}."
    )


def _figure(results: Values, title: str, unit: str, value: Callable[[Values], float | None]) -> Figure:
    traces = []
    for name, colour in zip(_names(results), PALETTE * 2, strict=False):
        by_depth = {
            depth: [
                found
                for row in results["rows"]
                if row["contestant"] == name and row["depth"] == depth and row["sample"]
                if (found := value(row["sample"])) is not None
            ]
            for depth in _depths(results)
        }
        known = [(depth, median_and_quartiles(values)[0]) for depth, values in by_depth.items() if values]
        trace = line(name, [depth for depth, _ in known], [median for _, median in known], colour)
        traces.append(trace | {"mode": "lines+markers"})
    return Figure(title, traces, axes("tokens before", unit, log_x=True))


def _names(results: Values) -> list[str]:
    return list(dict.fromkeys(row["contestant"] for row in results["rows"]))


def _depths(results: Values) -> list[int]:
    return sorted({row["depth"] for row in results["rows"]})
