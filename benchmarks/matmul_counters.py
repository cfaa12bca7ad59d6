"""What Nsight Compute counts of matmuls, cuBLAS's among them: multiply-adds, shared memory, bytes from L2 and DRAM."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import counters
from counters import OCCUPANCY, Numbers, number, raw_launches

EVERY_KERNEL = "regex:."
"""For ncu's --kernel-name: what cuBLAS calls its kernels is not known before."""

FMA = (
    "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
)
"""The same under two names: GPUs and releases differ in which of them they have."""

ISSUE = "sm__inst_issued.avg.pct_of_peak_sustained_active"
WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
CONFLICTS = tuple(name for name in counters.METRICS if "bank_conflicts" in name)
L1_READ_BYTES, L1_READ_SECTORS = "l1tex__m_xbar2l1tex_read_bytes.sum", "lts__t_sectors_srcunit_tex_op_read.sum"
SECTOR_BYTES = 32
DRAM_BYTES = ("dram__bytes_read.sum", "dram__bytes_write.sum")
REGISTERS = "launch__registers_per_thread"
TIME_NS = "gpu__time_duration.sum"

METRICS = (
    *FMA, ISSUE, WAVEFRONTS, *CONFLICTS, L1_READ_BYTES, L1_READ_SECTORS, *DRAM_BYTES, REGISTERS, OCCUPANCY, TIME_NS,
)  # fmt: skip


class Counted(NamedTuple):
    """One launch: the kernel's name as it was declared, and its metrics."""

    name: str
    raw: Numbers


def profiled(
    ncu: Path,
    program: Sequence[str],
    notes: list[str],
    run: Callable[..., Any] = subprocess.run,
    limit_s: float = 240.0,
) -> list[Counted]:
    """Every launch of the program, in order. Metrics that this release lacks are None, and `notes` says which.

    Empty, with a note, where ncu tells of none (without permission for the counters, say) or does not end.
    """
    rows = raw_launches(ncu, EVERY_KERNEL, METRICS, program, None, notes, run, limit_s)
    return [Counted(row["Kernel Name"], {name: number(row.get(name)) for name in METRICS}) for row in rows]


def by_step(rows: Sequence[Counted], entry: str, steps: Sequence[str], notes: list[str]) -> dict[str, Counted]:
    """The main function's launch of each step, told apart by their order; nothing, with a note, where some lack.

    What a step launches before and after it has the entry's name and more, and is not among them.
    """
    own = [row for row in rows if row.name == entry]
    if len(own) != len(steps):
        notes.append(f"ncu told of {len(own)} launches of {entry} instead of {len(steps)}, so no step has counters")
        return {}
    return dict(zip(steps, own, strict=True))


def peer_of(rows: Sequence[Counted], entry: str, notes: list[str]) -> Counted | None:
    """The longest launch that is none of autotile's; `notes` hears where there are several."""
    others = [row for row in rows if not row.name.startswith(entry)]
    if len(others) > 1:
        notes.append(f"cuBLAS launched {', '.join(row.name for row in others)}; the longest has the counters")
    return max(others, key=lambda row: row.raw.get(TIME_NS) or 0.0, default=None)


def told(raw: Numbers, multiply_adds: int) -> dict[str, float | None]:
    """Per cent of what the multiprocessors could do, bytes, counts, and multiply-adds a wavefront of shared memory;
    None for what was not counted."""
    wavefronts = raw.get(WAVEFRONTS)
    sectors = raw.get(L1_READ_SECTORS)
    return {
        "fma_percent": first(raw.get(name) for name in FMA),
        "issue_percent": raw.get(ISSUE),
        "shared_wavefronts": wavefronts,
        "multiply_adds_a_wavefront": multiply_adds / wavefronts if wavefronts else None,
        "bank_conflicts": total(raw.get(name) for name in CONFLICTS),
        "l2_to_l1_bytes": first([raw.get(L1_READ_BYTES), None if sectors is None else sectors * SECTOR_BYTES]),
        "dram_bytes": total(raw.get(name) for name in DRAM_BYTES),
        "registers": raw.get(REGISTERS),
        "occupancy_percent": raw.get(OCCUPANCY),
    }


def first(found: Iterable[float | None]) -> float | None:
    return next((value for value in found if value is not None), None)


def total(found: Iterable[float | None]) -> float | None:
    """Of those that are known."""
    known = [value for value in found if value is not None]
    return sum(known) if known else None
