"""What a measured run says: speed by depth, slope of its memory, peak, and where two texts part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.proof.measurement import Measurement, Point
from app.proof.slopes import Slope, slope_of

SPEED_DEPTHS = (1024, 4096, 16_384)
_DEPTH_TOLERANCE = 0.1
_MIN_SPAN_S = 0.2


def rate_curve(points: Sequence[Point], num_bins: int = 200) -> tuple[list[int], list[float]]:
    """Return (tokens, tokens per second) over at most `num_bins` stretches of about equal token counts."""
    if len(points) < 2:
        return [], []
    step = max(1, -(-(points[-1].tokens - points[0].tokens) // num_bins))
    tokens, rates, start = [], [], points[0]
    for point in points[1:]:
        if point.tokens - start.tokens >= step and point.time_s > start.time_s:
            tokens.append(point.tokens)
            rates.append((point.tokens - start.tokens) / (point.time_s - start.time_s))
            start = point
    return tokens, rates


def speed_at(measurement: Measurement, depth: int) -> float | None:
    """Return tokens per second around a depth of the whole text, prompt included: within 10% of it.

    None where the run did not get beyond, or began after, that stretch, or it is too short to time (0.2 s).
    """
    low = depth * (1 - _DEPTH_TOLERANCE) - measurement.num_prompt_tokens
    high = depth * (1 + _DEPTH_TOLERANCE) - measurement.num_prompt_tokens
    inside = [point for point in measurement.points if low <= point.tokens <= high]
    reached = bool(measurement.points) and measurement.points[-1].tokens >= depth - measurement.num_prompt_tokens
    if not reached or len(inside) < 2 or inside[-1].time_s - inside[0].time_s < _MIN_SPAN_S:
        return None
    return (inside[-1].tokens - inside[0].tokens) / (inside[-1].time_s - inside[0].time_s)


def bytes_slope(measurement: Measurement, trace: str, from_position: int = 0) -> Slope | None:
    """Return the growth of a byte count in bytes per token, past a position of the whole text, prompt included."""
    known = [
        (point.tokens, float(value))
        for point in past(measurement, from_position)
        if (value := getattr(point, trace)) is not None
    ]
    return slope_of([tokens for tokens, _ in known], [value for _, value in known])


def time_slope(measurement: Measurement, from_position: int = 0) -> Slope | None:
    """Return how the time of one token changes with depth, in seconds per token per token."""
    tokens, rates = rate_curve(past(measurement, from_position))
    return slope_of(tokens, [1 / rate for rate in rates])


def settled_from(measurement: Measurement) -> int:
    """Return the position at which the run's bounded layers are full: a slope from before would measure the filling.

    A run without bounded layers is taken from where a ring of its window would be full.
    """
    model = measurement.model
    return measurement.capacity_tokens or (0 if model is None else model.window + model.sinks)


def past(measurement: Measurement, position: int) -> list[Point]:
    """Return the points from a position of the whole text on, prompt included."""
    return [
        point
        for point in measurement.points
        if (measurement.num_prompt_tokens + point.tokens if point.position_tokens is None else point.position_tokens)
        >= position
    ]


def median_rate(measurement: Measurement) -> float | None:
    """Return the median of tokens per second over the run."""
    _, rates = rate_curve(measurement.points)
    return float(np.median(rates)) if rates else None


def first_difference(left: Sequence[object], right: Sequence[object]) -> int | None:
    """Return the first place where two texts or id lists differ; None where one is the beginning of the other."""
    return next((index for index, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), None)
