"""Whether two times differ, or only their samples do."""

from __future__ import annotations

import math
from typing import Literal

from autotile.types import Measurement

Verdict = Literal["same", "faster", "slower"]

LEAST_DIFFERENCE = 0.005
"""Medians that are closer than this share of the smaller are the same whatever their spread: a kernel's place in memory
moves it by as much."""

LEAST_DIFFERENCE_MS = 0.0002
"""And so are medians that are closer than some ticks of the timer (32 ns on the GPUs that were looked at)."""

STANDARD_ERRORS = 3.0


def verdict(mine: Measurement, other: Measurement) -> Verdict:
    """`faster` or `slower` (mine than the other) where the medians differ by more than their noise, else `same`."""
    difference = mine.time_ms - other.time_ms
    noise = STANDARD_ERRORS * math.hypot(median_error_ms(mine), median_error_ms(other))
    least = max(LEAST_DIFFERENCE_MS, LEAST_DIFFERENCE * min(mine.time_ms, other.time_ms))
    if abs(difference) <= max(noise, least):
        return "same"
    return "faster" if difference < 0 else "slower"


def median_error_ms(measurement: Measurement) -> float:
    """Standard error of a median: 1.2533 σ / √n for a normal sample (Kenney and Keeping, Mathematics of Statistics,
    part 1, §12.5), with σ from the interquartile range, which is 1.349 σ."""
    return 1.2533 * measurement.spread_ms / 1.349 / math.sqrt(max(1, measurement.runs))
