"""The minimal experiment as a report: four ways to keep a window, what each holds and what each step costs.

The torch code is in `models.cache_experiment` and runs in a process of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Sequence
from typing import Any

from app.proof.isolated import stream
from app.proof.quantities import bytes_text, seconds_text
from app.proof.report import PALETTE, Figure, Report, Table, axes, line
from models.step_cost import STRATEGIES, StepCost, Strategy

WINDOWS = (128, 256, 512, 1024, 2048, 4096, 8192)

NAMES: dict[Strategy, str] = {
    "concatenate": "Append by concatenation",
    "shift": "Shift by copying",
    "ring": "Ring",
    "preallocate": "Full, preallocated",
}
_COLOURS = dict(zip(STRATEGIES, (PALETTE[3], PALETTE[1], PALETTE[2], PALETTE[4]), strict=True))


def measure(windows: Sequence[int] = WINDOWS, longest: int = 32_768, seed: int = 0) -> Generator[StepCost, None, None]:
    """Yield the costs as they are measured; closing the iterator stops the measuring process.

    Raises:
        RingsideError: torch is missing, or a window is outside 1 to `longest`.
    """
    return stream("models.cache_experiment", "run", tuple(windows), longest, seed)


def report(costs: Sequence[StepCost]) -> Report:
    """Turn what was measured, all of it or the part before a stop, into sentences, charts and tables."""
    if not costs:
        return Report("Four ways to keep a window", ["Nothing was measured."], [], [])
    window = _typical_window(costs)
    return Report(
        title="Four ways to keep a window of keys and values",
        sentences=conclusions(costs),
        figures=[
            _figure(f"Time per token, window {window}", costs, "tokens", window, "step_ms"),
            _figure(f"Bytes held, window {window}", costs, "tokens", window, "held_bytes"),
            _figure("Time per token by window, at the longest text", costs, "window", None, "step_ms"),
            _figure("Time to add a token by window, attention left out", costs, "window", None, "append_us"),
        ],
        tables=[_summary_table(costs), _full_table(costs)],
        results={"costs": [dataclasses.asdict(cost) for cost in costs]},
    )


def conclusions(costs: Sequence[StepCost]) -> list[str]:
    """Say what each strategy costs at the typical window, from just full to the longest text, with its numbers."""
    window = _typical_window(costs)
    sentences = ["All four give the same attention output: only the last W tokens count. What differs is the cost."]
    for strategy in STRATEGIES:
        points = [cost for cost in costs if cost.strategy == strategy and cost.window == window]
        if points:
            sentences.append(_sentence(strategy, _when_full(points), points[-1]))
    return sentences


def _sentence(strategy: Strategy, early: StepCost, late: StepCost) -> str:
    held = f"{bytes_text(early.held_bytes)} to {bytes_text(late.held_bytes)}"
    step = f"{seconds_text(early.step_s)} to {seconds_text(late.step_s)}"
    return (
        f"{NAMES[strategy]}, W = {early.window:,}: from {early.tokens:,} to {late.tokens:,} tokens it holds "
        f"{held} and a step takes {step}; adding a token allocates {bytes_text(late.allocated_bytes)} and takes "
        f"{seconds_text(late.append_s)}."
    )


def _when_full(points: Sequence[StepCost]) -> StepCost:
    return next((cost for cost in points if cost.tokens >= cost.window), points[-1])


def _typical_window(costs: Sequence[StepCost]) -> int:
    windows = sorted({cost.window for cost in costs})
    return windows[len(windows) // 2]


def _figure(title: str, costs: Sequence[StepCost], x: str, window: int | None, y: str) -> Figure:
    traces: list[dict[str, Any]] = []
    longest = max(cost.tokens for cost in costs)
    for strategy in STRATEGIES:
        chosen = [
            c for c in costs if c.strategy == strategy and (c.window == window if window else c.tokens == longest)
        ]
        x_values, y_values = [getattr(c, x) for c in chosen], [_value(c, y) for c in chosen]
        dash = "dash" if strategy == "ring" else "solid"  # lets the shifting cache show where both are flat
        traces.append(line(NAMES[strategy], x_values, y_values, _COLOURS[strategy], dash))
    units = {"step_ms": "ms per token", "held_bytes": "bytes", "append_us": "µs per token"}
    x_title = "tokens so far" if x == "tokens" else "window W"
    return Figure(title, traces, axes(x_title, units[y], log_x=True, log_y=True))


def _value(cost: StepCost, name: str) -> float:
    match name:
        case "step_ms":
            return cost.step_s * 1e3
        case "append_us":
            return cost.append_s * 1e6
        case _:
            return float(cost.held_bytes)


def _summary_table(costs: Sequence[StepCost]) -> Table:
    longest = max(cost.tokens for cost in costs)
    rows = [
        (
            NAMES[cost.strategy],
            f"{cost.window:,}",
            bytes_text(cost.held_bytes),
            bytes_text(cost.allocated_bytes),
            seconds_text(cost.append_s),
            seconds_text(cost.step_s),
        )
        for cost in costs
        if cost.tokens == longest
    ]
    return Table(f"One more token after {longest:,}", ("", "W", "Held", "Allocated", "Add", "Step"), rows)


def _full_table(costs: Sequence[StepCost]) -> Table:
    columns = ("Strategy", "W", "Tokens", "Held", "Allocated a step", "Add a token", "Attend", "Quartiles of a step")
    rows = [
        (
            NAMES[cost.strategy],
            f"{cost.window:,}",
            f"{cost.tokens:,}",
            bytes_text(cost.held_bytes),
            bytes_text(cost.allocated_bytes),
            seconds_text(cost.append_s),
            seconds_text(cost.attend_s),
            f"{seconds_text(cost.low_s)} to {seconds_text(cost.high_s)}",
        )
        for cost in costs
    ]
    return Table("Every point measured", columns, rows, detail=True)
