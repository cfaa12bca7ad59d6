"""Nsight Compute's counters of a program's kernels: its command line, its CSV, and the ratios that tell something."""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Numbers = Mapping[str, "float | None"]

_GLOBAL = "l1tex__t_{what}_pipe_lsu_mem_global_op_{way}.sum"
_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{way}.sum"
_INSTRUCTIONS = "smsp__inst_executed_op_shared_{way}.sum"
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{way}.sum"
OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
L2 = "lts__t_sectors.avg.pct_of_peak_sustained_elapsed"
DRAM = "dram__throughput.avg.pct_of_peak_sustained_elapsed"

METRICS = (
    *(_GLOBAL.format(what=what, way=way) for way in ("ld", "st") for what in ("sectors", "requests")),
    *(name.format(way=way) for way in ("ld", "st") for name in (_WAVEFRONTS, _INSTRUCTIONS, _CONFLICTS)),
    OCCUPANCY,
    L2,
    DRAM,
)
_NOT_FOUND = re.compile(r"failed to find metric", re.IGNORECASE)


def find_ncu(named: str | None = None) -> Path | None:
    """The ncu that was named, or the one on PATH, or the one beside the toolkit's other programs."""
    if named:
        found = shutil.which(named)
        return None if found is None else Path(found)
    homes = [os.environ.get(variable) for variable in ("CUDA_HOME", "CUDA_PATH")]
    folders = [f"{home}/bin" for home in (*homes, "/usr/local/cuda") if home]
    found = shutil.which("ncu") or shutil.which("ncu", path=os.pathsep.join(folders))
    return None if found is None else Path(found)


def command(ncu: Path, kernel: str, metrics: Sequence[str], program: Sequence[str]) -> list[str]:
    """Profiles each launch of the kernel of that name in the program, at the clocks as they are."""
    options = {
        "--page": "raw", "--print-units": "base", "--kernel-name-base": "function", "--kernel-name": kernel,
        "--metrics": ",".join(metrics), "--clock-control": "none", "--target-processes": "application-only",
    }  # fmt: skip
    return [str(ncu), "--csv", *(word for option in options.items() for word in option), *program]


def profiled(
    ncu: Path,
    kernel: str,
    program: Sequence[str],
    launches: int,
    notes: list[str],
    run: Callable[..., Any] = subprocess.run,
    limit_s: float = 240.0,
) -> list[dict[str, float | None]]:
    """The metrics of each launch, in their order, where there are as many as said; see `raw_launches`."""
    rows = raw_launches(ncu, kernel, METRICS, program, launches, notes, run, limit_s)
    return [{name: number(row.get(name)) for name in METRICS} for row in rows]


def raw_launches(
    ncu: Path,
    kernel: str,
    metrics: Sequence[str],
    program: Sequence[str],
    launches: int | None,
    notes: list[str],
    run: Callable[..., Any] = subprocess.run,
    limit_s: float = 240.0,
) -> list[dict[str, str]]:
    """A row for each launch, in their order; metrics that this release lacks are not in it, and `notes` says which.

    Empty, with a note, where ncu does not end, or tells of another number of launches than there are (without
    permission for the counters, say); where `launches` is None, of none.
    """
    wanted = list(metrics)
    while wanted:
        try:
            done = run(
                command(ncu, kernel, wanted, program), capture_output=True, text=True, check=False, timeout=limit_s
            )
        except subprocess.TimeoutExpired:
            notes.append(f"{ncu} had not ended after {limit_s:.0f} s")
            return []
        missing = lacking(done.stdout + done.stderr, wanted)
        if not missing:
            break
        notes.append(f"this release of Nsight Compute has no {', '.join(missing)}")
        wanted = [name for name in wanted if name not in missing]
    else:
        return []
    rows = raw_rows(done.stdout)
    if not rows if launches is None else len(rows) != launches:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()][-3:]
        told_of = "no launch" if launches is None else f"{len(rows)} launches instead of {launches}"
        notes.append(f"ncu told of {told_of} (status {done.returncode}): {said}")
        return []
    return rows


def lacking(said: str, metrics: Sequence[str]) -> list[str]:
    """The metrics, by their full or their base names, on lines in which ncu says that it has not found some."""
    lines = [line for line in said.splitlines() if _NOT_FOUND.search(line)]
    words = {word.rstrip(".") for line in lines for word in re.findall(r"[a-z0-9_]+__[a-z0-9_.]+", line)}
    return [name for name in metrics if words & {name, name.partition(".")[0]}]


def raw_rows(text: str) -> list[dict[str, str]]:
    """The launches of `ncu --csv --page raw`: its own messages come before the header, a row of units after it."""
    lines = [line for line in text.splitlines() if not line.startswith("==")]
    start = next((at for at, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    rows = csv.DictReader(lines[start:])
    return sorted((row for row in rows if (row["ID"] or "").isdigit()), key=lambda row: int(row["ID"]))


def number(text: str | None) -> float | None:
    """A number with or without commas between its thousands; None for `n/a`, nothing, and what is no number."""
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None


def told(raw: Numbers) -> dict[str, float | None]:
    """Sectors a request, wavefronts an instruction, and the like; None where there is no such request at all."""

    def ratio(over: str, under: str) -> float | None:
        top, bottom = raw.get(over), raw.get(under)
        return top / bottom if top is not None and bottom else None

    def sectors(way: str) -> float | None:
        return ratio(_GLOBAL.format(what="sectors", way=way), _GLOBAL.format(what="requests", way=way))

    def wavefronts(way: str) -> float | None:
        return ratio(_WAVEFRONTS.format(way=way), _INSTRUCTIONS.format(way=way))

    conflicts = [raw.get(_CONFLICTS.format(way=way)) for way in ("ld", "st")]
    known = [count for count in conflicts if count is not None]
    return {
        "sectors_a_load_request": sectors("ld"),
        "sectors_a_store_request": sectors("st"),
        "wavefronts_a_shared_load": wavefronts("ld"),
        "wavefronts_a_shared_store": wavefronts("st"),
        "bank_conflicts": sum(known) if known else None,
        "occupancy_percent": raw.get(OCCUPANCY),
        "l2_percent": raw.get(L2),
        "dram_percent": raw.get(DRAM),
    }
