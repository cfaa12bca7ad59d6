"""The emulator's estimate for what was traced, with what each unit of the GPU alone would take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotile.devices.emulator.estimate import (
    ISSUE_SLOTS,
    L2_BYTES_A_CLOCK,
    SECTOR_BYTES,
    Counters,
    counters_of,
    estimate_ms,
)
from autotile.devices.info import DeviceInfo
from autotile.insight.roofline import peak_tflops
from autotile.insight.traced import Trace
from autotile.measure.variant import Variant


@dataclass(frozen=True)
class Estimated:
    time_ms: float
    units_ms: Mapping[str, float]


def time_of_trace(
    trace: Trace, variant: Variant, device: DeviceInfo, static_shared_bytes: int = 0, registers: int | None = None
) -> Estimated:
    kernel, problem, launch = variant.kernel, variant.problem, variant.launch
    totals = dict.fromkeys(Counters.__dataclass_fields__, 0.0)
    for entry in trace.entries:
        for name, value in vars(counters_of(entry.accesses, launch)).items():
            totals[name] += value * entry.scale
    c = Counters(**totals)
    flops, moved = kernel.flops_of(problem), kernel.bytes_of(problem)
    time_ms = estimate_ms(
        c, device, launch, flops=flops, moved_bytes=moved, dtype=problem.dtype, static_shared_bytes=static_shared_bytes
    )
    clocks = device.clock_ghz * 1e6 * device.sm_count
    requests = c.load_requests + c.store_requests + c.shared_requests
    units = {
        "DRAM": moved / (device.bandwidth_gbs * 1e6),
        "L2": (c.load_sectors + c.store_sectors) * SECTOR_BYTES / (L2_BYTES_A_CLOCK * clocks),
        "LSU": (c.load_passes + c.store_passes + c.shared_wavefronts) / clocks,
        "arithmetic": flops / (peak_tflops(device, problem.dtype) * 1e9),
        "issue": (flops / 64 + requests) / (ISSUE_SLOTS * clocks),
    }
    return Estimated(time_ms, dict(sorted(units.items(), key=lambda u: -u[1])))
