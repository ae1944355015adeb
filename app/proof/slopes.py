"""How steep a measured curve is, and how sure that is: the figures behind "flat".

Memory curves are not a line plus independent noise: they climb in steps and neighbours agree. The interval is therefore
taken over the means of a few long blocks, which hardly know of each other, so that such a curve does not look surer
than it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_NUM_BLOCKS = 8
_STUDENT_T_95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365}  # two-sided, by freedom


@dataclass(frozen=True)
class Slope:
    """Slope of a curve with its 95% confidence interval, in units of y per unit of x."""

    value: float
    low: float
    high: float
    num_points: int

    @property
    def is_flat(self) -> bool:
        """Whether the interval holds zero: growth cannot be told from none."""
        return self.low <= 0.0 <= self.high


def slope_of(x: Sequence[float], y: Sequence[float]) -> Slope | None:
    """Return the slope of y over x; None below three points or where x does not vary.

    Least squares over the means of at most 8 blocks of neighbouring points (batch means: Law & Kelton, "Simulation
    Modeling and Analysis", section 9.5), the interval by Student's t.

    >>> slope_of([0, 1, 2, 3], [5, 7, 9, 11])
    Slope(value=2.0, low=2.0, high=2.0, num_points=4)
    """
    if len(x) != len(y):
        raise ValueError(f"{len(x)} x values do not pair with {len(y)} y values")
    num_blocks = min(_NUM_BLOCKS, len(x))
    if num_blocks < 3 or min(x) == max(x):
        return None
    x_K = np.array([block.mean() for block in np.array_split(np.asarray(x, np.float64), num_blocks)])
    y_K = np.array([block.mean() for block in np.array_split(np.asarray(y, np.float64), num_blocks)])
    centred_K = x_K - x_K.mean()
    spread = float(centred_K @ centred_K)
    value = float(centred_K @ y_K) / spread
    residuals_K = y_K - y_K.mean() - value * centred_K
    freedom = num_blocks - 2
    half_width = _STUDENT_T_95[freedom] * float(np.sqrt(residuals_K @ residuals_K / freedom / spread))
    return Slope(value, value - half_width, value + half_width, len(x))


@dataclass(frozen=True)
class Mean:
    """A mean with its 95% confidence interval."""

    value: float
    low: float
    high: float


def mean_of(values: Sequence[float]) -> Mean | None:
    """Return the mean of values whose neighbours may agree, by the same block means; None below three."""
    num_blocks = min(_NUM_BLOCKS, len(values))
    if num_blocks < 3:
        return None
    means_K = np.array([block.mean() for block in np.array_split(np.asarray(values, np.float64), num_blocks)])
    half_width = _STUDENT_T_95[num_blocks - 1] * float(means_K.std(ddof=1)) / num_blocks**0.5
    value = float(np.mean(values))
    return Mean(value, value - half_width, value + half_width)


def median_and_quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Return (median, lower quartile, upper quartile) of at least one value."""
    low, median, high = np.quantile(np.asarray(values, np.float64), (0.25, 0.5, 0.75))
    return float(median), float(low), float(high)
