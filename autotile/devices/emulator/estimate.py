"""An estimate of a GPU's time from what a variant did to memory on the CPU. A model, never a measurement.

Each function of a launch keeps some units of the GPU busy, each for the time that it alone would need:

    DRAM         the fewest bytes that the work needs, at what is reached of the data sheet's bandwidth; slower, the
                 shorter the pieces in which a block's loads and stores lie (those of stores are longer where the next
                 block goes on with them); scratch memory is written and read besides
    L2           the sectors that loads ask for beyond what the first cache still holds, and those of stores; a sector
                 that is stored in part costs more
    LSU          a global request takes a pass for every line of 128 bytes, a shared one for every wavefront
    arithmetic   the problem's flops at the peak rate of its type without tensor cores
    issue        the slots that requests take with the instructions around them
    latency      a block's way from its start to its end: the barriers, the waits for memory (asynchronous copies share
                 one, the more of them are under way), the barriers of a cluster. As many blocks as fit a
                 multiprocessor go it side by side

Arithmetic, issue and LSU need warps to choose from: fewer than 8 on a multiprocessor lose nearly in proportion. The
units overlap, but not perfectly: their times are joined by a norm. The multiprocessor with the most blocks is waited
for. Left out: bank conflicts among registers, the order of instructions, the clock's drops under load, spills.

The constants were fitted to random configurations of the matmul and the transpose that were measured on an H200;
benchmarks/estimates.py measures others, and says how far the estimate puts them in the right order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotile.devices.emulator.work import SECTOR_BYTES, Work
from autotile.devices.info import DeviceInfo
from autotile.devices.occupancy import residency

LAUNCH_MS = 0.0005
"""For each function; what the launch of a block takes is part of its latency."""

BANDWIDTH_REACHED = 0.89
LINE_BYTES = 128
LOAD_PIECES, STORE_PIECES, JOINED = 0.13, 0.071, 0.878
"""DRAM's loss for pieces as short as a line, and how much of that of stores neighbours save."""

L2_BYTES_A_CLOCK = 24.45
PARTIAL_STORE = 2.82
"""What a sector of which next to nothing is stored costs, beside one that is stored whole."""

L1_BESIDE_SHARED_BYTES = 28 << 10
"""Of a multiprocessor's memory, what shared memory can never take (256 KiB on sm_90, of which 228 may be shared: CUDA
C++ Programming Guide, "Compute Capability 9.0")."""

CACHE_POWER = 0.619
LSU_CLOCKS = 1.076
ISSUE_SLOTS, SLOTS_A_REQUEST = 4, 6.0
HIDING_WARPS, HIDING_POWER = 8, 0.935
BLOCK_US, BARRIER_US, MEMORY_US, LOAD_US, HIT_US, CLUSTER_US = 1.152, 0.082, 0.493, 0.102, 0.02, 0.82
"""A block's start and end; a barrier; a wait for memory; what each load adds that the first cache has not, and has; a
block of a cluster."""

NORM = 3.473
FEW_WAVES = 8
"""Blocks a multiprocessor from which it no longer matters that some multiprocessors get one more."""

STEP_REGISTERS = 40
"""A thread's, in functions before and after the main one, whose own are not known."""


@dataclass(frozen=True)
class Estimate:
    """`units_ms` is what each unit alone would need for all functions of the launch, the busiest first."""

    time_ms: float
    units_ms: tuple[tuple[str, float], ...]


def estimate(
    works: Sequence[Work],
    device: DeviceInfo,
    *,
    flops: int,
    least_bytes: int,
    dtype: str,
    scratch_bytes: int = 0,
    registers: int | None = None,
) -> Estimate:
    """The modelled time of one launch. `works` begins with the main function, which has all the arithmetic.

    `registers` are a thread's of the main function, None where they are not known: then they limit no occupancy.
    """
    total_ms, sums = 0.0, dict[str, float]()
    for number, work in enumerate(works):
        main = number == 0
        moved = least_bytes + scratch_bytes if main else min(1.5 * scratch_bytes, _touched_bytes(work))
        resident = residency(device, work.threads, work.shared_bytes, registers if main else STEP_REGISTERS).blocks
        units = _units_ms(work, device, flops if main else 0, moved, dtype, max(1, resident))
        for name, unit_ms in units.items():
            sums[name] = sums.get(name, 0.0) + unit_ms
        share = work.blocks / device.sm_count
        waited_for = math.ceil(share) / share if share < FEW_WAVES else 1.0
        joined = units | {"arithmetic": units["arithmetic"] + units["issue"], "issue": 0.0}
        total_ms += LAUNCH_MS + waited_for * joined_ms(joined)
    return Estimate(total_ms, tuple(sorted(sums.items(), key=lambda unit: -unit[1])))


def joined_ms(units_ms: Mapping[str, float]) -> float:
    """The time of units that work side by side."""
    return math.pow(math.fsum(unit_ms**NORM for unit_ms in units_ms.values()), 1 / NORM)


def _touched_bytes(work: Work) -> float:
    return (work.loaded_sectors + work.stored_sectors) * SECTOR_BYTES


def _units_ms(
    work: Work, device: DeviceInfo, flops: int, moved_bytes: float, dtype: str, resident: int
) -> dict[str, float]:
    clocks_a_ms = device.clock_ghz * 1e6 * device.sm_count
    resident = min(resident, max(1, math.ceil(work.blocks / device.sm_count)))
    hiding = math.pow(min(1.0, resident * work.warps / HIDING_WARPS), HIDING_POWER)
    # Without tensor cores float64 runs at half the float32 rate at most, whatever the data sheet's tensor peak.
    peak = min(device.fp64_tflops, device.fp32_tflops / 2) if dtype == "float64" else device.fp32_tflops
    requests = work.load_requests + work.store_requests + work.shared_requests
    passes = work.load_passes + work.store_passes + work.shared_wavefronts
    missed = _missed_sectors(work, device, resident)
    waves = max(1.0, work.blocks / (device.sm_count * resident))
    return {
        "DRAM": moved_bytes / (BANDWIDTH_REACHED * device.bandwidth_gbs * 1e6) * _pieces(work),
        "L2": _l2_sectors(work, device, resident) * SECTOR_BYTES / (L2_BYTES_A_CLOCK * clocks_a_ms),
        "LSU": LSU_CLOCKS * passes / clocks_a_ms / hiding,
        "arithmetic": flops / (peak * 1e9) / hiding,
        "issue": SLOTS_A_REQUEST * requests / (ISSUE_SLOTS * clocks_a_ms) / hiding,
        "latency": waves * _block_us(work, missed / max(work.load_sectors, 1.0)) * 1e-3,
    }


def _pieces(work: Work) -> float:
    """How much longer DRAM takes than for one long piece."""
    touched = work.loaded_sectors + work.stored_sectors
    if not touched:
        return 1.0
    loads = LOAD_PIECES * LINE_BYTES / max(work.load_run_bytes, SECTOR_BYTES)
    stores = STORE_PIECES * LINE_BYTES / max(work.store_run_bytes, SECTOR_BYTES) * (1 - JOINED * work.stores_joined)
    return 1 + (loads * work.loaded_sectors + stores * work.stored_sectors) / touched


def _l2_sectors(work: Work, device: DeviceInfo, resident: int) -> float:
    whole = work.stored_bytes / (work.store_sectors * SECTOR_BYTES) if work.store_sectors else 1.0
    return _missed_sectors(work, device, resident) + work.store_sectors * (1 + PARTIAL_STORE * (1 - whole))


def _missed_sectors(work: Work, device: DeviceInfo, resident: int) -> float:
    """Of loads: those that a block asks for the first time, and those that the first cache may no longer hold, the
    likelier, the more all resident warps have asked for in between."""
    if not work.load_requests:
        return 0.0
    room = max(16e3, device.shared_bytes_per_sm + L1_BESIDE_SHARED_BYTES - resident * work.shared_bytes)
    at_once = resident * work.warps * SECTOR_BYTES * work.load_sectors / work.load_requests
    missed = sum(
        count * min(1.0, math.pow(at_once * 2**bucket / room, CACHE_POWER)) for bucket, count in enumerate(work.reuses)
    )
    unseen = max(0.0, work.load_sectors - work.loaded_sectors - sum(work.reuses))
    return work.loaded_sectors + missed + unseen


def _block_us(work: Work, missed_share: float) -> float:
    """A block's way from its start to its end, were everything but waiting free."""
    waiting = work.waits / (1 + work.depth) if work.waits else min(work.barriers / 2, work.loads)
    cluster_us = CLUSTER_US * work.cluster_blocks if work.cluster_blocks > 1 else 0.0
    loads_us = work.loads * (LOAD_US * missed_share + HIT_US * (1 - missed_share))
    return BLOCK_US + BARRIER_US * work.barriers + MEMORY_US * waiting + loads_us + cluster_us
