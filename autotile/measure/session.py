"""Checks and times the variants of one problem on one device: what a search asks for, trial by trial.

On a GPU every variant runs the real problem: its whole output is compared, then it is timed. On the emulator,
which is far too slow for that, a variant proves itself on small problems that have the real one's traits (a block of
interior, and one that is all edges), and its time is the emulator's estimate for the real problem.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Protocol

from autotile.build import Builder
from autotile.devices.base import Device, Stage
from autotile.devices.emulator.device import EmulatorDevice
from autotile.errors import UnsupportedByEmulator
from autotile.kernels import Kernel
from autotile.measure.timing import TimingPlan, interleaved, measure, physical_floor_ms
from autotile.measure.variant import Variant, make_variant, require_right
from autotile.measure.workload import make_workload
from autotile.types import Binary, Measurement, Problem

TIME_SEED = 0

MOST_EMULATED_BYTES = 64 << 20
"""Largest problem that the emulator runs in full."""


@dataclass(frozen=True)
class Trial:
    """What a right variant got: its time, its largest error over the bound, and what finding out cost (seconds).

    `counted` holds what the emulator counted of its memory accesses, as name and number.
    """

    measurement: Measurement
    max_error: float
    check_s: float
    measure_s: float
    counted: tuple[tuple[str, str], ...] = ()


Contestant = tuple[Variant, Binary, Measurement]
"""One of the best: what it is, its binary, and its time so far."""


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
        """Times the best variants once more, in turns."""
        ...


def open_session(device: Device, builder: Builder, kernel: Kernel, problem: Problem) -> Session:
    """The session for a device that measures, or for the emulator, which estimates."""
    if isinstance(device, EmulatorDevice):
        return EstimatedSession(device, kernel, problem)
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

    def finals(self, contestants: Sequence[Contestant]) -> list[Measurement]:
        return interleaved(
            [
                partial(self._stage.times_ms, self._device.load(binary), variant.launch)
                for variant, binary, _ in contestants
            ]
        )


class EstimatedSession:
    """For the emulator."""

    def __init__(self, device: EmulatorDevice, kernel: Kernel, problem: Problem) -> None:
        self._device, self._kernel, self._problem = device, kernel, problem

    def __enter__(self) -> EstimatedSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def trial(self, variant: Variant, binary: Binary, best_ms: float = math.inf) -> Trial:
        begun = time.perf_counter()
        program = self._device.load(binary)
        inner, edge = self._small_problems(variant)
        with self._device.stage(make_workload(self._kernel, inner.problem, TIME_SEED)) as stage:
            check, counters = stage.trace(program, inner.launch)
        require_right(check, f"on {inner.problem.label}: ")
        worst = check.max_error
        if edge is not None:
            with self._device.stage(make_workload(self._kernel, edge.problem, TIME_SEED)) as stage:
                check = stage.check(program, edge.launch)
            require_right(check, f"on {edge.problem.label}: ")
            worst = max(worst, check.max_error)
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
        counted = tuple((name, f"{value:.4g}") for name, value in counters.per_request.items())
        return Trial(measurement, worst, measured - begun, time.perf_counter() - measured, counted)

    def _small_problems(self, variant: Variant) -> tuple[Variant, Variant | None]:
        """The problem to trace, and one whose tiles are cut on every side, both with this variant's very text.

        Traits may forbid the sizes that come to mind first, so sides grow until the text is the same. Where no small
        problem has it, the variant's own is traced, and has to be small enough.
        """
        base = self._kernel.trace_problem(self._problem, variant.configuration)
        names = list(self._kernel.dimensions)
        whole: list[dict[str, int]] = [{}, *({name: 1} for name in reversed(names)), dict.fromkeys(names, 1)]
        cut = [{name: odd * (2 * i + 1) for i, name in enumerate(names)} for odd in (1, 3, 2, 4, 8, 16, 32)]
        inner = self._first_like(variant, base, whole) or self._small_enough(variant)
        return inner, self._first_like(variant, base, cut)

    def _small_enough(self, variant: Variant) -> Variant:
        if self._kernel.bytes_of(variant.problem) > MOST_EMULATED_BYTES:
            raise UnsupportedByEmulator(
                f"no small problem has the traits {dict(variant.source.traits)} of {variant.problem.label}, and that "
                "one is too large to emulate; give the kernel trace_sizes that keep them"
            )
        return variant

    def _first_like(self, variant: Variant, base: Problem, growths: Sequence[Mapping[str, int]]) -> Variant | None:
        for growth in growths:
            problem = base.with_sizes(**{name: base[name] + more for name, more in growth.items()})
            small = make_variant(self._kernel, problem, variant.configuration)
            if small.source.text == variant.source.text:
                return small
        return None

    def finals(self, contestants: Sequence[Contestant]) -> list[Measurement]:
        """The estimates as they are: they do not change when they are asked for again."""
        return [measurement for _, _, measurement in contestants]
