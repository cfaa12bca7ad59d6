"""Sessions on devices that measure: each variant runs the real problem, all of its output is compared, it is timed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType

from autotile.devices.base import Check, Device, Stage, Workload, is_exact
from autotile.devices.info import Clocks
from autotile.errors import ImplausibleTime
from autotile.kernels import Kernel
from autotile.measure.limits import Watch, unwatched
from autotile.measure.scratch import kept_workload
from autotile.measure.session import TIME_SEED, Contestant, Notes, Trial
from autotile.measure.timing import TimingPlan, interleaved, measure, physical_floor_ms
from autotile.measure.variant import Variant, require_right, require_still
from autotile.types import Binary, Measurement, Problem

CALM_PAUSE_S = 0.25
"""How long a GPU that throttles is left alone before its sample is repeated."""

CALM_TRIES = 3
"""Samples of a variant while the GPU throttles; the last is kept, and says so."""

HOST_BYTES_A_LAUNCH = 32 << 20
"""A check whose outputs are compared on the host may take the time of one launch more for so many bytes."""

CLOCK_DROP = 0.03
"""A clock that is lower by this share after a sample than before was falling while it was taken."""


class TimedSession:
    """Implements Session."""

    def __init__(
        self,
        device: Device,
        kernel: Kernel,
        problem: Problem,
        comparer: Binary | None = None,
        watch: Watch = unwatched,
        scratch: Path | None = None,
        plan: TimingPlan | None = None,
    ) -> None:
        self._device, self._kernel, self._watch, self._plan = device, kernel, watch, plan or TimingPlan()
        self._floor_ms = physical_floor_ms(kernel, problem, device.info)
        workload = kept_workload(kernel, problem, TIME_SEED, scratch)
        self._check_launches = 1 + _host_bytes(workload) // HOST_BYTES_A_LAUNCH
        self._stage: Stage = device.stage(workload, comparer)

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
        self._watch("checking", self._check_launches)
        check = self._stage.check(program, variant.launch, fillings=1)
        checked = time.perf_counter()
        require_right(check)
        times = partial(self._times, program, variant)
        measurement, notes = self._calm(lambda: measure(times, self._plan, self._floor_ms, best_ms, check.launch_ms))
        self._watch("checking what was timed", 3 * self._check_launches)
        require_right(self._stage.check_timed(), "in the timed launches: ")
        return Trial(measurement, check.max_error, checked - begun, time.perf_counter() - checked, notes)

    def finals(self, contestants: Sequence[Contestant]) -> list[Measurement]:
        programs = [self._device.load(contestant.binary) for contestant in contestants]
        pairs = zip(programs, contestants, strict=True)
        measurements = interleaved([partial(self._times, program, c.variant) for program, c in pairs])
        for contestant, measurement in zip(contestants, measurements, strict=True):
            if not (math.isfinite(measurement.time_ms) and measurement.time_ms >= self._floor_ms):
                raise ImplausibleTime(
                    f"{contestant.variant.configuration.label} took {measurement.time_ms:.6f} ms in the finals, below "
                    f"the {self._floor_ms:.6f} ms that the device needs"
                )
        return measurements

    def recheck(self, variant: Variant, binary: Binary, runs: int) -> float:
        program = self._device.load(binary)
        checks: list[Check] = []
        for _ in range(runs):
            self._watch("checking again", self._check_launches)
            checks.append(self._stage.check(program, variant.launch))
        return require_still(checks, self._kernel)

    def _times(self, program: object, variant: Variant, runs: int) -> tuple[float, ...]:
        self._watch("timing", runs)
        return self._stage.times_ms(program, variant.launch, runs)

    def _calm(self, sample: Callable[[], Measurement]) -> tuple[Measurement, Notes]:
        """A sample that was taken while the GPU did not throttle, if there is such a moment; and its clocks."""
        for attempt in range(CALM_TRIES):
            before = self._device.clocks()
            measurement = sample()
            after = self._device.clocks()
            disturbed = throttled(before, after)
            if not disturbed or attempt == CALM_TRIES - 1:
                break
            self._watch("waiting for the clocks", 0)
            time.sleep(CALM_PAUSE_S)
        notes: Notes = ()
        if before is not None and after is not None:
            notes = (("sm_mhz", f"{before.sm_mhz} {after.sm_mhz}"),)
        return measurement, (*notes, ("throttled", disturbed)) if disturbed else notes


def _host_bytes(workload: Workload) -> int:
    """Bytes of outputs that are compared on the host: complex ones within a bound."""
    return sum(
        math.prod(shape) * dtype.itemsize
        for name, (shape, dtype) in workload.outputs.items()
        if dtype.kind == "c" and not is_exact(workload.bound[name])
    )


def throttled(before: Clocks | None, after: Clocks | None) -> str:
    """What held the clock down during a sample; empty when nothing did. A clock that rose from idle is no fault."""
    if before is None or after is None:
        return ""
    reason = after.throttled or before.throttled
    if not reason and after.sm_mhz < before.sm_mhz * (1 - CLOCK_DROP):
        reason = "the clock fell"
    return reason
