"""The matmul beside cuBLAS (through PyTorch, without TF32) and CuPy's, on one GPU.

    python benchmarks/matmul.py [--shapes default,2000x3000x400,64x64x64:nt] [--dtypes float32,float64] [--output DIR]
    python benchmarks/matmul.py --search [--trials N] [--time 60s] [--seed S] [--home DIR]
    python benchmarks/matmul.py --dry-run

A shape is m x n x k or batch x m x n x k; behind it :nt, :tn or :tt where B, A or both are stored turned. Without
--search it times what `autotile.load` gives; with it, each case is searched first, with the search file that
matmul_cases.CONFIGS names. All contestants of a case take turns, each launch on a flushed L2 and another of three input
sets; afterwards the results of autotile and of cuBLAS are compared with the product in float64. Writes matmul.json
after every case, and with --search tuned.json beside it: the winners, as `autotile export --format json` writes them.
A case that fails is an entry with its error. Exit code 1 where one fails or comes out wrong. The types of tensor cores
are those of matmul_tensor.py.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from common import heat_up, machine, save, summary
from contest import PEER_FAULTS, Call, TorchClock, build_all, in_turns, without_those_that_fail
from matmul_cases import DEFAULT, DTYPES, Case, cases_of, compared, error_limit, mean_of
from matmul_contest import (
    CUBLAS,
    Operands,
    call_of,
    cublas_calls,
    errors_of,
    kernels_of,
    make_operands,
    peers,
    without_tf32,
)
from matmul_tables import matmul
from transpose_cases import INPUT_SETS, fastest

import autotile
from autotile.assets import config_path
from autotile.build import Builder
from autotile.devices.info import DeviceInfo
from autotile.devices.select import open_device
from autotile.errors import AutotileError, NotTuned, UsageError
from autotile.kernels import load_kernel
from autotile.kernels.instead import folders_of
from autotile.report import export
from autotile.spec.load import load_specs
from autotile.store import Store
from autotile.tuner.searches import search_all
from autotile.types import Configuration, Problem

FIRST_S, AGAIN_S = 1.0, 0.15
"""Seconds of launches before the first case, until the clocks have risen, and before each of the others."""

OURS = "autotile"
KERNEL = "matmul"


def main() -> None:
    given = parsed()
    cases = cases_of(given.shapes, given.dtypes)
    if given.dry_run:
        print("\n".join(planned(cases)))
        return
    home = Path(given.home or tempfile.mkdtemp(prefix="autotile-matmul-")).absolute()
    os.environ["AUTOTILE_HOME"] = str(home)
    precision = without_tf32()
    device = open_device("cuda")
    entries: list[dict[str, Any]] = []
    with Builder(device.target) as builder:
        document = machine(device.info, builder.compiler)
        document |= {"cublas": precision, "roofs": roofs(device.info), "cases": entries}
        if not given.search:
            build_all(builder, list(loaded(cases)))
        bench = Bench(device, builder, TorchClock())
        for case in cases:
            entries.append(about(case) | guarded(bench, case, given, home))
            print(case.label, said(entries[-1]), flush=True)
            path = saved(document, device.info, given.output)
            if given.search:
                exported(Store(home), device.info, path.parent / "tuned.json")
    for case, entry in zip(cases, entries, strict=True):  # last: what a profiler leaves behind is in nobody's times
        name_peers(case, entry)
    print("\n".join(matmul(document)))
    print("wrote", saved(document, device.info, given.output))
    if not all(entry.get("right") for entry in entries):
        raise SystemExit(1)


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default=DEFAULT, help="m x n x k or batch x m x n x k, perhaps :nt, by commas")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help="element types, by commas")
    parser.add_argument("--output", type=Path, default=None, help="folder for the JSON files")
    parser.add_argument("--home", type=Path, default=None, help="AUTOTILE_HOME (default: a temporary one)")
    parser.add_argument("--search", action="store_true", help="search each case before it is timed")
    parser.add_argument("--trials", type=int, default=None, help="trials of each search (default: the config's)")
    parser.add_argument("--time", default=None, help="limit of each search, such as 60s")
    parser.add_argument("--seed", type=int, default=0, help="seed of the searches")
    parser.add_argument("--dry-run", action="store_true", help="show the cases; no GPU needed")
    return parser.parse_args(arguments)


def planned(cases: Sequence[Case]) -> list[str]:
    """A line a case: its work, what it needs, the search file, what it is asked; or why the kernel does not take it."""
    kernel = load_kernel(KERNEL)
    lines = []
    for case in cases:
        try:
            key = kernel.problem(case.sizes, case.dtype).key
        except UsageError as error:
            lines.append(f"{case.label}: the kernel does not take it: {error}")
            continue
        need = INPUT_SETS * case.moved_bytes / 2**30
        config = case.config if config_path(case.config) else f"{case.config}, which is not there"
        asked = "nothing asked" if case.asked is None else f"asked {case.asked:.2f}"
        lines.append(
            f"{case.label} ({key}): {case.flops / 1e9:.3g} GFLOP, {case.intensity:.3g} a byte, {need:.2g} GiB needed, "
            f"{case.rounds} launches each; config {config}; {asked}"
        )
    return lines


def about(case: Case) -> dict[str, Any]:
    return {
        "shape": list(case.shape),
        "layout": case.layout,
        "dtype": case.dtype,
        "flops": case.flops,
        "bytes": case.moved_bytes,
        "intensity": case.intensity,
    }


def roofs(info: DeviceInfo) -> dict[str, Any]:
    """What no kernel can be faster than, from the device's clock, multiprocessors and memory."""
    return {
        "bandwidth_gbs": info.bandwidth_gbs,
        "tflops": {"float32": info.fp32_tflops, "float64": info.fp64_tflops},
    }


def saved(document: dict[str, Any], info: DeviceInfo, folder: Path | None) -> Path:
    document["geometric_mean"] = mean_of(document["cases"])
    return save("matmul", info, document, folder)


def said(entry: dict[str, Any]) -> str:
    if "error" in entry:
        return f"failed: {entry['error']}"
    beside = "no cuBLAS" if entry["ratio"] is None else f"{entry['ratio']:.3f} times as fast as cuBLAS"
    return (
        f"{entry['tflops'][OURS]:.2f} TFLOP/s, {entry['gbs'][OURS]:.0f} GB/s, {beside}; "
        f"{'right' if entry['right'] else 'WRONG'}, {entry['match']}"
    )


@dataclasses.dataclass
class Bench:
    """What all cases share: the device, compilers, the clock; `warm` after the first."""

    device: Any
    builder: Builder
    clock: TorchClock
    warm: bool = False


def guarded(bench: Bench, case: Case, given: argparse.Namespace, home: Path) -> dict[str, Any]:
    """The case's figures, or its error: time on a GPU is scarce, and the other cases are worth theirs."""
    import torch

    try:
        facts = {"search": searched(bench, case, given, Store(home))} if given.search else {}
        tuned = load(case)
        return contested(bench, case, tuned) | {"match": tuned.match} | facts
    except (AutotileError, *PEER_FAULTS) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    finally:
        with suppress(RuntimeError):  # a context that is lost is told by the case that lost it
            torch.cuda.empty_cache()  # the next case's search measures in a process of its own


def loaded(cases: Sequence[Case]) -> Iterator[tuple[Problem, Configuration]]:
    """What serves each case, as far as something does."""
    for case in cases:
        with suppress(AutotileError):
            tuned = load(case)
            yield tuned.problem, tuned.config


def load(case: Case) -> autotile.TunedKernel:
    asked: dict[str, Any] = case.sizes
    return autotile.load(KERNEL, dtype=case.dtype, device="cuda", **asked)


def searched(bench: Bench, case: Case, given: argparse.Namespace, store: Store) -> dict[str, Any]:
    """A search of the case with its shipped config. Raises NotTuned where nothing was valid."""
    options = {"trials": given.trials, "time": given.time, "seed": given.seed}
    overrides = [f"search.{key}={value}" for key, value in options.items() if value is not None]
    asked: dict[str, Any] = case.sizes | {"dtype": case.dtype}
    specs = load_specs(case.config, overrides, problems=[asked], device=lambda: bench.device.info)
    begun = time.perf_counter()
    (result,) = search_all(specs[:1], bench.device, store)
    seconds = time.perf_counter() - begun
    print(f"{case.label}: {result.new_trials} trials in {seconds:.1f} s, {result.stopped_by}", flush=True)
    if result.best is None:
        raise NotTuned(f"the search of {result.problem.label} found nothing valid: {dict(result.outcomes)}")
    return {
        "config": case.config,
        "seed": given.seed,
        "seconds": seconds,
        "trials": result.new_trials,
        "on_record": len(result.records) - result.new_trials,
        "stopped_by": result.stopped_by,
        "outcomes": dict(result.outcomes),
        "phases_s": vars(result.phases),
    }


def exported(store: Store, info: DeviceInfo, path: Path) -> None:
    """The winners so far, of the kernel and of those that serve under its name."""
    if bests := [best for name in folders_of(KERNEL) for best in store.bests(name, info.name)]:
        export(bests, "json", path, load_kernel)


def contested(bench: Bench, case: Case, tuned: autotile.TunedKernel) -> dict[str, Any]:
    """Everything in one run. Results are checked after the turns."""
    data = make_operands(case)
    ours = call_of(bench.device, bench.builder, tuned.problem, tuned.config, data)
    found, checked = raced(bench, case, ours, peers(case, data))
    return found | verdict(case, checked, data) | {"configuration": dict(tuned.config)}


def raced(bench: Bench, case: Case, ours: Call, others: Mapping[str, Call]) -> tuple[dict[str, Any], dict[str, Call]]:
    """Times in turns; the faster of the ways to cuBLAS is `cublas`. Beside the figures, the calls to check: autotile's,
    and that way."""
    notes: list[str] = []
    ours(0)  # an error of ours ends the case
    contestants: dict[str, Call] = {OURS: ours} | without_those_that_fail(others, notes)
    heat_up(contestants, AGAIN_S if bench.warm else FIRST_S)
    bench.warm = True
    figures = {name: summary(times) for name, times in in_turns(contestants, case.rounds, bench.clock).items()}
    medians = {name: figure["median_ms"] for name, figure in figures.items()}
    times_ms = {OURS: medians[OURS]}
    checked = {OURS: ours}
    way = ""
    if any(name.startswith(CUBLAS) for name in medians):
        way = fastest(medians, CUBLAS)
        times_ms[CUBLAS] = medians[way]
        checked[CUBLAS] = contestants[way]
    if "cupy" in medians:
        times_ms["cupy"] = medians["cupy"]
    found = {"cublas_way": way.removeprefix(f"{CUBLAS}: "), "figures": figures, "notes": notes}
    return compared(case, times_ms) | found, checked


def verdict(case: Case, calls: dict[str, Call], data: Operands) -> dict[str, Any]:
    """The largest |error| / (|A||B|) of each, and whether autotile's is one that a right product may have."""
    errors, limit = errors_of(calls, data), error_limit(case)
    ours = errors[OURS]
    return {"errors": errors, "error_limit": limit, "right": ours is not None and ours <= limit}


def name_peers(
    case: Case, entry: dict[str, Any], ways: Callable[[Any, Operands], Mapping[str, Call]] = cublas_calls
) -> None:
    """Puts down the kernels that cuBLAS took, as far as they can be had."""
    if not entry.get("cublas_way"):
        return
    try:
        calls = ways(case, make_operands(case))
        entry["cublas_kernels"] = kernels_of(calls[f"{CUBLAS}: {entry['cublas_way']}"], entry["notes"])
    except PEER_FAULTS as fault:
        entry["notes"].append(f"cuBLAS's kernel has no name: {type(fault).__name__}: {fault}")


if __name__ == "__main__":
    main()
