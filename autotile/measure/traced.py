"""Traces some blocks of a variant's real launch on the emulator, whatever the problem's size.

Results are not checked, and most memory is never touched: arrays too large to fill are zeros that the system hands out
page by page. What a block does to memory depends on its place, not on the values, in every kernel whose indices are not
data.
"""

from __future__ import annotations

import math
import mmap
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autotile.devices.base import Array
from autotile.devices.emulator.device import EmulatorDevice, step_work
from autotile.devices.emulator.estimate import Estimate, estimate
from autotile.devices.emulator.program import EmulatedProgram, Widths
from autotile.devices.emulator.report import Access, Diagnostic, Protection, Report
from autotile.devices.emulator.source import first_lines
from autotile.devices.emulator.work import Work, scaled
from autotile.devices.info import DeviceInfo
from autotile.errors import UnsupportedByEmulator
from autotile.kernels import Input
from autotile.measure.placed import held_bytes
from autotile.measure.random_data import random_array
from autotile.measure.variant import Variant
from autotile.measure.workload import arguments_of, is_added, takes_place
from autotile.types import SCRATCH, Binary, Dim3, Launch, LaunchStep

RANDOM_BYTES = 16 << 20
"""Arrays of so many bytes in all are filled with random values; larger ones hold zeros."""

ALIGNMENT_BYTES = 256
GOLDEN = (math.sqrt(5) - 1) / 2
ACCESSES_A_SECOND = 4e6
"""Of all lanes, as a trace goes on an average machine."""

LIMIT_S = 20.0
"""For the blocks of one function."""

FEWEST, MOST = 2, 4096
"""Blocks that are traced of a launch which has more."""

FEWEST_EDGES = 2
"""The first block and the last are checked, however long they take; the grid's other corners if they are quick."""


@dataclass(frozen=True)
class TracedEntry:
    """What some blocks of one function did: `entry` is its suffix, "" for the main one. Counts are of those blocks,
    those of `work` of all."""

    entry: str
    launch_blocks: int
    traced_blocks: int
    accesses: tuple[Access, ...]
    protections: tuple[Protection, ...]
    barriers: tuple[tuple[int, int], ...]
    work: Work

    @property
    def scale(self) -> float:
        return self.launch_blocks / self.traced_blocks

    @property
    def per_request(self) -> dict[str, float]:
        """Sectors a global request and wavefronts a shared one, on average, by name; none where there was none."""
        requests, totals = Counter[str](), Counter[str]()
        for access in self.accesses:
            name = f"sectors_a_{access.op}_request" if access.space == "global" else f"wavefronts_a_shared_{access.op}"
            requests[name] += access.requests
            totals[name] += access.total
        return {name: totals[name] / count for name, count in requests.items()}


@dataclass(frozen=True)
class Trace:
    """The functions of one launch, the main one first, then those before and after it; what they did wrong; and what
    the counts leave out."""

    entries: tuple[TracedEntry, ...]
    diagnostics: tuple[Diagnostic, ...]
    notes: tuple[str, ...] = ()

    @property
    def main(self) -> TracedEntry:
        return self.entries[0]

    @property
    def per_request(self) -> dict[str, float]:
        """Of the main function."""
        return self.main.per_request

    def estimate(self, variant: Variant, device: DeviceInfo, registers: int | None = None) -> Estimate:
        """The modelled time of the traced variant on a GPU (see devices/emulator/estimate.py)."""
        kernel, problem = variant.kernel, variant.problem
        return estimate(
            [entry.work for entry in self.entries], device, flops=kernel.flops_of(problem),
            least_bytes=kernel.bytes_of(problem), dtype=problem.dtype, scratch_bytes=variant.launch.scratch_bytes,
            registers=registers, tensor_cores=kernel.tensor_cores,
        )  # fmt: skip


def trace_variant(
    device: EmulatorDevice,
    variant: Variant,
    binary: Binary,
    *,
    budget_s: float = 1.0,
    widths: Widths | None = None,
    edges: bool = False,
) -> Trace:
    """Two blocks of each function at least, and as many more, evenly spread, as take some `budget_s` seconds, by their
    accesses: so that the same blocks are traced each time, and on every machine. With `edges` the blocks in the grid's
    corners, where tiles hang out over the arrays' ends, are checked for faults besides; they count nothing.

    `binary` is the emulator's. Raises LaunchError for a launch that is impossible, UnsupportedByEmulator for a text
    that the emulator does not run, for more data than there are addresses, and where two blocks take it too long.
    """
    launch = variant.launch
    program = device.load(binary)
    try:
        arguments = _arguments(variant)
    except (MemoryError, OSError, OverflowError) as error:
        raise UnsupportedByEmulator(f"{variant.problem.label} has more data than this process may have") from error
    main = LaunchStep("", launch.grid, launch.block)
    entries: list[TracedEntry] = []
    diagnostics: list[Diagnostic] = []
    notes: list[str] = []
    trace = _Tracer(program, arguments, budget_s, widths, first_lines(variant.source.text) if widths else {}, edges)
    for step in (main, *launch.before, *launch.after):
        shared_bytes = launch.shared_bytes if step is main else 0
        entry, report = trace.step(step, shared_bytes)
        if any(found.kind == "timeout" for found in report.diagnostics):
            raise UnsupportedByEmulator(
                f"a block of {variant.problem.label} takes the emulator more than {LIMIT_S:.0f} s: take a smaller "
                "problem; what an access costs a request is the same there"
            )
        entries.append(entry)
        diagnostics += report.diagnostics
        notes += [words for words, count in _left_out(report) if count and words not in notes]
    return Trace(tuple(entries), tuple(diagnostics), tuple(notes))


def scaled_trace(trace: Trace, launch: Launch, by_work: float, by_bytes: float) -> Trace:
    """A small problem's trace for the launch of a larger one; its ratios stay as they are (see work.scaled)."""
    blocks = {step.entry_suffix: math.prod(step.grid) for step in launch.steps} | {"": launch.blocks}
    entries = (
        replace(entry, work=scaled(entry.work, blocks[entry.entry], by_work, by_bytes))
        for entry in trace.entries
        if entry.entry in blocks
    )
    return replace(trace, entries=tuple(entries))


def _left_out(report: Report) -> list[tuple[str, int]]:
    return [
        ("Atomic operations are counted as stores; that they wait for each other is not.", report.copies.atomics),
        ("Of a thread's accesses between two barriers only the first 262144 are counted.", report.copies.dropped),
    ]


@dataclass(frozen=True)
class _Tracer:
    program: EmulatedProgram
    arguments: list[Any]
    budget_s: float
    widths: Widths | None
    first_lines: Mapping[int, int]
    edges: bool

    def step(self, step: LaunchStep, shared_bytes: int) -> tuple[TracedEntry, Report]:
        """What one function did in the traced blocks, and what was wrong with it there or at the edges."""
        blocks, cluster = math.prod(step.grid), self.program.cluster(step.entry_suffix)[0]
        chosen = _spread(blocks // cluster, FEWEST)
        report = self._launch(step, shared_bytes, [number * cluster for number in chosen])
        accesses = sum(access.requests * access.lanes for access in report.accesses) / len(chosen)
        affordable = min(MOST, int(self.budget_s * ACCESSES_A_SECOND / max(accesses, 1000)))
        more = _spread(blocks // cluster, affordable)
        if len(more) > len(chosen) and not report.diagnostics:
            chosen = more
            report = self._launch(step, shared_bytes, [number * cluster for number in chosen])
        traced_blocks = len(chosen) * cluster
        work = step_work(self.program, step, shared_bytes, report, traced_blocks)
        entry = TracedEntry(
            step.entry_suffix, blocks, traced_blocks, report.accesses, report.protections, report.barriers, work
        )
        if self.edges and traced_blocks < blocks and not report.diagnostics:
            corners = _corners(step.grid)[: max(FEWEST_EDGES, affordable)]
            report = replace(report, diagnostics=self._faults(step, shared_bytes, corners))
        return entry, report

    def _launch(self, step: LaunchStep, shared_bytes: int, blocks: list[int]) -> Report:
        return self.program.launch(
            step.grid, step.block, shared_bytes, self.arguments, "trace", entry_suffix=step.entry_suffix,
            blocks=blocks, widths=self.widths, first_lines=self.first_lines, limit_s=LIMIT_S,
        )  # fmt: skip

    def _faults(self, step: LaunchStep, shared_bytes: int, blocks: list[int]) -> tuple[Diagnostic, ...]:
        """Of blocks that need not be counted; that they take long is none."""
        report = self.program.launch(
            step.grid, step.block, shared_bytes, self.arguments, "check", entry_suffix=step.entry_suffix,
            blocks=blocks, limit_s=LIMIT_S,
        )  # fmt: skip
        return tuple(found for found in report.diagnostics if found.kind != "timeout")


def _corners(grid: Dim3) -> list[int]:
    """Linear numbers of the blocks in the grid's corners: the first, the last, then the others."""
    (x, y, _), ends = grid, [sorted({0, size - 1}) for size in grid]
    found = [at_x + x * (at_y + y * at_z) for at_z in ends[2] for at_y in ends[1] for at_x in ends[0]]
    return list(dict.fromkeys((found[0], found[-1], *found)))


def _spread(clusters: int, count: int) -> list[int]:
    """`count` of so many clusters, or all: pairs of neighbours, spread as evenly as multiples of the golden ratio lie,
    so that they keep no step with what repeats from block to block. Where pairs meet there are fewer."""
    if count >= clusters:
        return list(range(clusters))
    first = {int((0.5 + i * GOLDEN) % 1.0 * (clusters - 1)) for i in range(-(-count // 2))}
    return sorted({number for at in first for number in (at, at + 1)})


def _arguments(variant: Variant) -> list[Any]:
    kernel, problem, launch = variant.kernel, variant.problem, variant.launch
    generator = np.random.default_rng(0)
    filled = held_bytes(kernel, problem) <= RANDOM_BYTES
    arrays: dict[str, Array] = {}
    for argument in kernel.arrays_of(problem):
        element, extent = kernel.element_of(argument, problem), kernel.layout_of(argument, problem).extent
        raw = _lazy_zeros(extent * element.itemsize, problem.offset * element.itemsize)
        array = raw.view(element.numpy)
        if filled and isinstance(argument, Input):
            array[...] = random_array(element, array.shape, generator, is_added(kernel, problem, argument))
        arrays[argument.name] = array
    arrays |= {output: arrays[source] for output, source in takes_place(kernel, problem, over=False).items()}
    scratch = _lazy_zeros(-(-launch.scratch_bytes // 4) * 4).view(np.uint32) if launch.scratch_bytes else None
    scalars = {scalar.name: scalar.default for scalar in kernel.scalars}

    def value(argument: Any) -> Any:
        if argument is SCRATCH:
            return scratch
        if isinstance(argument, str):
            return arrays[argument]
        return np.int32(argument) if isinstance(argument, int) else argument

    return [value(argument) for argument in arguments_of(kernel, problem, scalars)]


def _lazy_zeros(nbytes: int, offset_bytes: int = 0) -> Array:
    """Zeros as cudaMalloc would place them, or so many bytes behind; memory is taken where it is touched."""
    size = nbytes + ALIGNMENT_BYTES + offset_bytes
    if hasattr(mmap, "MAP_NORESERVE") and size > RANDOM_BYTES:  # more than there is memory may have an address
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_NORESERVE
        raw = np.frombuffer(mmap.mmap(-1, size, flags=flags), np.uint8)
    else:
        raw = np.zeros(size, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT_BYTES + offset_bytes
    return raw[start : start + nbytes]
