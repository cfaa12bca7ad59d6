"""What Nsight Compute counts of matmuls, cuBLAS's among them: multiply-adds, shared memory, bytes from L2 and DRAM."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from autotile.errors import AutotileError
from autotile.insight.ncu import CONFLICTS, PROFILE_LIMIT_S, Counters, Launched, Wanted, launches, total
from autotile.insight.ncu import WANTED as USUAL

EVERY_KERNEL = "regex:."
"""For ncu's --kernel-name: what cuBLAS calls its kernels is not known before."""

SECTOR_BYTES = 32

WANTED: Wanted = {
    "fma_percent": (  # the same under two names: GPUs and releases differ in which of them they have
        "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
        "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
    ),
    "issue_percent": ("sm__inst_issued.avg.pct_of_peak_sustained_active",),
    "shared_wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",),
    "l1_read_bytes": ("l1tex__m_xbar2l1tex_read_bytes.sum",),
    "l1_read_sectors": ("lts__t_sectors_srcunit_tex_op_read.sum",),
    "dram_read_bytes": ("dram__bytes_read.sum",),
    "dram_written_bytes": ("dram__bytes_write.sum",),
    **{name: USUAL[name] for name in (*CONFLICTS, "registers", "occupancy_percent", "time_ns")},
}
DRAM_BYTES = ("dram_read_bytes", "dram_written_bytes")


def profiled(ncu: Path, program: Sequence[str], notes: list[str], limit_s: float = PROFILE_LIMIT_S) -> list[Launched]:
    """Every launch of the program, in order. What this release does not count is None, and `notes` says so.

    Empty, with a note, where ncu tells of none (without permission for the counters, say) or does not end.
    """
    try:
        return launches(ncu, EVERY_KERNEL, WANTED, program, notes, limit_s)
    except AutotileError as error:
        notes.append(str(error))
        return []


def by_step(rows: Sequence[Launched], entry: str, steps: Sequence[str], notes: list[str]) -> dict[str, Launched]:
    """The main function's launch of each step, told apart by their order; nothing, with a note, where some lack.

    What a step launches before and after it has the entry's name and more, and is not among them.
    """
    own = [row for row in rows if row.name == entry]
    if len(own) != len(steps):
        notes.append(f"ncu told of {len(own)} launches of {entry} instead of {len(steps)}, so no step has counters")
        return {}
    return dict(zip(steps, own, strict=True))


def peer_of(rows: Sequence[Launched], entry: str, notes: list[str]) -> Launched | None:
    """The longest launch that is none of autotile's; `notes` hears where there are several."""
    others = [row for row in rows if not row.name.startswith(entry)]
    if len(others) > 1:
        notes.append(f"cuBLAS launched {', '.join(row.name for row in others)}; the longest has the counters")
    return max(others, key=lambda row: row.counters.get("time_ns") or 0.0, default=None)


def told(raw: Counters, multiply_adds: int) -> dict[str, float | None]:
    """Per cent of what the multiprocessors could do, bytes, counts, and multiply-adds a wavefront of shared memory;
    None for what was not counted."""
    wavefronts = raw.get("shared_wavefronts")
    sectors = raw.get("l1_read_sectors")
    return {
        "fma_percent": raw.get("fma_percent"),
        "issue_percent": raw.get("issue_percent"),
        "shared_wavefronts": wavefronts,
        "multiply_adds_a_wavefront": multiply_adds / wavefronts if wavefronts else None,
        "bank_conflicts": total(raw.get(name) for name in CONFLICTS),
        "l2_to_l1_bytes": first([raw.get("l1_read_bytes"), None if sectors is None else sectors * SECTOR_BYTES]),
        "dram_bytes": total(raw.get(name) for name in DRAM_BYTES),
        "registers": raw.get("registers"),
        "occupancy_percent": raw.get("occupancy_percent"),
    }


def first(found: Iterable[float | None]) -> float | None:
    return next((value for value in found if value is not None), None)
