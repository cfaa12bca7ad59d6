"""How good a search is, scored on a recorded space: 0 is random search, 1 finds the optimum at once.

The method of Willemsen et al., "A Methodology for Comparing Auto-Tuning Optimization Algorithms" (2024). Since a
recording says what evaluating each row cost, a search is replayed in the time that it would have taken: its best so far
is a curve over seconds, and what counts is how much of the way from the curve of random search to the optimum it is
ahead, from the start to the end of a budget that the space sets.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotile.devices.replay.recording import Recording
from autotile.errors import UsageError

Array = np.ndarray[Any, Any]

BEGIN, END = 0.01, 0.95
"""Shares of the way from the median to the optimum: a search is scored from when random search is expected to have gone
the first until it is expected to have gone the second."""

TIMES = 50
"""Equidistant times at which curves are compared."""

BASELINE_RUNS = 200
BASELINE_SEED = 2024


@dataclass(frozen=True, eq=False)
class Scale:
    """What searches of one recording are scored by.

    `evaluations` is the budget in evaluations of median cost, `budget_s` the same in seconds. `times_s` are the moments
    that count, `baseline_ms` the mean best-so-far of random searches at each (float64, TIMES entries each).
    """

    opt_ms: float
    median_ms: float
    evaluations: int
    budget_s: float
    times_s: Array
    baseline_ms: Array

    @property
    def telling(self) -> Array:
        """Which of the times count: not those at which all random searches have the optimum."""
        return np.asarray(self.baseline_ms - self.opt_ms > 1e-9 * self.opt_ms)


def scale_of(recording: Recording) -> Scale:
    """The scale of a recording. Raises UsageError where searches cannot be told apart: too few times, or no costs."""
    valid = valid_times(recording)
    if len(valid) < 2 or valid.min() == np.median(valid):
        raise UsageError(
            f"{recording.path}: {len(valid)} valid times, and none better than their median: there is nothing to search"
        )
    cost_s = float(np.median(recording.cost_ms)) / 1e3
    if not cost_s > 0:
        raise UsageError(
            f"{recording.path}: it does not say what evaluations cost, so searches have no time to compare"
        )
    opt_ms, median_ms = float(valid.min()), float(np.median(valid))
    evaluations = evaluations_to(END, valid)
    times_s = np.linspace(evaluations_to(BEGIN, valid) * cost_s, evaluations * cost_s, TIMES)
    random = np.random.default_rng(BASELINE_SEED)
    runs = (random.permutation(len(recording)) for _ in range(BASELINE_RUNS))
    baseline_ms = np.mean([curve(recording, rows, times_s, median_ms) for rows in runs], axis=0)
    scale = Scale(opt_ms, median_ms, evaluations, evaluations * cost_s, times_s, baseline_ms)
    if not scale.telling.any():
        raise UsageError(f"{recording.path}: random search has the optimum at once, so no search can be ahead of it")
    return scale


def valid_times(recording: Recording) -> Array:
    """The times of what did not fail, ms."""
    return np.asarray(recording.time_ms[np.isfinite(recording.time_ms)])


def evaluations_to(share: float, valid_ms: Array) -> int:
    """After how many evaluations random search is expected to have gone a share of the way from median to optimum.

    Of N times from worst to best let the i-th be the first that is good enough: N + 1 − i are, and i / (N + 1 − i)
    is what the method counts, rounded up.
    """
    opt_ms, median_ms = float(valid_ms.min()), float(np.median(valid_ms))
    target_ms = opt_ms + (median_ms - opt_ms) * (1 - share)
    good = int(np.count_nonzero(valid_ms <= target_ms))
    return math.ceil((len(valid_ms) + 1 - good) / good)


def curve(recording: Recording, rows: Iterable[int] | Array, times_s: Array, median_ms: float) -> Array:
    """The best time found (ms) at each of some moments, of a search that evaluates `rows` one after the other.

    A row that comes again costs nothing. Until the first that did not fail is done, the median counts as found.
    """
    order = first_of_each(rows)
    done_s = np.cumsum(recording.cost_ms[order]) / 1e3
    found_ms = np.where(np.isfinite(recording.time_ms[order]), recording.time_ms[order], np.inf)
    best_ms = np.concatenate([[np.inf], np.minimum.accumulate(found_ms)])
    at_ms = best_ms[np.searchsorted(done_s, times_s, side="right")]
    return np.where(np.isfinite(at_ms), at_ms, median_ms)


def first_of_each(rows: Iterable[int] | Array) -> Array:
    """Rows without their repetitions, in order."""
    return np.fromiter(dict.fromkeys(int(row) for row in rows), np.int64)


def run_score(recording: Recording, scale: Scale, rows: Iterable[int] | Array) -> float:
    """The score of one search: (baseline − found) / (baseline − opt), averaged over the times.

    It is linear in what was found, so the score of a mean curve is the mean of its runs' scores.
    """
    ahead_ms = scale.baseline_ms - curve(recording, rows, scale.times_s, scale.median_ms)
    room_ms = scale.baseline_ms - scale.opt_ms
    return float(np.mean(ahead_ms[scale.telling] / room_ms[scale.telling]))


def evaluations_within(recording: Recording, rows: Sequence[int] | Array, share: float) -> float:
    """How many evaluations a search needed to come within a share of the recorded best; infinite if it did not."""
    found_ms = recording.time_ms[first_of_each(rows)]
    near = np.flatnonzero(found_ms <= recording.best_ms * (1 + share))
    return float(near[0] + 1) if len(near) else math.inf
