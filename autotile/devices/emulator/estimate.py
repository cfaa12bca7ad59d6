"""An estimate of a GPU's time from what a variant did to memory on the CPU. A model, never a measurement.

The counters of a traced block are scaled to the whole problem: loads and shared-memory traffic with its arithmetic,
stores with its bytes. Each unit of the GPU then has a time that it alone would need:

    DRAM         the problem's own bytes at the data sheet's bandwidth
    L2           the sectors (32 bytes) that all requests ask for, at 32 bytes a clock and multiprocessor
    LSU          a global request takes a pass for every 4 sectors, a shared one for every wavefront;
                 one pass a clock and multiprocessor
    arithmetic   the problem's flops at the peak rate of its type without tensor cores
    issue        a warp's multiply-add and each of its requests take a slot; 4 slots a clock and multiprocessor

The units overlap, but not perfectly: their times are joined by a 4-norm. Too few resident warps cannot hide latency
(fewer than 8 a multiprocessor lose in proportion), the multiprocessor with the most blocks is waited for, and 3 µs
come on top for the launch and for each step before or after it, whose counters are among the others. Left out:
registers, caches, barriers, the clock's drops under load.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autotile.devices.emulator.report import Access
from autotile.devices.info import DeviceInfo
from autotile.types import Launch

LAUNCH_MS = 0.003
HIDING_WARPS = 8
L2_BYTES_A_CLOCK = 32
SECTOR_BYTES = 32
ISSUE_SLOTS = 4


@dataclass(frozen=True)
class Counters:
    """What a run asked of memory: totals over all its warps."""

    load_requests: float = 0.0
    load_sectors: float = 0.0
    load_passes: float = 0.0
    store_requests: float = 0.0
    store_sectors: float = 0.0
    store_passes: float = 0.0
    shared_load_requests: float = 0.0
    shared_load_wavefronts: float = 0.0
    shared_store_requests: float = 0.0
    shared_store_wavefronts: float = 0.0

    @property
    def shared_requests(self) -> float:
        return self.shared_load_requests + self.shared_store_requests

    @property
    def shared_wavefronts(self) -> float:
        return self.shared_load_wavefronts + self.shared_store_wavefronts

    @property
    def per_request(self) -> dict[str, float]:
        """Sectors a global request and wavefronts a shared one, on average, by name; none where there was none."""
        pairs = {
            "sectors_per_load": (self.load_sectors, self.load_requests),
            "sectors_per_store": (self.store_sectors, self.store_requests),
            "wavefronts_per_shared_load": (self.shared_load_wavefronts, self.shared_load_requests),
            "wavefronts_per_shared_store": (self.shared_store_wavefronts, self.shared_store_requests),
        }
        return {name: total / requests for name, (total, requests) in pairs.items() if requests}

    def scaled(self, traced_flops: int, flops: int, traced_bytes: int, moved_bytes: int) -> Counters:
        """For a larger problem: stores grow with the bytes, the rest with the arithmetic (or the bytes without any)."""
        by_bytes = moved_bytes / traced_bytes
        by_work = flops / traced_flops if traced_flops else by_bytes
        return Counters(
            self.load_requests * by_work,
            self.load_sectors * by_work,
            self.load_passes * by_work,
            self.store_requests * by_bytes,
            self.store_sectors * by_bytes,
            self.store_passes * by_bytes,
            self.shared_load_requests * by_work,
            self.shared_load_wavefronts * by_work,
            self.shared_store_requests * by_work,
            self.shared_store_wavefronts * by_work,
        )


def counters_of(accesses: Sequence[Access], launch: Launch) -> Counters:
    totals = dict.fromkeys(Counters.__dataclass_fields__, 0.0)
    for access in accesses:
        if access.space == "shared":
            totals[f"shared_{access.op}_requests"] += access.requests
            totals[f"shared_{access.op}_wavefronts"] += access.total
        else:
            op = access.op
            totals[f"{op}_requests"] += access.requests
            totals[f"{op}_sectors"] += access.total
            totals[f"{op}_passes"] += access.requests * max(1.0, access.per_request / 4)
    return Counters(**totals)


def estimate_ms(
    counters: Counters,
    device: DeviceInfo,
    launch: Launch,
    *,
    flops: int,
    moved_bytes: int,
    dtype: str,
    static_shared_bytes: int = 0,
) -> float:
    """The modelled time of one launch with its steps, in ms."""
    clocks_a_ms = device.clock_ghz * 1e6 * device.sm_count
    # Without tensor cores float64 runs at half the float32 rate at most, whatever the data sheet's tensor peak.
    peak = min(device.fp64_tflops, device.fp32_tflops / 2) if dtype == "float64" else device.fp32_tflops
    sectors = counters.load_sectors + counters.store_sectors
    requests = counters.load_requests + counters.store_requests + counters.shared_requests
    units_ms = (
        moved_bytes / (device.bandwidth_gbs * 1e6),
        sectors * SECTOR_BYTES / (L2_BYTES_A_CLOCK * clocks_a_ms),
        (counters.load_passes + counters.store_passes + counters.shared_wavefronts) / clocks_a_ms,
        flops / (peak * 1e9),
        (flops / 2 / device.warp_size + requests) / (ISSUE_SLOTS * clocks_a_ms),
    )
    joined_ms = math.sqrt(math.sqrt(math.fsum(unit**4 for unit in units_ms)))
    share = launch.blocks / device.sm_count
    resident = max(1, min(resident_blocks(device, launch, static_shared_bytes), math.ceil(share)))
    hiding = min(1.0, resident * math.ceil(launch.threads / device.warp_size) / HIDING_WARPS)
    return LAUNCH_MS * (1 + len(launch.steps)) + joined_ms / hiding * math.ceil(share) / share


def resident_blocks(device: DeviceInfo, launch: Launch, static_shared_bytes: int = 0) -> int:
    """Blocks that a multiprocessor holds at once, by threads, block slots and shared memory (registers left out)."""
    shared = launch.shared_bytes + static_shared_bytes
    by_shared = device.shared_bytes_per_sm // shared if shared else device.max_blocks_per_sm
    return min(device.max_blocks_per_sm, device.max_threads_per_sm // launch.threads, by_shared)
