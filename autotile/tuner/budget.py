"""When a search is over: by the number of trials, the time, or because nothing is to be gained any more."""

from __future__ import annotations

from dataclasses import dataclass

from autotile.spec import SearchOptions
from autotile.types import Record


@dataclass(frozen=True)
class Patience:
    """When a search that learns gives up: after so many trials without a gain worth having, if its model expects none.

    Both must hold. A best has then stood for `trials` trials, among them, by the default sampler's rule, all that
    differ from it in one parameter; and the most promising row left should lower its time by less than `least_gain`, a
    share of it, in the mean (expected improvement).
    """

    trials: int
    least_gain: float


PATIENCE = {"quick": Patience(40, 0.005), "normal": Patience(120, 0.001), "full": None}
"""By effort. `full` goes on to the end of its trials or its time."""


class Budget:
    """Counts a search's trials and says when to stop."""

    def __init__(self, options: SearchOptions, goal: int) -> None:
        self.goal, self.time_s, self.patience = goal, options.time_s, PATIENCE[options.effort]
        self.since_gain = 0
        """Trials since the best fell by a share worth having."""
        self._best_ms = float("inf")

    def count(self, record: Record) -> None:
        """One more trial has ended."""
        self.since_gain += 1
        least_gain = self.patience.least_gain if self.patience is not None else 0.0
        if record.time_ms < self._best_ms * (1 - least_gain):
            self.since_gain = 0
        self._best_ms = min(self._best_ms, record.time_ms)

    def left_s(self, elapsed_s: float) -> float | None:
        """Seconds until the time is up; None without a limit."""
        return None if self.time_s is None else max(0.0, self.time_s - elapsed_s)

    @property
    def tries_patience(self) -> bool:
        """Whether so many trials have passed without a gain that what the model expects decides."""
        return self.patience is not None and self.since_gain >= self.patience.trials

    def is_patient(self, expected_gain: float | None) -> bool:
        """False when the search should end for want of gains. Without an expectation patience never ends."""
        if self.patience is None or expected_gain is None:
            return True
        return not self.tries_patience or expected_gain >= self.patience.least_gain
