"""What has come of the rows that were tried, and what a model is to learn from it: times, failures, costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Cost:
    """What one trial took, in seconds: its share of building, and running it (check and timing)."""

    build_s: float
    run_s: float

    @property
    def total_s(self) -> float:
        return self.build_s + self.run_s


class Told:
    """Rows in the order in which they were told, each with its time (ms; infinite for a failure) and its cost."""

    def __init__(self) -> None:
        self.times_ms: dict[int, float] = {}
        self.costs: dict[int, Cost] = {}
        self.best = -1
        """The fastest row so far; -1 before there is one."""
        self.best_at = 0
        """How many rows had been told before the best."""
        self.failures = 0
        self._different: set[float] = set()
        self._ranked: Array | None = None
        """The logarithms of all times in order, once someone has asked."""

    def __len__(self) -> int:
        return len(self.times_ms)

    def __contains__(self, row: int) -> bool:
        return row in self.times_ms

    @property
    def tells_apart(self) -> bool:
        """Whether there are two times to learn from."""
        return len(self._different) > 1

    def tell(self, row: int, time_ms: float | None, cost: Cost | None = None) -> None:
        """`time_ms` None: it failed. `cost`: what trying it took, where that is known."""
        if time_ms is None:
            self.failures += 1
        else:
            self._different.add(time_ms)
            if time_ms < self.times_ms.get(self.best, math.inf):
                self.best, self.best_at = row, len(self.times_ms)
        self.times_ms[row] = math.inf if time_ms is None else time_ms
        self._ranked = None
        if cost is not None and cost.total_s > 0:
            self.costs[row] = cost

    def order(self) -> list[int]:
        """The rows, fastest first, failures last."""
        return sorted(self.times_ms, key=self.times_ms.__getitem__)

    def targets(self, rows: Sequence[int]) -> Array:
        """What the model learns for some of the rows, with mean 0 and deviation 1 among them; less is better.

        Half the logarithm of the time, half the normal quantile of its rank: the one tells how much better a row is,
        the other keeps a few very slow rows from deciding the scale. A failure says nothing of a time, and counts as
        the median: that it fails is learnt apart (see `successes`).
        """
        if self._ranked is None:
            self._ranked = np.sort(self.log_times(list(self.times_ms)))
        every = self._ranked
        logs = self._logs(rows)
        logs = np.where(np.isfinite(logs), logs, np.median(every))  # of the right ones: failures are in `every` as that
        rank = (np.searchsorted(every, logs, "left") + np.searchsorted(every, logs, "right")) / 2
        normal = np.interp(rank, np.arange(len(every)) + 0.5, normal_quantiles(len(every)))
        mixed = normal + (logs - every.mean()) / max(1e-9, float(every.std()))
        return np.asarray((mixed - mixed.mean()) / max(1e-9, float(mixed.std())))

    def log_times(self, rows: Sequence[int]) -> Array:
        """The logarithm of each row's time; of the median for a failure."""
        logs = self._logs(rows)
        right = np.isfinite(logs)
        logs[~right] = np.median(logs[right])
        return logs

    def _logs(self, rows: Sequence[int]) -> Array:
        """The logarithm of each row's time; infinite for a failure."""
        return np.asarray(np.log(np.fromiter((self.times_ms[row] for row in rows), float, len(rows))))

    def successes(self, rows: Sequence[int]) -> Array:
        """1 for each row that was right, 0 for one that failed."""
        return np.fromiter((math.isfinite(self.times_ms[row]) for row in rows), float, len(rows))

    def log_costs(self, rows: Sequence[int]) -> Array | None:
        """The logarithm of each row's cost, that of the median where it is not known; None where none is known."""
        if not self.costs:
            return None
        known = (self.costs[row].total_s if row in self.costs else math.nan for row in rows)
        logs = np.log(np.fromiter(known, float, len(rows)))
        unknown = np.isnan(logs)
        if unknown.any():
            logs[unknown] = np.log(np.median([cost.total_s for cost in self.costs.values()]))
        return np.asarray(logs)

    @property
    def log_saving(self) -> float:
        """By how much the logarithm of a cost falls when there is nothing left to build; 0 or less."""
        total_s = sum(cost.total_s for cost in self.costs.values())
        run_s = sum(cost.run_s for cost in self.costs.values())
        return math.log(max(run_s / total_s, 0.01)) if total_s > 0 else 0.0


_STEP = 64
"""Quantiles are worked out for counts that are multiples of this beyond it: neighbours differ by next to nothing."""


def normal_quantiles(count: int) -> Array:
    """The normal quantiles of so many evenly spaced ranks."""
    if count <= _STEP:
        return _quantiles(count)
    near = _quantiles(_STEP * round(count / _STEP))
    return np.interp((np.arange(count) + 0.5) / count, (np.arange(len(near)) + 0.5) / len(near), near)


@lru_cache(maxsize=256)
def _quantiles(count: int) -> Array:
    normal = NormalDist()
    return np.asarray([normal.inv_cdf((i + 0.5) / count) for i in range(count)])
