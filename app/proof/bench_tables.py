"""The README's tables of a benchmark: a measure a table, a contestant a row, a depth a column; ours first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from app.proof.contestants import CONTESTANTS
from app.proof.page_cost import by_backend
from app.proof.slopes import median_and_quartiles

Values = Mapping[str, Any]
_MIB = 2**20
_PAGE_ROWS: tuple[tuple[str, Callable[[Values], float], Callable[[float], str]], ...] = (
    ("bare loop, tokens/s", lambda cost: cost["bare_rate"], "{:.1f}".format),
    ("on the page, tokens/s", lambda cost: cost["page_rate"], "{:.1f}".format),
    ("page over bare", lambda cost: cost["page_rate"] / cost["bare_rate"], "{:.3f}".format),
    ("processor time of the server, s", lambda cost: cost["server_cpu_s"], "{:.2f}".format),
    ("processor time of the browser, s", lambda cost: cost["browser_cpu_s"], "{:.2f}".format),
    ("processor time of the worker, s", lambda cost: cost["worker_cpu_s"], "{:.1f}".format),
    ("processor time of the bare loop, s", lambda cost: cost["bare_cpu_s"], "{:.1f}".format),
)


def tables(results: Values) -> str:
    """Return Markdown."""
    shown = [
        _table(results, "Decode, tokens/s", decode_rate, "{:.1f}".format),
        _table(results, "First token, s", lambda sample: sample["first_token_s"], _seconds),
        _table(results, "Peak memory, MiB", lambda sample: sample["peak_bytes"] / _MIB, "{:,.0f}".format),
    ]
    if results["page"]:
        shown.append(page_table(results["page"]))
    folded = [
        _ratio_table(results, "Decode, ours over theirs", "decode_rate"),
        _ratio_table(results, "Peak memory, ours over theirs", "peak_bytes"),
        _table(results, "Memory after the reply, MiB", lambda sample: sample["final_bytes"] / _MIB, "{:,.0f}".format),
    ]
    if results["samplers"]:
        folded.append(sampler_table(results["samplers"]))
    opening = "<details>\n<summary>Ratios, memory after the reply, and what drawing a token costs</summary>"
    return "\n\n".join([*shown, _conditions(results), opening, *folded, "</details>"])


def page_table(costs: Sequence[Values]) -> str:
    """Return what the page costs beside the bare loop, a backend a column."""
    rounds_of = by_backend(costs)
    lines = _header("The page beside the bare loop", list(rounds_of))
    for title, value, text in _PAGE_ROWS:
        cells = [_spread([value(cost) for cost in rounds], text) for rounds in rounds_of.values()]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    num_rounds = max(len(rounds) for rounds in rounds_of.values())
    num_tokens, num_threads = costs[0]["num_tokens"], costs[0]["num_threads"]
    said = (
        f"Medians and quartiles of {num_rounds} rounds of {num_tokens:,} tokens, threads of the model {num_threads}; "
        "processor time for 1,000 tokens, Chromium drawing in software."
    )
    return "\n".join([*lines, "", said])


def sampler_table(costs: Sequence[Values]) -> str:
    """Return what drawing a token costs under each setting."""
    plain_s = next(cost["median_s"] for cost in costs if cost["name"] == "temperature")
    lines = [
        f"| Drawing one of {costs[0]['vocab_size']:,} tokens | µs | beside temperature alone | share of a step |",
        "|:---|---:|---:|---:|",
    ]
    for cost in costs:
        draw_s, step_s = cost["median_s"], cost["step_s"] + cost["median_s"]
        spread = tuple(f"{cost[name] * 1e6:,.0f}" for name in ("median_s", "low_s", "high_s"))
        lines.append(
            f"| {cost['name']} | {_spread_words(spread)} | {(draw_s - plain_s) * 1e6:+,.0f} | {draw_s / step_s:.1%} |"
        )
    return "\n".join(lines)


def decode_rate(sample: Values) -> float | None:
    """Return tokens per second after the first token of a sample read from JSON."""
    return (sample["num_tokens"] - 1) / sample["decode_s"] if sample["num_tokens"] > 1 else None


def names_of(results: Values) -> list[str]:
    """Return the contestants in the order of `CONTESTANTS`, unknown ones last."""
    found = dict.fromkeys(row["contestant"] for row in results["rows"])
    return [*(name for name in CONTESTANTS if name in found), *(name for name in found if name not in CONTESTANTS)]


def depths_of(results: Values) -> list[int]:
    """Return the prompt lengths, ascending."""
    return sorted({row["depth"] for row in results["rows"]})


def _table(results: Values, title: str, value: Callable[[Values], float | None], text: Callable[[float], str]) -> str:
    depths = depths_of(results)
    lines = _header(title, _depth_columns(depths))
    for name in names_of(results):
        cells = []
        for depth in depths:
            rows = [row for row in results["rows"] if (row["contestant"], row["depth"]) == (name, depth)]
            samples = [row["sample"] for row in rows if row["sample"] is not None]
            if samples:
                cells.append(_spread([found for sample in samples if (found := value(sample)) is not None], text))
            else:
                cells.append(rows[-1]["why_not"].rpartition(": ")[2] if rows else "not measured")  # the last cause
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _ratio_table(results: Values, title: str, measure: str) -> str:
    depths = depths_of(results)
    found = {
        (ratio["ours"], ratio["peer"], ratio["depth"]): ratio
        for ratio in results["ratios"]
        if ratio["measure"] == measure
    }
    lines = _header(title, _depth_columns(depths))
    for ours, peer in dict.fromkeys((ours, peer) for ours, peer, _ in found):
        cells = []
        for depth in depths:
            ratio = found.get((ours, peer, depth))
            words = () if ratio is None else tuple(f"{ratio[name]:.2f}" for name in ("median", "low", "high"))
            cells.append(_spread_words(words) if words else "-")
        lines.append(f"| {ours} / {peer} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _depth_columns(depths: Sequence[int]) -> list[str]:
    return [f"{depth:,} tokens" for depth in depths]


def _header(title: str, columns: Sequence[str]) -> list[str]:
    return [f"| {title} | {' | '.join(columns)} |", f"|:---|{'---:|' * len(columns)}"]


def _spread(values: Sequence[float], text: Callable[[float], str]) -> str:
    if not values:
        return "-"
    return _spread_words(tuple(text(value) for value in median_and_quartiles(values)))


def _spread_words(words: tuple[str, ...]) -> str:
    """Put (median, low, high) in a cell: the quartiles only where they say something else."""
    median, low, high = words
    return median if len(set(words)) == 1 else f"{median} ({low} to {high})"


def _seconds(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _conditions(results: Values) -> str:
    machine = ", ".join(f"{name} {value}" for name, value in results["machine"].items())
    return (
        f"{results['model']}, {results['num_tokens']} tokens after each prompt, median and quartiles of "
        f'{_rounds_words(results)}, contestants in turn; "over": one prompt and its reply took longer. {machine}.'
    )


def _rounds_words(results: Values) -> str:
    """Say how often each was measured: "3 rounds, 1 at 32,768 tokens, 2 of peer at 512 tokens" where that differs."""
    measured = Counter((row["depth"], row["contestant"]) for row in results["rows"] if row["sample"] is not None)
    most = {
        depth: max(count for (at, _), count in measured.items() if at == depth)
        for depth in sorted({at for at, _ in measured})
    }
    usual = max(most.values(), default=0)
    return ", ".join(
        [
            "1 round" if usual == 1 else f"{usual} rounds",
            *(f"{count} at {depth:,} tokens" for depth, count in most.items() if count < usual),
            *(f"{count} of {name} at {at:,} tokens" for (at, name), count in measured.items() if count < most[at]),
        ]
    )
