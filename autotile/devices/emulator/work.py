"""What a function asks of a GPU in all its blocks, summed up from what some of them did on the emulator."""

from __future__ import annotations

from dataclasses import dataclass, replace

from autotile.devices.emulator.report import Report
from autotile.devices.memory import WARP_LANES


@dataclass(frozen=True)
class Work:
    """One function of a launch. Requests, sectors and wavefronts are of all its blocks.

    `load_passes` and `store_passes` are those of a global request through the first cache: one for every line of 128
    bytes.
    `loaded_sectors` and `stored_sectors` are distinct within a block (a cluster counts as one), `load_run_bytes` and
    `store_run_bytes` the mean length of the pieces that they lie in, `stores_joined` the share of those that the next
    block goes on with. `stored_bytes` is what lanes asked to store. `barriers` are a block's passes, `loads` a thread's
    loads from global memory that it waits for, `waits` a thread's waits for asynchronous copies, each of which leaves
    `depth` groups of copies on their way. `reuses` are the sectors that a block loads again, by how many requests later
    (see Report).
    """

    blocks: int
    threads: int
    shared_bytes: int
    cluster_blocks: int
    load_requests: float = 0.0
    load_sectors: float = 0.0
    load_passes: float = 0.0
    store_requests: float = 0.0
    store_sectors: float = 0.0
    store_passes: float = 0.0
    stored_bytes: float = 0.0
    shared_requests: float = 0.0
    shared_wavefronts: float = 0.0
    loaded_sectors: float = 0.0
    stored_sectors: float = 0.0
    load_run_bytes: float = 0.0
    store_run_bytes: float = 0.0
    stores_joined: float = 0.0
    barriers: float = 0.0
    loads: float = 0.0
    waits: float = 0.0
    depth: float = 0.0
    reuses: tuple[float, ...] = ()

    @property
    def warps(self) -> int:
        """Of a block."""
        return -(-self.threads // WARP_LANES)


def scaled(work: Work, blocks: int, by_work: float, by_bytes: float) -> Work:
    """The same function on a larger problem, as far as that can be known: it has so many blocks, its stores grow with
    the bytes, all else with the arithmetic (or with the bytes where there is none)."""
    loads = ("load_requests", "load_sectors", "load_passes", "shared_requests", "shared_wavefronts", "loaded_sectors")
    stores = ("store_requests", "store_sectors", "store_passes", "stored_bytes", "stored_sectors")
    of_block = by_work * work.blocks / blocks
    return replace(
        work,
        blocks=blocks,
        reuses=tuple(count * by_work for count in work.reuses),
        **{name: getattr(work, name) * by_work for name in loads},
        **{name: getattr(work, name) * by_bytes for name in stores},
        **{name: getattr(work, name) * of_block for name in ("barriers", "loads", "waits")},
    )


def work_of(
    report: Report, *, blocks: int, traced_blocks: int, threads: int, shared_bytes: int, cluster_blocks: int = 1
) -> Work:
    """From a launch in mode "trace" of `traced_blocks` of the function's `blocks`, each of so many threads and bytes of
    shared memory, static and dynamic together."""
    scale, traced_threads = blocks / traced_blocks, threads * traced_blocks
    sums = dict.fromkeys(
        ("load_requests", "load_sectors", "load_passes", "store_requests", "store_sectors", "store_passes",
         "stored_bytes", "shared_requests", "shared_wavefronts"), 0.0,
    )  # fmt: skip
    loads = -float(report.copies.copies)  # asynchronous copies are among the loads
    for access in report.accesses:
        if access.space == "shared":
            sums["shared_requests"] += access.requests * scale
            sums["shared_wavefronts"] += access.total * scale
            continue
        sums[f"{access.op}_requests"] += access.requests * scale
        sums[f"{access.op}_sectors"] += access.total * scale
        sums[f"{access.op}_passes"] += access.line_count * scale
        if access.op == "store":
            sums["stored_bytes"] += access.used_bytes * scale
        else:
            loads += access.requests * access.lanes
    return Work(
        blocks,
        threads,
        shared_bytes,
        cluster_blocks,
        **sums,
        loaded_sectors=report.loaded.sectors * scale,
        stored_sectors=report.stored.sectors * scale,
        load_run_bytes=report.loaded.run_bytes,
        store_run_bytes=report.stored.run_bytes,
        stores_joined=report.stored.joined_share,
        barriers=sum(passes for _, passes in report.barriers) / traced_blocks,
        loads=max(0.0, loads) / traced_threads,
        waits=report.copies.waits / traced_threads if report.copies.copies else 0.0,
        depth=report.copies.depth if report.copies.copies else 0.0,
        reuses=tuple(count * scale for count in report.reuses),
    )
