"""Reads the runtime's findings: addresses become lines, places get names, and what belongs to one line is merged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from autotile.devices.emulator import abi
from autotile.devices.emulator.lines import LineTable
from autotile.devices.emulator.report import KINDS, Access, Diagnostic, Footprint, Protection, RaceOp
from autotile.devices.memory import WAVEFRONT_BYTES

# What SplitFault of cluster.h says.
SPLIT_FAULTS = (
    "the thread arrives again before it has waited",
    "the thread waits without having arrived",
    "the thread reaches into another block's shared memory between its arrival and its wait",
    "the thread returns after its arrival without a wait",
)

# How far from a buffer an address may lie and still be told by its distance.
_NEAR_BYTES = 1 << 20


@dataclass(frozen=True)
class MemoryMap:
    """Where a launch had its memory: `buffers` are (argument, address, bytes), the shared ones (address, bytes).

    `windows` are the (address, bytes apart) at which the blocks of a cluster see each other's; 0 without clusters.
    """

    buffers: tuple[tuple[int, int, int], ...]
    static_shared: tuple[int, int]
    dynamic_shared: tuple[int, int]
    windows: tuple[int, int] = (0, 0)

    @property
    def arguments(self) -> list[int]:
        """The argument of each of the launch's buffers: the first, where several are one and the same array."""
        first: dict[tuple[int, int], int] = {}
        for argument, address, size in self.buffers:
            first.setdefault((address, size), argument)
        return list(first.values())

    def relative(self, site: abi.FoundSite) -> tuple[int, ...]:
        """The addresses of a site's example, from the array's start or in the block's shared memory, where the dynamic
        array lies behind the static ones. What they lie off a 16-byte bound, or a bank, stays."""
        addresses: list[int] = site.example[: site.example_lanes]
        if not site.shared:
            return tuple(address % (1 << abi.ARGUMENT_SHIFT) for address in addresses)
        (start, static_bytes), (dynamic, _), (_, stride) = self.static_shared, self.dynamic_shared, self.windows
        inside = (a if a < abi.WINDOW_ADDRESS else (a - abi.WINDOW_ADDRESS) % stride for a in addresses)
        moved = dynamic - start - -(-static_bytes // WAVEFRONT_BYTES) * WAVEFRONT_BYTES
        return tuple(a - moved if a >= dynamic - start else a for a in inside)

    def describe(self, address: int, size: int) -> str:
        """Names the place of `size` bytes at `address`: its distance from the memory that was probably meant."""
        width = f"{size} bytes " if size else ""
        begin, stride = self.windows
        if stride and begin <= address < begin + 8 * stride:
            rank, offset = divmod(address - begin, stride)
            own = replace(self, windows=(0, 0)).describe(self.static_shared[0] + offset, size)
            return f"{own}, in the block of rank {rank} of the cluster"
        start, length = self.dynamic_shared
        if start <= address < start + (1 << 18):
            return f"{width}at byte {address - start} of dynamic shared memory, of which the launch has {length}"
        start, length = self.static_shared
        if length and start - 1024 <= address < start + length + 65536:
            return f"{width}{_relation(address - start, length)} of the static shared arrays ({length} bytes)"
        best: tuple[int, str] | None = None
        for index, start, length in self.buffers:
            distance = max(start - address, address - (start + length), 0)
            if distance <= _NEAR_BYTES and (best is None or distance < best[0]):
                best = (distance, f"{width}{_relation(address - start, length)} of argument {index} ({length} bytes)")
        return f"{width}at address {address:#x}, near no argument" if best is None else best[1]


def _relation(offset: int, length: int) -> str:
    if offset < 0:
        return f"{-offset} bytes before the start"
    return f"{offset - length} bytes past the end" if offset >= length else f"at byte {offset}"


def _known(number: int) -> int | None:
    return None if number < 0 else number


def _detail(found: abi.FoundDiagnostic, kind: str, memory: MemoryMap) -> str:
    if kind in ("out_of_bounds", "misaligned", "read_only_write"):
        return memory.describe(found.address, found.bytes)
    if kind == "uninitialised_shared":
        return f"at byte {found.address} of the block's shared memory"
    if kind == "barrier_divergence" and not found.other_line:
        return f"{found.waiting} of {found.bytes} threads wait there, the others have returned"
    if kind == "split_barrier":
        return SPLIT_FAULTS[found.bytes]
    if kind == "bad_rank":
        if found.address:
            return memory.describe(found.address, 0) + ", not in the block's own shared memory"
        return f"rank {found.bytes}, which the cluster does not have"
    if kind == "deadlock" and found.bytes:
        return "ldmatrix and mma need all 32 lanes of a warp, at the same instruction"
    return f"{found.bytes} bytes" if kind == "bad_copy_size" else ""


def collect_diagnostics(
    found: Sequence[abi.FoundDiagnostic], lines: LineTable, memory: MemoryMap
) -> tuple[Diagnostic, ...]:
    """Diagnostics in the order of their weight, one for each kind, op and pair of lines."""
    lines.resolve(address for one in found for address in (one.pc, one.other_pc))
    merged: dict[tuple[str, str, int | None, int | None], Diagnostic] = {}
    for one in found:
        kind, op = abi.DIAGNOSTIC_KINDS[one.kind - 1], abi.DIAGNOSTIC_OPS[one.op]
        line, other_line = one.line or lines.line(one.pc), one.other_line or lines.line(one.other_pc)
        new = Diagnostic(
            kind, op, line, other_line, _known(one.thread), _known(one.other_thread), _known(one.block),
            _known(one.other_block), one.count, _detail(one, kind, memory), bool(one.across_warps),
        )  # fmt: skip
        old = merged.get((kind, op, line, other_line))
        if old is not None:
            keep = new if new.across_warps and not old.across_warps else old
            new = replace(keep, count=old.count + new.count)
        merged[kind, op, line, other_line] = new
    return tuple(sorted(merged.values(), key=lambda d: KINDS.index(d.kind)))


@dataclass
class _Sums:
    """What the sites of one access come to, and the costliest of them."""

    costliest: abi.FoundSite
    requests: int = 0
    lanes: int = 0
    total: int = 0
    ideal: int = 0
    used_bytes: int = 0
    lines: int = 0

    def add(self, site: abi.FoundSite) -> None:
        self.requests += site.requests
        self.lanes += site.lanes
        self.total += site.total
        self.ideal += site.ideal
        self.used_bytes += site.used_bytes
        self.lines += site.lines
        if site.worst > self.costliest.worst:
            self.costliest = site


def collect_accesses(found: Sequence[abi.FoundSite], lines: LineTable, memory: MemoryMap) -> tuple[Access, ...]:
    """One Access a line, way to it, op, space, array and width, those apart in which all lanes share one address:
    compilers unroll, so that a line may be many sites, and one line may read two tiles."""
    lines.resolve(site.pc for site in found)
    merged: dict[tuple[int, tuple[int, ...], int, int, int, int, int, bool], _Sums] = {}
    for site in found:
        if site.requests:
            key = (
                lines.line(site.pc) or 0, lines.called_from(site.pc), site.shared, site.store, site.bytes,
                -1 if site.shared else site.example[0] >> abi.ARGUMENT_SHIFT, site.merged, _is_broadcast(site),
            )  # fmt: skip
            merged.setdefault(key, _Sums(site)).add(site)
    arguments = memory.arguments
    return tuple(
        Access(
            line or None, "store" if store else "load", "shared" if shared else "global", access_bytes,
            sums.requests, sums.lanes / sums.requests, sums.total / sums.requests, sums.ideal / sums.requests,
            sums.costliest.worst, sums.total, sums.used_bytes, called_from, None if shared else arguments[buffer],
            memory.relative(sums.costliest), bool(widened), sums.lines,
        )
        for (line, called_from, shared, store, access_bytes, buffer, widened, _), sums in sorted(
            merged.items(), key=lambda item: item[0]
        )
    )  # fmt: skip


def _is_broadcast(site: abi.FoundSite) -> bool:
    """Whether the lanes of its costliest request share one address."""
    return site.example_lanes > 1 and len(set(site.example[: site.example_lanes])) == 1


def collect_protections(found: Sequence[abi.FoundProtection], lines: LineTable) -> tuple[Protection, ...]:
    """One Protection a barrier, op and pair of lines, in that order."""
    lines.resolve(address for one in found for address in (one.first_pc, one.pc))
    counts: Counter[tuple[int, str, int, int]] = Counter()
    for one in found:
        key = (one.line, abi.DIAGNOSTIC_OPS[one.op], lines.line(one.first_pc) or 0, lines.line(one.pc) or 0)
        counts[key] += one.count
    return tuple(
        Protection(barrier, cast(RaceOp, op), first or None, line or None, count)
        for (barrier, op, first, line), count in sorted(counts.items())
    )


def collect_footprints(found: Any) -> tuple[Footprint, Footprint]:
    """Of loads, and of stores."""
    loaded, stored = (Footprint(f.blocks, f.sectors, f.runs, f.paired_runs, f.joined) for f in found[:2])
    return loaded, stored
