"""Checks and times the variants of one problem on one device: what a search asks for, trial by trial.

On a GPU every variant runs the real problem: its whole output is compared, then it is timed. On the emulator, which
is some hundred thousand times slower, a variant proves itself on small problems that have the real one's traits (a
block of interior, and one that is all edges), and its time is the emulator's estimate for the real problem.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Protocol

from autotile.build import Builder
from autotile.devices.base import Device, Stage
from autotile.devices.emulator.device import EmulatorDevice
from autotile.kernels import Kernel
from autotile.measure.timing import TimingPlan, interleaved, measure, physical_floor_ms
from autotile.measure.variant import Variant, make_variant, require_right
from autotile.measure.workload import make_workload
from autotile.types import Binary, Configuration, Measurement, Problem

TIME_SEED = 0


@dataclass(frozen=True)
class Trial:
    """What a right variant got: its time, its largest error over the bound, and what finding out cost (seconds)."""

    measurement: Measurement
    max_error: float
    check_s: float
    measure_s: float


class Session(Protocol):
    """Holds a problem's data on a device. Use as a context manager."""

    def __enter__(self) -> Session: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def trial(self, variant: Variant, binary: Binary, best_ms: float = math.inf) -> Trial:
        """Checks, then times. Raises VariantError when the variant is wrong, cannot be launched, or is implausible."""
        ...

    def finals(self, contestants: Sequence[tuple[Variant, Binary]]) -> list[Measurement]:
        """Times the best variants once more, in turns."""
        ...


def open_session(device: Device, builder: Builder, kernel: Kernel, problem: Problem) -> Session:
    if isinstance(device, EmulatorDevice):
        return EstimatedSession(device, builder, kernel, problem)
    return TimedSession(device, builder, kernel, problem)


class TimedSession:
    """For devices that measure."""

    def __init__(
        self, device: Device, builder: Builder, kernel: Kernel, problem: Problem, plan: TimingPlan | None = None
    ) -> None:
        self._device, self._plan = device, plan or TimingPlan()
        self._floor_ms = physical_floor_ms(kernel, problem, device.info)
        comparer = builder.build(device.comparer) if device.comparer is not None else None
        self._stage: Stage = device.stage(make_workload(kernel, problem, TIME_SEED), comparer)

    def __enter__(self) -> TimedSession:
        self._stage.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stage.__exit__(kind, error, trace)

    def trial(self, variant: Variant, binary: Binary, best_ms: float = math.inf) -> Trial:
        program = self._device.load(binary)
        begun = time.perf_counter()
        check = self._stage.check(program, variant.launch)
        checked = time.perf_counter()
        require_right(check)
        times = partial(self._stage.times_ms, program, variant.launch)
        measurement = measure(times, self._plan, self._floor_ms, best_ms)
        return Trial(measurement, check.max_error, checked - begun, time.perf_counter() - checked)

    def finals(self, contestants: Sequence[tuple[Variant, Binary]]) -> list[Measurement]:
        return interleaved(
            [
                partial(self._stage.times_ms, self._device.load(binary), variant.launch)
                for variant, binary in contestants
            ]
        )


class EstimatedSession:
    """For the emulator."""

    def __init__(self, device: EmulatorDevice, builder: Builder, kernel: Kernel, problem: Problem) -> None:
        self._device, self._builder, self._kernel, self._problem = device, builder, kernel, problem

    def __enter__(self) -> EstimatedSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def trial(self, variant: Variant, binary: Binary, best_ms: float = math.inf) -> Trial:
        begun = time.perf_counter()
        program = self._device.load(binary)
        inner = make_variant(self._kernel, self._trace_problem(variant.configuration), variant.configuration)
        if inner.source.text != variant.source.text:  # the traced problem has other traits: another text, built too
            program = self._device.load(self._builder.build(inner.source))
        with self._device.stage(make_workload(self._kernel, inner.problem, TIME_SEED)) as stage:
            check, counters = stage.trace(program, inner.launch)
        require_right(check, f"on {inner.problem.label}: ")
        worst = max(check.max_error, self._check_edges(variant, program))
        measured = time.perf_counter()
        measurement = self._device.estimate(
            counters,
            launch=variant.launch,
            flops=self._kernel.flops_of(self._problem),
            moved_bytes=self._kernel.bytes_of(self._problem),
            traced_flops=self._kernel.flops_of(inner.problem),
            traced_bytes=self._kernel.bytes_of(inner.problem),
            dtype=self._problem.dtype,
            static_shared_bytes=binary.static_shared_bytes or 0,
        )
        return Trial(measurement, worst, measured - begun, time.perf_counter() - measured)

    def _trace_problem(self, configuration: Configuration) -> Problem:
        return self._kernel.trace_problem(self._problem, configuration)

    def _check_edges(self, variant: Variant, program: object) -> float:
        """The same text on a problem whose tiles are cut on every side."""
        base = self._trace_problem(variant.configuration)
        for odd in (1, 3, 2, 4, 8, 16, 32):
            sizes = {name: size + odd * (2 * i + 1) for i, (name, size) in enumerate(base.sizes)}
            edge = make_variant(self._kernel, base.with_sizes(**sizes), variant.configuration)
            if edge.source.text == variant.source.text:
                with self._device.stage(make_workload(self._kernel, edge.problem, TIME_SEED)) as stage:
                    check = stage.check(program, edge.launch)
                require_right(check, f"on {edge.problem.label}: ")
                return check.max_error
        return 0.0  # no problem near by has these traits and an edge

    def finals(self, contestants: Sequence[tuple[Variant, Binary]]) -> list[Measurement]:
        """An estimate does not change when it is asked for again."""
        return [replace(self.trial(variant, binary).measurement, estimated=True) for variant, binary in contestants]
