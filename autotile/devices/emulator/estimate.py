"""An estimate of a GPU's time from what a variant did to memory on the CPU. A model, never a measurement.

Each function of a launch keeps some units of the GPU busy, each for the time that it alone would need:

    DRAM         the fewest bytes that the work needs, at the data sheet's bandwidth; slower, the shorter the pieces in
                 which a block's loads and stores lie (those of stores are longer where the next block goes on with
                 them); scratch memory is written and read besides
    L2           the sectors that loads ask for beyond what the first cache still holds, and those of stores; a sector
                 that is stored in part costs more
    LSU          a global request takes a pass for every line of 128 bytes, a shared one for every wavefront
    arithmetic   the problem's flops at the peak rate of its type, with tensor cores if the kernel uses these
    issue        the slots that requests take with the instructions around them
    latency      what a block waits for: its start and its end, memory (asynchronous copies share one wait, the more of
                 them are under way), the other blocks of a cluster. As many blocks as fit a multiprocessor wait side by
                 side

Arithmetic, issue and LSU need warps to choose from: fewer than 8 on a multiprocessor lose nearly in proportion. A block
does most of its own work between its waits, which other blocks fill as far as there are any. The units overlap, but not
perfectly: their times are joined by a norm. The multiprocessor with the most blocks is waited for. Left out: bank
conflicts among registers, the order of instructions, the clock's drops under load, spills.

The constants were fitted to random configurations of the matmul and the transpose that were measured on an H200;
benchmarks/estimates.py measures others, and says how far the estimate puts them in the right order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotile.devices.emulator.work import Work
from autotile.devices.info import DeviceInfo
from autotile.devices.memory import LINE_BYTES, SECTOR_BYTES
from autotile.devices.occupancy import residency

LAUNCH_MS = 0.0034
"""Of each function."""

LOAD_PIECES, STORE_PIECES, JOINED = 0.238, 0.147, 0.425
"""DRAM's loss for pieces as short as a line, and how much of that of stores neighbours save."""

L2_BYTES_A_CLOCK = 17
PARTIAL_STORE = 1.2
"""What a sector of which next to nothing is stored costs more than one that is stored whole."""

L1_BESIDE_SHARED_BYTES = 28 << 10
"""Of a multiprocessor's memory, what shared memory can never take (256 KiB on sm_90, of which 228 may be shared: CUDA
C++ Programming Guide, "Compute Capability 9.0")."""

CACHE_POWER = 2.22
LSU_CLOCKS = 1.09
ISSUE_SLOTS, SLOTS_A_REQUEST = 4, 3.66
HIDING_WARPS, HIDING_POWER = 8, 1.1
BLOCK_US, MEMORY_US, LOAD_US, HIT_US, CLUSTER_US = 1.3, 0.325, 0.0976, 0.0385, 0.783
"""A block's start and end; a wait for memory; what each load adds that the first cache has not, and has; a block of a
cluster."""

OWN_WORK = 0.83
"""The part of its own work that a block's waits do not cover."""

NORM = 5.59
FEW_WAVES = 8
"""Blocks a multiprocessor from which it no longer matters that some multiprocessors get one more."""

STEP_REGISTERS = 40
"""A thread's, in functions before and after the main one, whose own are not known."""


@dataclass(frozen=True)
class Estimate:
    """`units_ms` is what each unit alone would need for all functions of the launch, the busiest first. `alone` is the
    share of the multiprocessor's work that one block of the main function has to do by itself (see joined_ms)."""

    time_ms: float
    units_ms: tuple[tuple[str, float], ...]
    alone: float


def estimate(
    works: Sequence[Work],
    device: DeviceInfo,
    *,
    flops: int,
    least_bytes: int,
    dtype: str,
    scratch_bytes: int = 0,
    registers: int | None = None,
    tensor_cores: bool = False,
) -> Estimate:
    """The modelled time of one launch. `works` begins with the main function, which has all the arithmetic.

    `registers` are a thread's of the main function, None where they are not known: then they limit no occupancy.
    """
    total_ms, alone, sums = 0.0, 0.0, dict[str, float]()
    for number, work in enumerate(works):
        main = number == 0
        moved = least_bytes + scratch_bytes if main else min(1.5 * scratch_bytes, _touched_bytes(work))
        resident = _resident(work, device, registers if main else STEP_REGISTERS)
        arithmetic_ms = flops / (device.rate_tflops(dtype, tensor_cores) * 1e9) if main else 0.0
        units = _units_ms(work, device, arithmetic_ms, moved, resident)
        for name, unit_ms in units.items():
            sums[name] = sums.get(name, 0.0) + unit_ms
        own = _hiding(work, resident) / resident
        alone = own if main else alone
        total_ms += LAUNCH_MS + joined_ms(units, own)
    return Estimate(total_ms, tuple(sorted(sums.items(), key=lambda unit: -unit[1])), alone)


def joined_ms(units_ms: Mapping[str, float], alone: float) -> float:
    """The time of units that work side by side. A block's way from its start to its end is its waiting and the most of
    its own work, which is `alone` of all the work that a multiprocessor has at a time."""
    get = units_ms.get
    arithmetic_ms = get("arithmetic", 0.0) + get("issue", 0.0)
    own_ms = alone * _norm(get("LSU", 0.0), arithmetic_ms)
    return _norm(
        get("DRAM", 0.0), get("L2", 0.0), get("LSU", 0.0), arithmetic_ms, get("latency", 0.0) + OWN_WORK * own_ms
    )


def _norm(*times_ms: float) -> float:
    return math.pow(math.fsum(math.pow(time_ms, NORM) for time_ms in times_ms), 1 / NORM)


def _resident(work: Work, device: DeviceInfo, registers: int | None) -> int:
    """Blocks of a multiprocessor at a time: no more than the launch has for it."""
    fit = residency(device, work.threads, work.shared_bytes, registers).blocks
    return max(1, min(fit, math.ceil(work.blocks / device.sm_count)))


def _hiding(work: Work, resident: int) -> float:
    return math.pow(min(1.0, resident * work.warps / HIDING_WARPS), HIDING_POWER)


def _touched_bytes(work: Work) -> float:
    return (work.loaded_sectors + work.stored_sectors) * SECTOR_BYTES


def _units_ms(
    work: Work, device: DeviceInfo, arithmetic_ms: float, moved_bytes: float, resident: int
) -> dict[str, float]:
    share = work.blocks / device.sm_count
    busiest = math.ceil(share) / share if share < FEW_WAVES else 1.0  # the multiprocessor with the most blocks
    clocks_a_ms = device.clock_ghz * 1e6 * device.sm_count / busiest
    hiding = _hiding(work, resident)
    requests = work.load_requests + work.store_requests + work.shared_requests
    passes = work.load_passes + work.store_passes + work.shared_wavefronts
    missed = _missed_sectors(work, device, resident)
    waves = max(1.0, work.blocks / (device.sm_count * resident))
    return {
        "DRAM": moved_bytes / (device.bandwidth_gbs * 1e6) * _pieces(work),
        "L2": _l2_sectors(work, device, resident) * SECTOR_BYTES / (L2_BYTES_A_CLOCK * clocks_a_ms),
        "LSU": LSU_CLOCKS * passes / clocks_a_ms / hiding,
        "arithmetic": arithmetic_ms * busiest / hiding,
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
    whole = min(1.0, work.stored_bytes / (work.store_sectors * SECTOR_BYTES)) if work.store_sectors else 1.0
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
    return BLOCK_US + MEMORY_US * waiting + loads_us + cluster_us
