"""How good a free row is to try next: expected improvement (in logarithms), what it may fail, what it costs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def log_improvement(lead: Array, deviation: Array) -> Array:
    """The logarithm of the expected improvement; `lead` is by how much the mean is better than what is to be beaten.

    From a table, with a straight line below it, where improvements are too unlikely for their order to matter.
    (Ament and others, Unexpected Improvements to Expected Improvement, 2023, say why the logarithm.)
    """
    z = lead / deviation
    return np.asarray(np.log(deviation) + np.interp(z, _GRID, _GAINS) + 12 * np.minimum(0, z + 12))


LEAST_CHANCE = 0.02
"""The chance of success of a row in the midst of failures: a regression on zeros and ones is no certainty."""


def log_chance(mean: Array) -> Array:
    """The logarithm of a row's chance to be right, from the mean of a regression on 1 (right) and 0 (failed)."""
    return np.asarray(np.log(np.clip(mean, LEAST_CHANCE, 1.0)))


def _log_gain(z: float) -> float:
    """log(z·Φ(z) + φ(z)): of the improvement expected of a standard normal beyond −z."""
    return math.log(z * math.erfc(-z / math.sqrt(2)) / 2 + math.exp(-z * z / 2) / math.sqrt(2 * math.pi))


_GRID = np.linspace(-12, 12, 24 * 64 + 1)
_GAINS = np.asarray([_log_gain(float(z)) for z in _GRID])
