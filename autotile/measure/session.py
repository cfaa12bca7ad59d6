"""Checks and times the variants of one problem on one device: what a search asks for, trial by trial."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol

from autotile.devices.base import Device
from autotile.devices.emulator.device import EmulatorDevice
from autotile.kernels import Kernel
from autotile.measure.limits import Watch, unwatched
from autotile.measure.timing import TimingPlan
from autotile.measure.variant import Variant
from autotile.types import Binary, Measurement, Problem

TIME_SEED = 0
"""Seed of the data on which variants are tried and timed."""

Notes = tuple[tuple[str, str], ...]
"""What a record keeps beside the numbers that all have, as name and text."""


@dataclass(frozen=True)
class Trial:
    """What a right variant got: its time, its largest error over the bound, and what finding out cost (seconds).

    `notes` hold the clocks before and after on a GPU, and what the emulator counted of its memory accesses.
    """

    measurement: Measurement
    max_error: float
    check_s: float
    measure_s: float
    notes: Notes = ()


@dataclass(frozen=True)
class Contestant:
    """One of the best: what it is, its binary, and its time so far."""

    variant: Variant
    binary: Binary
    measurement: Measurement


class Session(Protocol):
    """Holds a problem's data on a device. Use as a context manager."""

    def __enter__(self) -> Session: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def trial(self, variant: Variant, binary: Binary, best_ms: float = math.inf) -> Trial:
        """Checks, then times. Raises VariantError when the variant is wrong, cannot be launched, or is implausible."""
        ...

    def finals(self, contestants: Sequence[Contestant]) -> list[Measurement]:
        """Times the best variants once more, in turns. Raises VariantError when one of them fails now."""
        ...

    def recheck(self, variant: Variant, binary: Binary, runs: int) -> float:
        """Checks a variant so many times more; gives the largest error over its bound.

        Raises WrongResult when a run is wrong, or when the results move from run to run: that is a race.
        """
        ...


def open_session(
    device: Device,
    kernel: Kernel,
    problem: Problem,
    comparer: Binary | None = None,
    watch: Watch = unwatched,
    scratch: Path | None = None,
    plan: TimingPlan | None = None,
) -> Session:
    """The session for a device that measures, or for the emulator, which estimates.

    `comparer` is the built `device.comparer`; `scratch` a folder in which the problem's data are kept, so that a
    session that is opened again has them at once; `plan` how many launches a variant is timed for.
    """
    if isinstance(device, EmulatorDevice):
        from autotile.measure.estimated import EstimatedSession

        return EstimatedSession(device, kernel, problem, watch)
    from autotile.measure.timed import TimedSession

    return TimedSession(device, kernel, problem, comparer, watch, scratch, plan)
