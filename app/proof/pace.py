"""Whether tokens take longer the deeper they are, or the machine was busy with something else.

Depth makes every token slower, the fastest among them too; a neighbour on the machine slows some. So the fastest tenth
of the first and of the last third past a full window are compared. Where the deep ones still look slower, a control
decides: a short reply by a fresh worker, right after. If it is slow as well, the machine slowed down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.proof.curves import past, rate_curve, time_slope
from app.proof.measurement import MAX_POINTS, Measurement, Point
from app.proof.quantities import seconds_text
from app.proof.verdicts import Verdict

CONTROL_TOKENS = 96
"""Of the control's reply past a full window."""

_FLAT_GROWTH = 0.1
_LEAST_STRETCHES = 6
_GROWING_REMEDY = "Growing layers read all they keep: bound them with the policy 'ring'. Else look at the shares above."


@dataclass(frozen=True)
class Pace:
    """Seconds of a token in one part of a reply: the median, and the first decile, which noise hardly reaches."""

    usual_s: float
    fastest_s: float


def looks_slower(run: Measurement, settled: int) -> bool:
    """Whether even the fastest tokens are slower in the last third past a full window, beyond the noise."""
    ends, slope = _first_and_last_third(run, settled), time_slope(run, settled)
    return ends is not None and slope is not None and slope.low > 0 and _growth(*ends) > _FLAT_GROWTH


def judge_pace(run: Measurement, settled: int, control: Measurement | None, evidence: tuple[str, ...]) -> Verdict:
    """Compare the first and the last third of what lies past a full window, and where they differ the control."""
    ends, slope = _first_and_last_third(run, settled), time_slope(run, settled)
    if ends is None or slope is None:
        return Verdict("flat", "unsure", "The run is too short past a full window to tell.", evidence, "More tokens.")
    first, last = ends
    evidence = (
        *evidence,
        "From the first to the last third past a full window a token's time changed by "
        f"{_percent(last.usual_s / first.usual_s - 1)} (median), "
        f"the fastest tenth's by {_percent(_growth(first, last))}.",
    )
    if _growth(first, last) <= _FLAT_GROWTH:
        words = "Yes: deep in the text a token takes as long as when the window fills."
        return Verdict("flat", "good", words, evidence)
    if slope.low <= 0:
        return Verdict("flat", "unsure", "It seems to slow down, within the noise.", evidence, "Repeat it undisturbed.")
    return _judge_controlled(first, last, None if control is None else _pace_past(control, settled), evidence)


def _judge_controlled(first: Pace, last: Pace, control: Pace | None, evidence: tuple[str, ...]) -> Verdict:
    """Blame the depth only where a short reply, right after, was as fast as the beginning of the long one."""
    if control is None:
        words = "It seems to slow down, and no short reply was measured after it to tell depth from machine."
        return Verdict("flat", "unsure", words, evidence, "Repeat it undisturbed.")
    evidence = (
        *evidence,
        f"Control, a short reply by a fresh worker right after: the fastest tenth of its tokens took "
        f"{seconds_text(control.fastest_s)}, against {seconds_text(first.fastest_s)} in the first and "
        f"{seconds_text(last.fastest_s)} in the last third of the long one.",
    )
    if _growth(first, control) <= _FLAT_GROWTH < _growth(control, last):
        return Verdict("flat", "bad", "No: tokens take longer the deeper they are.", evidence, _GROWING_REMEDY)
    words = "The machine slowed down: a fresh short reply was slow as well, so depth is not shown to be the cause."
    return Verdict("flat", "unsure", words, evidence, "Repeat it undisturbed: close what else runs, let it cool down.")


def _percent(share: float) -> str:
    return f"{round(share, 2) + 0.0:+.0%}"  # + 0.0: no "-0%"


def _growth(first: Pace, last: Pace) -> float:
    return last.fastest_s / first.fastest_s - 1


def _first_and_last_third(run: Measurement, settled: int) -> tuple[Pace, Pace] | None:
    times = _token_times(past(run, settled))
    if len(times) < _LEAST_STRETCHES:
        return None
    third = len(times) // 3
    return _pace(times[:third]), _pace(times[-third:])


def _pace_past(control: Measurement, settled: int) -> Pace | None:
    times = _token_times(past(control, settled))
    return None if control.error or len(times) < 2 else _pace(times)


def _token_times(points: Sequence[Point]) -> list[float]:
    """Return seconds per token between updates, as finely as they came: a coarser mean would mix noise into each."""
    return [1 / rate for rate in rate_curve(points, num_bins=MAX_POINTS)[1]]


def _pace(times: Sequence[float]) -> Pace:
    fastest, usual = np.quantile(np.asarray(times, np.float64), (0.1, 0.5))
    return Pace(float(usual), float(fastest))
