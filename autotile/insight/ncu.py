"""NVIDIA's Nsight Compute: where ncu is, which metrics it has, its command line, its CSV, and the ratios that tell
something.

What asynchronous copies (cp.async, LDGSTS) are counted among was seen on an H200 with Nsight Compute 2025.3, over 112
kernels: `…_global_op_ld` holds their requests too, exactly; `…_shared_op_st` does not hold their wavefronts.
Instructions whose lanes are all predicated off make no request; the `sass` counts leave them out.
"""

from __future__ import annotations

import csv
import functools
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotile.build.nvrtc import programs
from autotile.build.process import CompileTimeout, Finished, ProcessPool
from autotile.errors import EnvironmentalError, TimedOut, ToolchainMissing

Counters = Mapping[str, "float | None"]
"""By autotile's own name; None for what this release, or this GPU, does not count."""

Wanted = Mapping[str, tuple[str, ...]]
"""By autotile's own name, Nsight Compute's metrics, of which the first that there is is taken."""

WANTED: Wanted = {
    "load_sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",),
    "load_requests": ("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",),
    "store_sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",),
    "store_requests": ("l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",),
    "plain_loads": ("smsp__sass_inst_executed_op_global_ld.sum", "smsp__inst_executed_op_global_ld_pred_on_any.sum"),
    "copy_sectors": ("smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts.sum",),
    "copy_requests": ("smsp__sass_l1tex_t_requests_pipe_lsu_mem_global_op_ldgsts.sum",),
    "shared_load_wavefronts": (
        "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",  # also what loads and stores wait for each other
    ),
    "shared_loads": (
        "smsp__sass_inst_executed_op_shared_ld.sum",
        "smsp__inst_executed_op_shared_ld_pred_on_any.sum",
        "smsp__inst_executed_op_shared_ld.sum",
    ),
    "shared_store_wavefronts": (
        "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    ),
    "shared_stores": (
        "smsp__sass_inst_executed_op_shared_st.sum",
        "smsp__inst_executed_op_shared_st_pred_on_any.sum",
        "smsp__inst_executed_op_shared_st.sum",
    ),
    "copy_wavefronts": ("smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts.sum",),
    "copies": (
        "smsp__sass_inst_executed_op_ldgsts.sum",
        "smsp__inst_executed_op_ldgsts_pred_on_any.sum",
        "smsp__inst_executed_op_ldgsts.sum",
    ),
    "load_conflicts": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",),
    "store_conflicts": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",),
    "copy_conflicts": (
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ldgsts.sum",
        "smsp__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_ldgsts.sum",
    ),
    "occupancy_percent": ("sm__warps_active.avg.pct_of_peak_sustained_active",),
    "l2_percent": (
        "lts__t_sectors.avg.pct_of_peak_sustained_elapsed",
        "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    "dram_percent": (
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
        "dram__bytes.sum.pct_of_peak_sustained_elapsed",
    ),
    "time_ns": ("gpu__time_duration.sum",),
    "instructions": ("smsp__inst_executed.sum", "sm__inst_executed.sum"),
    "registers": ("launch__registers_per_thread",),
}
CONFLICTS = ("load_conflicts", "store_conflicts", "copy_conflicts")

OF_THE_LAUNCH = "launch__"
"""How those metrics begin that need no counter; ncu has them of every launch and does not list them."""

QUERY_LIMIT_S = 60.0
PROFILE_LIMIT_S = 240.0
NO_PERMISSION = "ERR_NVGPUCTRPERM"
NAME = "ncu.exe" if os.name == "nt" else "ncu"
_LISTED = re.compile(r"^([a-z0-9]+__[a-z0-9_]+)(?=\s|$)", re.MULTILINE)


@dataclass(frozen=True)
class Launched:
    """One launch: its function's name, and what was counted."""

    name: str
    counters: Counters


# ---- the program ----------------------------------------------------------------------------------------------------


def find_ncu(named: str | os.PathLike[str] | None = None) -> Path:
    """The ncu that was named, here or in AUTOTILE_NCU, or else one from where it usually is.

    Raises ToolchainMissing when there is none: one that was named is used or refused, never passed over.
    """
    named = named or os.environ.get("AUTOTILE_NCU")
    if named:
        found = shutil.which(named)
        if found is None:
            raise ToolchainMissing(f"{named} was named as Nsight Compute's ncu (AUTOTILE_NCU), and is no program")
        return Path(found)
    looked: dict[Path, None] = {}
    for path in programs(NAME):
        if path.is_file() and os.access(path, os.X_OK):
            return path
        looked[path] = None
    raise ToolchainMissing(
        f"Nsight Compute's ncu was not found on PATH, nor at {', '.join(map(str, looked)) or 'any other place'}. It "
        "comes with CUDA's toolkit, and alone from https://developer.nvidia.com/nsight-compute; AUTOTILE_NCU names it"
    )


@functools.lru_cache(maxsize=8)
def available_metrics(ncu: Path) -> frozenset[str]:
    """Base names (without `.sum` and the like) of what ncu counts on all of this machine's GPUs; asked once a process.

    Raises ToolchainMissing where it lists nothing (without a GPU or a driver, say).
    """
    done = _run([str(ncu), "--query-metrics"], QUERY_LIMIT_S)
    listings = re.split(r"^Device .*$", done.text, flags=re.MULTILINE)  # one a kind of GPU
    found = [frozenset(_LISTED.findall(listing)) for listing in listings]
    common = frozenset.intersection(*(names for names in found if names)) if any(found) else frozenset()
    if not common:
        raise ToolchainMissing(
            f"{ncu} --query-metrics listed no metric (status {done.status}): {last_lines(done.text)}"
        )
    return common


def command(ncu: Path, kernel: str, metrics: Iterable[str], program: Sequence[str]) -> list[str]:
    """Profiles each launch of the functions of that name (or `regex:…`) in the program, at the clocks as they are."""
    options = {
        "--page": "raw", "--print-units": "base", "--kernel-name-base": "function", "--kernel-name": kernel,
        "--metrics": ",".join(metrics), "--clock-control": "none", "--target-processes": "application-only",
    }  # fmt: skip
    return [str(ncu), "--csv", *(word for option in options.items() for word in option), *program]


def launches(
    ncu: Path,
    kernel: str,
    wanted: Wanted,
    program: Sequence[str],
    notes: list[str],
    limit_s: float = PROFILE_LIMIT_S,
) -> list[Launched]:
    """Runs the program under ncu: what was counted of each launch, in their order; one at least.

    `notes` hears of what is wanted and not to be had here. Raises ToolchainMissing where ncu lists no metrics,
    TimedOut after `limit_s` seconds, and EnvironmentalError, with the cure where there is one, where it tells of no
    launch.
    """
    metrics = chosen(wanted, available_metrics(ncu), notes)
    done = _run(command(ncu, kernel, metrics.values(), program), limit_s)
    found = counted(raw_rows(done.text), wanted, metrics)
    if not found:
        raise EnvironmentalError(_no_launch(ncu, done))
    return found


def _run(words: Sequence[str], limit_s: float) -> Finished:
    """Ends the program with ncu, whose child it is. Raises TimedOut and ToolchainMissing."""
    try:
        return ProcessPool().run(words, timeout_s=limit_s)
    except CompileTimeout:
        raise TimedOut(f"{words[0]} had not ended after {limit_s:.0f} s, and was ended with what it ran") from None
    except OSError as error:
        raise ToolchainMissing(f"{words[0]} cannot be started: {error}") from error


def _no_launch(ncu: Path, done: Finished) -> str:
    if NO_PERMISSION in done.text:
        return (
            f"{ncu} may not read the GPU's counters ({NO_PERMISSION}). Run as root (sudo, or with CAP_SYS_ADMIN; a "
            "container wants --cap-add=SYS_ADMIN), or let all users read them: put `options nvidia "
            "NVreg_RestrictProfilingToAdminUsers=0` into a file under /etc/modprobe.d and load the driver anew (after "
            f"a reboot, say). See https://developer.nvidia.com/{NO_PERMISSION}"
        )
    return f"{ncu} told of no launch (status {done.status}): {last_lines(done.text)}"


def last_lines(text: str) -> str:
    return "; ".join([line.strip() for line in text.splitlines() if line.strip()][-4:]) or "it said nothing"


# ---- metrics and rows -----------------------------------------------------------------------------------------------


def chosen(wanted: Wanted, available: frozenset[str], notes: list[str]) -> dict[str, str]:
    """The metric for each name, of those that there are; `notes` hears which names have none."""
    found: dict[str, str] = {}
    for name, metrics in wanted.items():
        metric = next((m for m in metrics if m.startswith(OF_THE_LAUNCH) or m.partition(".")[0] in available), None)
        if metric is not None:
            found[name] = metric
    missing = [f"{name} ({wanted[name][0]})" for name in wanted if name not in found]
    if missing:
        notes.append(f"this release of Nsight Compute does not count here: {', '.join(missing)}")
    return found


def first_named(wanted: Wanted) -> list[str]:
    """What is asked for where everything is to be had."""
    return [metrics[0] for metrics in wanted.values()]


def counted(rows: Sequence[Mapping[str, str]], wanted: Wanted, metrics: Mapping[str, str]) -> list[Launched]:
    """Rows of the CSV as launches, with None for what was not asked, or came out as no number."""
    return [
        Launched(row["Kernel Name"], {name: number(row.get(metrics.get(name, ""))) for name in wanted}) for row in rows
    ]


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


# ---- what it tells --------------------------------------------------------------------------------------------------


def ratios(raw: Counters) -> dict[str, float | None]:
    """Of counters by the names of WANTED: sectors a request, wavefronts an instruction, and the like; None where there
    is no such request at all, or it was not counted. As on the emulator, asynchronous copies are loads of global and
    stores of shared memory."""
    sectors, requests = _loads(raw)
    time_ns = raw.get("time_ns")
    return {
        "sectors_a_load_request": _over(sectors, requests),
        "sectors_a_store_request": _over(raw.get("store_sectors"), raw.get("store_requests")),
        "wavefronts_a_shared_load": _over(raw.get("shared_load_wavefronts"), raw.get("shared_loads")),
        "wavefronts_a_shared_store": _over(
            total([raw.get("shared_store_wavefronts"), raw.get("copy_wavefronts")]),
            total([raw.get("shared_stores"), raw.get("copies")]),
        ),
        "bank_conflicts": total(raw.get(name) for name in CONFLICTS),
        "occupancy_percent": raw.get("occupancy_percent"),
        "l2_percent": raw.get("l2_percent"),
        "dram_percent": raw.get("dram_percent"),
        "time_ms": None if time_ns is None else time_ns / 1e6,
        "registers": raw.get("registers"),
    }


def _loads(raw: Counters) -> tuple[float | None, float | None]:
    """Sectors and requests of global loads, asynchronous copies among them. Where a GPU counts these apart, there are
    no more requests than plain loads, and the copies are added."""
    sectors, requests = raw.get("load_sectors"), raw.get("load_requests")
    plain, copies = raw.get("plain_loads"), raw.get("copy_requests")
    if requests is None or plain is None or not copies or requests - plain > copies / 2:
        return sectors, requests
    return total([sectors, raw.get("copy_sectors")]), requests + copies


def _over(top: float | None, bottom: float | None) -> float | None:
    return top / bottom if top is not None and bottom else None


def total(found: Iterable[float | None]) -> float | None:
    """Of those that are known."""
    known = [value for value in found if value is not None]
    return sum(known) if known else None
