"""How long a configuration would take for a problem that it was not tuned for."""

from __future__ import annotations

from autotile.devices.info import DeviceInfo
from autotile.kernels import Kernel
from autotile.store import distance
from autotile.types import Problem, Record

LAUNCH_MS = 0.003
"""What each function of a launch is taken to need beside its work: a round figure, with which forecasts are
near what was measured (tests/runtime/test_forecast.py)."""

LEAST_WORK = 0.3
"""Of a measured time, at least so much was work."""

DOUBT = 1.04
"""By so much for each octave between the problems is a forecast trusted less."""


def forecast_ms(kernel: Kernel, record: Record, problem: Problem, device: DeviceInfo) -> float:
    """By what the record's own problem took for its effort (see Kernel.effort), doubt included; for a kernel that
    declares one. Never below what the device needs for the problem's bytes and operations."""
    launches_ms = LAUNCH_MS * (1 + len(kernel.launch_of(problem, record.configuration).steps))
    there_ms = LAUNCH_MS * (1 + len(kernel.launch_of(record.problem, record.configuration).steps))
    scope = device.scope()
    effort, there = (kernel.effort_of(one, record.configuration, scope) for one in (problem, record.problem))
    work_ms = max(record.time_ms - there_ms, LEAST_WORK * record.time_ms) * effort / max(there, 1e-300)
    bytes_ms = kernel.bytes_of(problem) / device.bandwidth_gbs / 1e6
    flops_ms = kernel.flops_of(problem) / device.peak_tflops(problem.dtype) / 1e9
    doubt = DOUBT ** distance(kernel, record.problem, problem)
    return float(launches_ms + max(work_ms, bytes_ms, flops_ms) * doubt)
