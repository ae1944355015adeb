"""A comparison as sentences, charts and a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from app.proof.compare import Comparison, Outcome, outcomes
from app.proof.curves import SPEED_DEPTHS, rate_curve
from app.proof.measurement import Measurement
from app.proof.quantities import bytes_text, seconds_text
from app.proof.report import PALETTE, Figure, Report, Table, axes, line
from app.proof.slopes import Slope


def report(comparison: Comparison) -> Report:
    """Turn what was measured, all of it or the part before a stop, into a report."""
    found = outcomes(comparison)
    return Report(
        title="One prompt, one seed, several ways to keep the past",
        sentences=conclusions(comparison, found),
        figures=_figures(comparison.measurements) if any(each.points for each in comparison.measurements) else [],
        tables=[_table(found)],
        results=results(comparison, found),
    )


def conclusions(comparison: Comparison, found: Sequence[Outcome]) -> list[str]:
    """Say what each run's memory did, how its text went, and what stands in the way of trusting it."""
    sentences = []
    if comparison.stopped:
        sentences.append("Stopped early: the figures are of what was measured until then.")
    for outcome in found:
        sentences.append(_memory_sentence(outcome))
        if outcome is not found[0]:
            sentences.append(_text_sentence(outcome, found[0]))
    for measurement in comparison.measurements:
        notices = measurement.model.notices if measurement.model else ()
        sentences += [f"{measurement.label}: {notice}" for notice in notices]
    return [sentence for sentence in sentences if sentence]


def results(comparison: Comparison, found: Sequence[Outcome]) -> dict[str, Any]:
    """Return everything as JSON-ready values."""
    return {
        "experiment": dataclasses.asdict(comparison.experiment),
        "stopped": comparison.stopped,
        "outcomes": [dataclasses.asdict(outcome) for outcome in found],
        "losses": {label: losses.values for label, losses in comparison.losses.items()},
        "runs": [_run_json(measurement) for measurement in comparison.measurements],
    }


def slope_text(slope: Slope | None) -> str:
    """Return a slope with its interval: "0 (-12 to 12) B/token"."""
    if slope is None:
        return "-"
    value, low, high = (round(number) for number in (slope.value, slope.low, slope.high))  # never "-0"
    return f"{value:,} ({low:,} to {high:,}) B/token"


def _run_json(measurement: Measurement) -> dict[str, Any]:
    values = dataclasses.asdict(measurement)
    return {name: value for name, value in values.items() if not name.startswith("_") and name != "load_progress"}


def _memory_sentence(outcome: Outcome) -> str:
    if outcome.error:
        return f"{outcome.label} ended with an error after {outcome.num_tokens:,} tokens: {outcome.error}"
    slope = outcome.process_slope
    if slope is None:
        return f"{outcome.label}: {outcome.num_tokens:,} tokens are too few beyond a full window to tell a slope."
    verdict = "flat within what was measured" if slope.is_flat else "shrinking" if slope.value < 0 else "growing"
    against = ""
    if outcome.full_slope:
        share = f"{abs(slope.value) / outcome.full_slope:.1%}"
        against = f", {share} of the {outcome.full_slope:,.0f} B/token of a cache that keeps everything"
    return (
        f"{outcome.label}: memory of the process is {verdict}, {slope_text(slope)} over {outcome.num_tokens:,} tokens"
        f"{against}; its keys and values {slope_text(outcome.kv_slope)}."
    )


def _text_sentence(outcome: Outcome, first: Outcome) -> str:
    if outcome.first_difference is None:
        return f"{outcome.label} writes the same {outcome.same_tokens:,} tokens as {first.label}."
    return f"{outcome.label} parts from {first.label} at token {outcome.first_difference:,} of the reply."


def _figures(measurements: Sequence[Measurement]) -> list[Figure]:
    return [
        _figure("Memory of the process", measurements, _trace("process_bytes"), "bytes"),
        _figure("Keys and values held", measurements, _trace("kv_held_bytes"), "bytes"),
        _figure("Tokens per second", measurements, lambda each: rate_curve(each.points), "tokens/s"),
        _figure("Time per token", measurements, _token_times, "ms"),
    ]


def _figure(
    title: str,
    measurements: Sequence[Measurement],
    curve: Callable[[Measurement], tuple[list[int], list[Any]]],
    unit: str,
) -> Figure:
    colours = zip(measurements, PALETTE, strict=False)
    traces = [line(each.label, *curve(each), colour) for each, colour in colours]
    return Figure(title, traces, axes("tokens of the reply", unit))


def _trace(name: str) -> Callable[[Measurement], tuple[list[int], list[Any]]]:
    def curve(measurement: Measurement) -> tuple[list[int], list[Any]]:
        points = measurement.points
        return [point.tokens for point in points], [getattr(point, name) for point in points]

    return curve


def _token_times(measurement: Measurement) -> tuple[list[int], list[float]]:
    tokens, rates = rate_curve(measurement.points)
    return tokens, [1000 / rate for rate in rates]


def _table(found: Sequence[Outcome]) -> Table:
    rows: list[tuple[str, Callable[[Outcome], str]]] = [
        ("Tokens written", lambda o: f"{o.num_tokens:,}"),
        ("Peak memory of the process", lambda o: bytes_text(o.peak_process_bytes)),
        ("Slope of memory", lambda o: slope_text(o.process_slope)),
        ("Keys and values at the end", lambda o: _or_dash(o.final_kv_bytes, bytes_text)),
        ("Slope of keys and values", lambda o: slope_text(o.kv_slope)),
        ("First token after", lambda o: _or_dash(o.first_token_s, seconds_text)),
        ("Tokens/s, median", lambda o: _or_dash(o.median_rate, "{:.1f}".format)),
        *((f"Tokens/s at {depth:,}", _speed(depth)) for depth in SPEED_DEPTHS),
        ("Parts from the first at token", lambda o: _or_dash(o.first_difference, "{:,}".format)),
        ("Loss of the reference, nats/token", lambda o: _or_dash(o.loss, "{:.4f}".format)),
    ]
    cells = [(name, *(cell(outcome) for outcome in found)) for name, cell in rows]
    return Table("Side by side", ("", *(outcome.label for outcome in found)), cells)


def _speed(depth: int) -> Callable[[Outcome], str]:
    return lambda outcome: _or_dash(outcome.speeds[depth], "{:.1f}".format)


def _or_dash(value: float | None, text: Callable[[float], str]) -> str:
    return "-" if value is None else text(value)
