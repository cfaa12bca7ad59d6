"""Does the estimate put configurations in the right order? Random ones of each kernel, estimated and measured.

    python benchmarks/estimates.py [--trials 250] [--seed 1] [--output DIR]
    python benchmarks/estimates.py --home DIR [--gpu h200]    of records that are there already; no GPU needed

A search with the sampler `random` measures each kernel's configurations, drawn from all values that are searched where
a file names none. Each is then traced on the emulator and estimated (devices/emulator/estimate.py), with the registers
of its machine code. Told are Spearman's rank correlation of the two, and how far the best of the first 20 by estimate
is behind the best of all. Writes estimates.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common import machine, save
from counters_tables import estimates_table

import autotile
from autotile.build import Builder
from autotile.build.builder import available_cpus
from autotile.devices.emulator.device import EmulatorDevice
from autotile.devices.gpus import find_gpu
from autotile.devices.info import DeviceInfo
from autotile.devices.select import open_device
from autotile.errors import AutotileError
from autotile.kernels import load_kernel
from autotile.measure import make_variant
from autotile.measure.traced import trace_variant
from autotile.store import Store
from autotile.types import Record

CASES: Mapping[str, Mapping[str, int]] = {
    "matmul": {"m": 2048, "n": 2048, "k": 2048},
    "transpose": {"rows": 8192, "cols": 8192},
}
DTYPE = "float32"
FIRST = 20
ASKED_CORRELATION, ASKED_BEHIND = 0.8, 0.10
TRACE_S = 0.02


def main() -> None:
    given = parsed()
    if given.home is not None:
        os.environ["AUTOTILE_HOME"] = str(given.home.absolute())
        info, compiler = measured_on(given.gpu)
        document: dict[str, Any] = machine(info, compiler)
    else:
        os.environ["AUTOTILE_HOME"] = tempfile.mkdtemp(prefix="autotile-estimates-")
        device = open_device("cuda")
        info = device.info
        with Builder(device.target) as builder:
            document = machine(info, builder.compiler)
    cases = []
    for kernel, sizes in CASES.items():
        if given.home is None:
            measure(kernel, sizes, given.trials, given.seed)
        cases.append(judged(kernel, sizes, info, given.jobs))
    document |= {"dtype": DTYPE, "seed": given.seed, "first": FIRST, "cases": cases}
    document["asked"] = {"correlation": ASKED_CORRELATION, "behind": ASKED_BEHIND}
    print("\n".join(estimates_table(document)))
    print("wrote", save("estimates", info, document, given.output))


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=250, help="configurations of each kernel")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    parser.add_argument("--home", type=Path, default=None, help="AUTOTILE_HOME with records of these problems")
    parser.add_argument("--gpu", default="h200", help="whose records these are")
    parser.add_argument("--jobs", type=int, default=available_cpus(), help="estimates at a time")
    parser.add_argument("--output", type=Path, default=None, help="folder for the JSON file")
    return parser.parse_args(arguments)


def measured_on(gpu: str) -> tuple[DeviceInfo, str]:
    """The GPU of the table with the name and the driver that the records tell, and their compiler."""
    info = find_gpu(gpu)
    found = [record.identity for kernel in CASES for record in Store().records(kernel, device=info.name)]
    if not found:
        raise SystemExit(f"no records of {info.name} under AUTOTILE_HOME")
    return dataclasses.replace(info, driver=found[0].driver, estimated=False), found[0].compiler


def measure(kernel: str, sizes: Mapping[str, int], trials: int, seed: int) -> None:
    """Trials of random configurations, kept under AUTOTILE_HOME."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "random.yaml"
        problem = ", ".join(f"{name}: {size}" for name, size in sizes.items())
        file.write_text(f"kernel: {kernel}\nproblems: [{{{problem}, dtype: {DTYPE}}}]\n", encoding="utf-8")
        autotile.search(file, device="cuda", sampler="random", trials=trials, seed=seed)


def judged(kernel_name: str, sizes: Mapping[str, int], info: DeviceInfo, jobs: int) -> dict[str, Any]:
    """One kernel's pairs of times, and what is told of them."""
    kernel = load_kernel(kernel_name)
    problem = kernel.problem(sizes, DTYPE)
    last = {record.configuration: record for record in Store().records(kernel_name, problem)}
    records = [record for record in last.values() if record.ok and not record.identity.estimated]
    began = time.perf_counter()
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        estimates = list(pool.map(partial(estimated_ms, info=info), records))
    took_s = time.perf_counter() - began
    pairs = [(record, ms) for record, ms in zip(records, estimates, strict=True) if ms is not None]
    return {
        "kernel": kernel_name,
        "problem": problem.label,
        "not_estimated": len(records) - len(pairs),
        "estimates_s": took_s,
        "jobs": jobs,
        **told([record.time_ms for record, _ in pairs], [ms for _, ms in pairs]),
        "pairs": [
            {"configuration": dict(record.configuration), "measured_ms": record.time_ms, "estimate_ms": ms}
            for record, ms in pairs
        ],
    }


def estimated_ms(record: Record, info: DeviceInfo) -> float | None:
    """None where the emulator does not run the variant."""
    emulator = EmulatorDevice().like(info)
    variant = make_variant(load_kernel(record.problem.kernel), record.problem, record.configuration)
    try:
        with Builder(emulator.target, jobs=1) as builder:
            trace = trace_variant(emulator, variant, builder.build(variant.source), budget_s=TRACE_S)
    except AutotileError:
        return None
    return trace.estimate(variant, info, record.registers).time_ms


def told(measured_ms: Sequence[float], estimates_ms: Sequence[float]) -> dict[str, Any]:
    """`within` is the share of estimates within a quarter of the time that was measured."""
    measured, estimated = np.asarray(measured_ms), np.asarray(estimates_ms)
    first = measured[np.argsort(estimated, kind="stable")[:FIRST]]
    correlation = rank_correlation(measured, estimated)
    behind = float(first.min() / measured.min() - 1)
    ratios = estimated / measured
    return {
        "configurations": len(measured),
        "correlation": correlation,
        "best_behind": behind,
        "best_ms": float(measured.min()),
        "median_ms": float(np.median(measured)),
        "worst_ms": float(measured.max()),
        "within": float(np.mean((ratios > 0.8) & (ratios < 1.25))),
        "met": correlation >= ASKED_CORRELATION and behind <= ASKED_BEHIND,
    }


def rank_correlation(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> float:
    """Spearman's: the correlation of the ranks, equal values sharing theirs."""

    def ranks(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
        last = np.cumsum(counts)
        return np.asarray((last - (counts - 1) / 2)[inverse])

    return float(np.corrcoef(ranks(one), ranks(other))[0, 1])


if __name__ == "__main__":
    main()
