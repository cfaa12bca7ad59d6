"""Where a search's time goes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from autotile.tuner.result import Phases


@dataclass
class Clock:
    """Seconds by phase, added up as the search goes."""

    begun: float = field(default_factory=time.perf_counter)
    build_s: float = 0.0
    check_s: float = 0.0
    measure_s: float = 0.0
    ask_s: float = 0.0
    finals_s: float = 0.0
    other_s: float = 0.0
    idle_s: float = 0.0
    data_s: float = 0.0

    @property
    def elapsed_s(self) -> float:
        return time.perf_counter() - self.begun

    def phases(self) -> Phases:
        return Phases(
            self.elapsed_s,
            self.build_s,
            self.check_s,
            self.measure_s,
            self.ask_s,
            self.finals_s,
            self.other_s,
            self.idle_s,
            self.data_s,
        )
