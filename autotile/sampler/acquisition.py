"""How good a free row is to try next: expected improvement (in logarithms), what it may fail, what it costs."""

from __future__ import annotations

import math
from statistics import NormalDist
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


FAIR_CHANCE = 1 / 3
"""A chance that is held against nobody: the best often lies next to what fails, and weighing by the chance itself would
shun it."""


def log_chance(mean: Array, deviation: Array) -> Array:
    """What is held against a row that will likely fail: the logarithm of its chance over a fair one; 0 for a fair one.

    The chance is that a regression on 1 (right) and 0 (failed) is above ½ there. From a table; below it log(φ(z) / −z),
    which the chance comes to far out.
    """
    z = np.asarray((mean - 0.5) / deviation)
    held = np.zeros_like(z)
    unfair = z < _FAIR
    z = z[unfair]
    far = np.minimum(z, _GRID[0])
    tail = -0.5 * far * far - np.log(-far * math.sqrt(2 * math.pi))
    held[unfair] = np.where(z < _GRID[0], tail, np.interp(z, _GRID, _CHANCES)) - math.log(FAIR_CHANCE)
    return held


def _log_gain(z: float) -> float:
    """log(z·Φ(z) + φ(z)): of the improvement expected of a standard normal beyond −z."""
    return math.log(z * math.erfc(-z / math.sqrt(2)) / 2 + math.exp(-z * z / 2) / math.sqrt(2 * math.pi))


_GRID = np.linspace(-12, 12, 24 * 64 + 1)
_GAINS = np.asarray([_log_gain(float(z)) for z in _GRID])
_CHANCES = np.asarray([math.log(math.erfc(-float(z) / math.sqrt(2)) / 2) for z in _GRID])
_FAIR = NormalDist().inv_cdf(FAIR_CHANCE)
