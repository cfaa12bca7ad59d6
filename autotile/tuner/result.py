"""What a search tells while it runs, and what it ends with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from autotile.devices.info import DeviceInfo
from autotile.kernels import Kernel
from autotile.space import Space
from autotile.types import Problem, Record


@dataclass(frozen=True)
class Phases:
    """Where a search's time went, in seconds.

    Building and asking overlap the rest: `build_s` is the sum over the compilers of this run. `other_s` is what the
    device was taken for beside checks and timing (loading machine code, passing messages), `idle_s` what it waited for
    a compiler. `data_s`: opening the device in its process, making the data and the reference, beside the first builds.
    """

    total_s: float
    build_s: float
    check_s: float
    measure_s: float
    ask_s: float
    finals_s: float
    other_s: float = 0.0
    idle_s: float = 0.0
    data_s: float = 0.0


@dataclass(frozen=True, repr=False)
class SearchResult:
    """The end of one problem's search.

    `records` holds all distinct trials, those found on record first; `new_trials` counts the ones of this run.
    `stopped_by` is trials, time, gain, exhausted, points, interrupted, edited, device_lost or toolchain_lost. `best` is
    proven, and saved unless a faster one was saved before; None when nothing held. Of a search of points it is just the
    fastest of them: what is served as a problem's best comes from a search of the space.
    """

    kernel: Kernel
    problem: Problem
    device: DeviceInfo
    records: Sequence[Record]
    new_trials: int
    best: Record | None
    stopped_by: str
    space_size: int
    space_total: int
    outcomes: Mapping[str, int]
    phases: Phases
    named: Mapping[str, Record]

    def __repr__(self) -> str:
        best = (
            "nothing valid"
            if self.best is None
            else f"best {self.best.time_ms:.4g} ms, {self.best.configuration.label}"
        )
        return f"<SearchResult {self.kernel.name} {self.problem.label} on {self.device.name}: {best}>"

    @property
    def cut_short(self) -> bool:
        """True when nothing more can be run in this process: by Ctrl-C, or with the device's context gone."""
        return self.stopped_by in ("interrupted", "device_lost")

    @property
    def trials_per_s(self) -> float:
        """Rate of this run's new trials, final timing included."""
        return self.new_trials / self.phases.total_s if self.phases.total_s > 0 else 0.0


class Listener(Protocol):
    """Hears of a search's progress. All methods may do nothing."""

    def started(
        self, kernel: Kernel, problem: Problem, device: DeviceInfo, space: Space, known: int, goal: int
    ) -> None:
        """`known` trials are on record already; the search ends at `goal`."""

    def tried(self, record: Record, best: Record | None, count: int) -> None:
        """A trial has ended; `best` is the best so far, this one included, and `count` the distinct trials."""

    def finals(self, contestants: int) -> None:
        """The best are being timed again and proven."""

    def note(self, message: str) -> None:
        """Something the user should know."""


class Silent:
    """A listener that does nothing."""

    def started(
        self, kernel: Kernel, problem: Problem, device: DeviceInfo, space: Space, known: int, goal: int
    ) -> None:
        return None

    def tried(self, record: Record, best: Record | None, count: int) -> None:
        return None

    def finals(self, contestants: int) -> None:
        return None

    def note(self, message: str) -> None:
        return None
